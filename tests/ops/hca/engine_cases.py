"""Networks, histories and comparisons that the tests of the engine share."""

from __future__ import annotations

from typing import Any

import brute_network as brute
import numpy as np

from hcarec.ops.hca import numba as engine
from hcarec.ops.hca.parameters import Network
from hcarec.ops.rank.corrections import Corrections

N_ITEMS = 13
ALL: dict[str, Any] = {
    "fusion": "residual",
    "padding": "masked",
    "attention_x": "dot",
    "attention_h": "dot",
    "blocks": 2,
    "ffn": 3,
    "item_norm": True,
    "output_norm": True,
    "scores": "cosine",
    "copy_window": 6,
}
OPTIONS: dict[str, dict[str, Any]] = {
    "paper": {},
    "gru": {"w_x": 1, "w_h": 1},
    "x-only": {"w_h": 1, "padding": "masked"},
    "h-only": {"w_x": 1, "fusion": "residual"},
    **{name: {name: value} for name, value in ALL.items() if name != "ffn"},
    "block": {"blocks": 1},
    "wide": {"w_x": 40, "w_h": 70, "padding": "masked", "blocks": 2},
    "wide-zero": {"w_x": 70, "w_h": 40, "attention_h": "dot"},
    "layers-of-gru": {"blocks": 3, "ffn": 1, "w_x": 1, "w_h": 1},
    "copy-one": {"copy_window": 1, "w_x": 4},
    "last-items": {"last_items": 9, "copy_window": 2},
    "all": ALL,
    "all-odd": {**ALL, "d": 7},
    "all-64": {**ALL, "d": 64},
}
LENGTHS = [3, 0, 1, 90, 33, 2, 5, 32, 0]


def network_of(name: str) -> Network:
    return Network(**{"d": 10, "w_x": 3, "w_h": 4, **OPTIONS[name]})


def ragged(lengths: list[int], seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    items = np.random.default_rng(seed).integers(0, N_ITEMS, sum(lengths)).astype(np.int32)
    return items, np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def packed_of(network: Network, seed: int = 1) -> engine.Packed:
    return engine.pack(brute.draw(network, N_ITEMS, seed), network)


def user(
    found: tuple[np.ndarray, Corrections | None], i: int
) -> tuple[np.ndarray, dict[int, float]]:
    """Return the query and the corrections of one user."""
    vectors, corrections = found
    if corrections is None:
        return vectors[i], {}
    items, _, values = corrections.take(np.array([i]))
    return vectors[i], dict(zip(items.tolist(), values.tolist(), strict=True))


def same(a: tuple[np.ndarray, Any], b: tuple[np.ndarray, Any]) -> bool:
    """Say whether two lots of queries have the same bits."""
    pairs = zip(a[1] or (), b[1] or (), strict=True)
    return a[0].tobytes() == b[0].tobytes() and all(x.tobytes() == y.tobytes() for x, y in pairs)
