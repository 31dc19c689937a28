"""Rank the whole catalog on a device, with plain torch operations.

The scores of some users at a time are held, (users, items), with the items in tie order: the place
of an item in a row is its place among equals. All that is asked of a score, as that of a test item,
of a sampled negative or of one among those counted, is read from this table.

The best k are exact, ties included. A row is cut into blocks; the k blocks with the best items
hold the best k items, because each of them has an item that stands before all items of a block
that is not chosen. Among equals the lower place comes first, by a key of score and place that no
two items share.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor

from hcarec.errors import ModelError

SCORES = 1 << 27
"""Scores held at once, 512 MiB; comparing them takes a quarter of that again."""
BLOCK = 128
"""Items in a block."""

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
    at_once: int = SCORES,
) -> Ranking:
    """Rank all items for every user by the product of their vectors, corrected for some items.

    The arguments are those of `hcarec.topk.rank`, on one device: H (users, d), X (items, d)
    float32, tie_rank (items,). `pairs` asks for the scores of some items; `at_once` bounds how
    many scores are held. The ranks are those of `hcarec.topk.rank`, but for scores that differ by
    rounding alone. An item that scores -inf is not listed.
    """
    assert H.dtype == X.dtype == torch.float32 and k >= 1 and len(tie_rank) == len(X)
    n_users, n_items, tie_rank = len(H), len(X), tie_rank.long()
    none = tie_rank[:0], tie_rank.new_zeros(n_users + 1)
    corrections = corrections or Corrections(*none, X.new_empty(0))
    asked = _Asked(
        corrections.values,
        *(
            _Entries(one or none, tie_rank)
            for one in (
                corrections[:2], pairs, hidden, test, _known(test or none, exclude or none, n_items)
            )
        ),
    )  # fmt: skip
    by_tie = torch.argsort(tie_rank)
    size = max(1, at_once // n_items)
    with ieee_products():
        pieces = [
            _rank_users(H, X[by_tie], begin, min(begin + size, n_users), k, asked)
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
    return Ranking(items.to(torch.int32), *found[1:-1], n_items - asked.known.counts)


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
        self.places, self.counts = tie_rank[items.long()], offsets.diff()
        self.users = _users(ragged)
        self.number = torch.arange(len(items), device=items.device) - offsets[self.users]
        """Counts the entries of each user from 0."""
        self._offsets: list[int] = offsets.tolist()

    def of(self, begin: int, end: int) -> slice:
        """Return where the entries of the users [begin, end) are."""
        return slice(self._offsets[begin], self._offsets[end])


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


def _rank_users(H: Tensor, Z: Tensor, begin: int, end: int, k: int, asked: _Asked) -> _Piece:
    """Rank the items Z (n_items, d), in tie order, for the users [begin, end)."""
    order = torch.argsort(asked.test.counts[begin:end], descending=True, stable=True)
    row = torch.argsort(order)  # of each user: those with most test items come first

    def at(entries: _Entries) -> tuple[Tensor, Tensor]:
        part = entries.of(begin, end)
        return row[entries.users[part] - begin], entries.places[part]

    S = H.new_full((end - begin, -(-len(Z) // BLOCK) * BLOCK), -torch.inf)
    torch.mm(H[begin:end][order], Z.t(), out=S[:, : len(Z)])
    S[at(asked.corrected)] += asked.values[asked.corrected.of(begin, end)]
    pair_scores, test_scores = S[at(asked.pairs)], S[at(asked.test)]
    hidden = at(asked.hidden)
    kept, S[hidden] = S[hidden], -torch.inf
    places, scores, odd = _best(S, k)
    S[hidden] = kept
    S[at(asked.known)] = torch.inf  # not below anything
    within = at(asked.test)[0], asked.test.number[asked.test.of(begin, end)]
    counts = asked.test.counts[begin:end][order]
    below = _count_below(S[:, : len(Z)], test_scores, within, counts)
    return _Piece(places[row], scores[row], pair_scores, test_scores, below, odd[row])


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


def _count_below(
    S: Tensor, thresholds: Tensor, within: tuple[Tensor, Tensor], counts: Tensor
) -> Tensor:
    """Count the scores of a row below each of its thresholds (n,), in S (rows, items).

    `within` has the row of each threshold and its number there; `counts` (rows,), descending, how
    many a row has.
    """
    most = int(counts[0]) if len(counts) else 0
    table = S.new_full((len(S), most), -torch.inf)
    table[within] = thresholds
    found = torch.zeros_like(table, dtype=torch.int64)
    rows = torch.searchsorted(-counts, -torch.arange(1, most + 1, device=S.device), right=True)
    for number, n_rows in enumerate(rows.tolist()):  # no row beyond has so many
        below = S[:n_rows] < table[:n_rows, number, None]
        found[:n_rows, number] = below.sum(1)
    return found[within]
