"""Rank the whole catalog on a device.

The scores of some users at a time are held, (users, items), with the items in tie order: the place
of an item in a row is its place among equals. All that is asked of a score, as that of a test item,
of a sampled negative or of one among those counted, is read from this table.

The best k are exact, ties included. A row is cut into blocks; the k blocks with the best items
hold the best k items, because each of them has an item that stands before all items of a block
that is not chosen. Among equals the lower place comes first, by a key of score and place that no
two items share.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import NamedTuple

import torch
from torch import Tensor

from hcarec.errors import ConfigError, ModelError

SCORES = 1 << 27
"""Scores held at once, 512 MiB."""
BLOCK = 128
"""Items in a block."""

BACKENDS = ("triton", "torch")

Count = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Counts the scores below some thresholds, see `count_below`."""
Ragged = tuple[Tensor, Tensor]
"""Items of all users one after another, and the offsets (n_users + 1,) at which they begin."""


class Corrections(NamedTuple):
    """What is added to the scores of some items; see `hcarec.ops.rank.corrections`."""

    items: Tensor
    offsets: Tensor
    values: Tensor


class Ranking(NamedTuple):
    """What `rank` finds: the fields of `hcarec.topk.Ranking`, as tensors.

    `pair_scores` are the scores of the pairs that were asked for. What was not asked for is empty.
    """

    items: Tensor
    scores: Tensor
    pair_scores: Tensor
    test_scores: Tensor
    below: Tensor
    n_negatives: Tensor


@torch.no_grad()
def rank(
    H: Tensor,
    X: Tensor,
    tie_rank: Tensor,
    k: int,
    *,
    hidden: Ragged | None = None,
    test: Ragged | None = None,
    exclude: Ragged | None = None,
    corrections: Corrections | None = None,
    pairs: Ragged | None = None,
    backend: str | None = None,
    at_once: int = SCORES,
) -> Ranking:
    """Rank all items for every user by the product of their vectors, corrected for some items.

    The arguments are those of `hcarec.topk.rank`, on one device: H (users, d), X (items, d)
    float32, tie_rank (items,). `pairs` asks for the scores of some items; `at_once` bounds how
    many scores are held. The ranks are those of `hcarec.topk.rank`, but for scores that differ by
    rounding alone. An item that scores -inf is not listed.

    The back-end counts: "triton" in one pass, by default on a GPU where it is installed, or
    "torch" with plain operations. One given by name that cannot run is a ConfigError.
    """
    assert H.dtype == X.dtype == torch.float32 and k >= 1 and len(tie_rank) == len(X)
    n_users, n_items, tie_rank = len(H), len(X), tie_rank.long()
    none = tie_rank[:0], tie_rank.new_zeros(n_users + 1)
    corrections = corrections or Corrections(*none, X.new_empty(0))
    known = _known(test or none, exclude or none, n_items)
    ragged = corrections[:2], pairs or none, hidden or none, test or none, known
    asked = _Asked(corrections.values, *(_Entries(one, tie_rank) for one in ragged))
    by_tie = torch.argsort(tie_rank)
    Z, count = X[by_tie], _counter(backend or default_backend(H.device.type), H.device.type)
    size = max(1, at_once // padded(n_items))
    with ieee_products():
        pieces = [
            _rank_users(H, Z, begin, min(begin + size, n_users), k, asked, count)
            for begin in range(0, max(1, n_users), size)
        ]
    found = _Piece(*map(torch.cat, zip(*pieces, strict=True)))
    if found.odd.any():
        raise ModelError(
            f"the scores of user row {int(found.odd.nonzero()[0])} are not numbers (NaN):"
            " the model has diverged, train it again with a lower learning rate"
        )
    listed = found.scores > -torch.inf
    items = torch.where(listed, by_tie[found.places.where(listed, 0)], -1)
    return Ranking(items.to(torch.int32), *found[1:-1], n_items - asked.known.offsets.diff())


def default_backend(device: str) -> str:
    """Return the back-end of a device ("cpu" or "cuda") where none is given by name."""
    return "triton" if device == "cuda" and find_spec("triton") else "torch"


def _counter(backend: str, device: str) -> Count:
    """Return what counts by a back-end."""
    if backend not in BACKENDS:
        raise ConfigError(f"back-end '{backend}' of ranking: expected one of {', '.join(BACKENDS)}")
    if backend == "torch":
        return count_below
    if not find_spec("triton"):
        raise ConfigError("back-end 'triton' of ranking: Triton is not installed; use 'torch'")
    if device != "cuda" and os.environ.get("TRITON_INTERPRET") != "1":
        raise ConfigError(f"back-end 'triton' of ranking on {device}: it takes a GPU; use 'torch'")
    from hcarec.ops.rank import triton

    return triton.count_below


@contextmanager
def ieee_products() -> Iterator[None]:
    """Compute products of float32 matrices on a card in float32, not TF32, meanwhile."""
    matmul = torch.backends.cuda.matmul
    before = matmul.fp32_precision
    matmul.fp32_precision = "ieee"
    try:
        yield
    finally:
        matmul.fp32_precision = before


class _Entries:
    """Items of all users, as places in the tie order."""

    def __init__(self, ragged: Ragged, tie_rank: Tensor) -> None:
        items, offsets = ragged
        self.places, self.users, self.offsets = tie_rank[items.long()], _users(ragged), offsets
        self._bounds: list[int] = offsets.tolist()

    def of(self, begin: int, end: int) -> slice:
        """Return where the entries of the users [begin, end) are."""
        return slice(self._bounds[begin], self._bounds[end])


def _users(ragged: Ragged) -> Tensor:
    """Return the user of each item."""
    items, offsets = ragged
    numbers = torch.arange(len(offsets) - 1, device=items.device)
    return torch.repeat_interleave(numbers, offsets.diff(), output_size=len(items))


def _known(test: Ragged, exclude: Ragged, n_items: int) -> Ragged:
    """Return the items of each user that are no negatives, each once."""
    both = torch.cat([_users(one) * n_items + one[0] for one in (test, exclude)]).unique()
    bounds = torch.arange(len(test[1]), device=both.device) * n_items
    return both % n_items, torch.searchsorted(both, bounds)


class _Asked(NamedTuple):
    """What is asked of the scores: corrections, and whose are read, hidden and counted."""

    values: Tensor
    corrected: _Entries
    pairs: _Entries
    hidden: _Entries
    test: _Entries
    known: _Entries


class _Piece(NamedTuple):
    """What is found for some users; `odd` says whose scores are not all numbers."""

    places: Tensor
    scores: Tensor
    pair_scores: Tensor
    test_scores: Tensor
    below: Tensor
    odd: Tensor


def _rank_users(
    H: Tensor, Z: Tensor, begin: int, end: int, k: int, asked: _Asked, count: Count
) -> _Piece:
    """Rank the items Z (n_items, d), in tie order, for the users [begin, end)."""

    def at(entries: _Entries) -> tuple[Tensor, Tensor]:
        part = entries.of(begin, end)
        return entries.users[part] - begin, entries.places[part]

    n_items = len(Z)
    S = H.new_empty(end - begin, padded(n_items))
    torch.mm(H[begin:end], Z.t(), out=S[:, :n_items])
    S[:, n_items:] = -torch.inf
    S[at(asked.corrected)] += asked.values[asked.corrected.of(begin, end)]
    pair_scores, test_scores = S[at(asked.pairs)], S[at(asked.test)]
    hidden = at(asked.hidden)
    kept, S[hidden] = S[hidden], -torch.inf
    places, scores, odd = _best(S, k)
    S[hidden] = kept
    S[at(asked.known)] = torch.inf  # not below anything
    offsets = asked.test.offsets[begin : end + 1]
    below = count(S[:, :n_items], test_scores, offsets - offsets[0])
    return _Piece(places, scores, pair_scores, test_scores, below, odd)


def padded(n_items: int) -> int:
    """Return the width of a row of scores: whole blocks."""
    return -(-n_items // BLOCK) * BLOCK


def _best(S: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return places and scores (rows, k) of the best of each row, and which rows have a NaN.

    S (rows, width), width a multiple of BLOCK; a score of -inf stands for no item.
    """
    blocks = S.view(len(S), S.shape[1] // BLOCK, BLOCK)
    greatest = blocks.amax(2)
    chosen = _place(_top(greatest, torch.arange(blocks.shape[1], device=S.device), k))
    candidates = blocks.gather(1, chosen[:, :, None].expand(-1, -1, BLOCK)).flatten(1)
    inside = torch.arange(BLOCK, device=S.device)
    keys = _top(candidates, (chosen[:, :, None] * BLOCK + inside).flatten(1), k)
    missing = k - keys.shape[1]
    places = torch.nn.functional.pad(_place(keys), (0, missing))
    scores = torch.nn.functional.pad(_score(keys), (0, missing), value=-torch.inf)
    return places, scores, greatest.isnan().any(1)


def _top(scores: Tensor, places: Tensor, k: int) -> Tensor:
    """Return the greatest k keys, or all if they are fewer, of scores and places (rows, n).

    A key (int64) orders by descending score, then by ascending place, at most 2^31 - 1.
    """
    bits = (scores + 0.0).view(torch.int32)  # -0 becomes 0, its equal
    ordered = torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    keys = (ordered.long() << 32) + (0x7FFFFFFF - places)
    return keys.topk(min(k, keys.shape[1])).values


def _place(keys: Tensor) -> Tensor:
    return 0x7FFFFFFF - (keys & 0x7FFFFFFF)


def _score(keys: Tensor) -> Tensor:
    ordered = (keys >> 32).to(torch.int32)
    return torch.where(ordered < 0, ordered ^ 0x7FFFFFFF, ordered).view(torch.float32)


def count_below(S: Tensor, thresholds: Tensor, offsets: Tensor) -> Tensor:
    """Count the scores of each row of S (rows, items) below its thresholds -> (n,) int64.

    Row r has thresholds[offsets[r] : offsets[r + 1]].
    """
    found = torch.zeros_like(thresholds, dtype=torch.int64)
    if not len(thresholds):
        return found
    counts, order = offsets.diff().sort(descending=True, stable=True)
    S = S[order]
    for number in range(int(counts[0])):
        n_rows = int((counts > number).sum())  # the first ones: no row beyond has so many
        at = offsets[order[:n_rows]] + number
        found[at] = (S[:n_rows] < thresholds[at, None]).sum(1, dtype=torch.int32).long()
    return found
