"""The protocol of a result: everything that must be equal before two figures may be compared."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from hcarec.errors import ProtocolError
from hcarec.metrics import KS
from hcarec.sequences import Sequences

AUC_SEED = 0
"""Seed of the items that the sampled AUC compares with; fixed, so that all models meet the same ones."""

DEFINITIONS = {
    "recall@k": "pooled: all hits of all users over all their test items",
    "map@k": "per user the sum over hits of (hits so far / rank), over the number of test items; mean over users",
    "ndcg@k": "binary gain, log2(rank + 1), ideal over min(k, number of test items); mean over users",
    "auc": "share of test items that score strictly higher than one item drawn uniformly from those in neither the user's history nor test part; pooled",
    "ranking": "over the whole catalogue: every item of the data set",
}


def protocol(data: Sequences, split: Mapping[str, Any], selection: str, hide_seen: bool, ks: Sequence[int] = KS) -> dict[str, Any]:
    """Describe under which rules figures are made."""
    return {
        "version": 1,
        "data": {"fingerprint": data.fingerprint, "users": data.n_users, "items": data.n_items, "events": data.n_events},
        "split": dict(split),
        "seen": "hidden" if hide_seen else "kept",
        "ties": "by a fixed hash of the item id",
        "selection": selection,
        "metrics": {"k": list(ks), "auc_seed": AUC_SEED, "definitions": DEFINITIONS},
    }


def fingerprint(rules: Mapping[str, Any]) -> str:
    """Return a SHA-256 of a protocol."""
    return hashlib.sha256(json.dumps(rules, sort_keys=True, ensure_ascii=True).encode()).hexdigest()


def check_equal(first: Mapping[str, Any], second: Mapping[str, Any], names: tuple[str, str]) -> None:
    """Refuse two different protocols, naming what differs."""
    different = list(_differences(first, second, ""))
    if different:
        path, a, b = different[0]
        more = f" (and {len(different) - 1} more)" if len(different) > 1 else ""
        where = f"{path} is {a!r} in {names[0]} and {b!r} in {names[1]}{more}"
        raise ProtocolError(f"the two results were made under different protocols: {where}; evaluate both the same way")


def _differences(a: Any, b: Any, path: str) -> Any:
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        for name in sorted({*a, *b}):
            yield from _differences(a.get(name), b.get(name), f"{path}.{name}".lstrip("."))
    elif a != b:
        yield path, a, b
