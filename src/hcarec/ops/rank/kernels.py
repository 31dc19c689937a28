"""Rank items whose scores have corrections, beside the pass through the catalogue.

The pass of `hcarec.ops.score` or `hcarec.ops.screen` knows products alone. Corrected items enter
the top-k before it, and it skips them like hidden ones; the counts that it makes from products
are put right after it. So the pass costs the same as without corrections.

In all kernels `items`, `offsets` and `values` are those of `Corrections`, `products` (n,) float32
are the products of the vectors for `items`, and start..end are the users to work on.
"""

from __future__ import annotations

from typing import Any

from numba import types

from hcarec.ops.compiled import array, compiled
from hcarec.ops.score import inlined, offer

_INT32, _INT64 = array("int32", given=True), array("int64", given=True)
_FLOAT32, _BOOLEAN = array("float32", given=True), array("boolean", given=True)
_RAGGED = (_INT32, _INT64)
_USERS = (types.int64, types.int64)


@inlined
def _position(items: Any, begin: int, end: int, item: int) -> int:
    """Return the first place of the ascending items[begin:end] that is not below an item."""
    while begin < end:
        middle = (begin + end) >> 1
        if items[middle] < item:
            begin = middle + 1
        else:
            end = middle
    return begin


def _make_correct_pairs(sources: int) -> Any:
    def correct_pairs(items, offsets, values, pairs, pair_offsets, start, end, scores):
        """Add to `scores`, those of the items `pairs` in any order, the corrections there are."""
        _ = sources
        for user in range(start, end):
            last = offsets[user + 1]
            for at in range(pair_offsets[user], pair_offsets[user + 1]):
                place = _position(items, offsets[user], last, pairs[at])
                if place < last and items[place] == pairs[at]:
                    scores[at] += values[place]

    return correct_pairs


def _make_offer_corrected(sources: int) -> Any:
    def offer_corrected(
        items, offsets, values, products, tie_rank, allowed, hidden, hidden_offsets,
        start, end, top_scores, top_ties,
    ):  # fmt: skip
        """Take the corrected items that belong there into the top-k heaps (users, k)."""
        _ = sources
        for user in range(start, end):
            for place in range(offsets[user], offsets[user + 1]):
                score = products[place] + values[place]
                # Looked at first, because slices cost more than most items are worth.
                if score < top_scores[user, 0]:
                    continue
                not_shown = hidden[hidden_offsets[user] : hidden_offsets[user + 1]]
                heap = top_scores[user], top_ties[user]
                offer(score, items[place], tie_rank, allowed, not_shown, *heap)

    return offer_corrected


def _make_merge(sources: int) -> Any:
    def merge(items, offsets, hidden, hidden_offsets, start, end, merged):
        """Write both ascending lists of each user as one ascending list; equal items both stay."""
        _ = sources
        for user in range(start, end):
            left, left_end = offsets[user], offsets[user + 1]
            right, right_end = hidden_offsets[user], hidden_offsets[user + 1]
            for at in range(left + right, left_end + right_end):
                if right == right_end or (left < left_end and items[left] < hidden[right]):
                    merged[at] = items[left]
                    left += 1
                else:
                    merged[at] = hidden[right]
                    right += 1

    return merge


def _make_recount(sources: int) -> Any:
    def recount(
        items, offsets, values, products, thresholds, threshold_offsets, known, known_offsets,
        start, end, below_all, below,
    ):  # fmt: skip
        """Turn counts of products under each threshold into counts of scores.

        `below_all` counts all items; `below` leaves out `known`, ascending within each user.
        """
        _ = sources
        for user in range(start, end):
            first, last = threshold_offsets[user], threshold_offsets[user + 1]
            next_known, known_end = known_offsets[user], known_offsets[user + 1]
            for place in range(offsets[user], offsets[user + 1]):
                item, product = items[place], products[place]
                score = product + values[place]
                while next_known < known_end and known[next_known] < item:
                    next_known += 1
                is_known = next_known < known_end and known[next_known] == item
                for at in range(first, last):
                    change = int(score < thresholds[at]) - int(product < thresholds[at])
                    below_all[at] += change
                    if not is_known:
                        below[at] += change

    return recount


correct_pairs: Any = compiled(
    _make_correct_pairs,
    types.void(*_RAGGED, _FLOAT32, *_RAGGED, *_USERS, array("float32")),
)
offer_corrected: Any = compiled(
    _make_offer_corrected,
    types.void(
        *_RAGGED, _FLOAT32, _FLOAT32, _INT32, _BOOLEAN, *_RAGGED, *_USERS,
        array("float32", 2), array("int32", 2),
    ),
)  # fmt: skip
merge: Any = compiled(
    _make_merge,
    types.void(*_RAGGED, *_RAGGED, *_USERS, array("int32")),
)
recount: Any = compiled(
    _make_recount,
    types.void(
        *_RAGGED, _FLOAT32, _FLOAT32, _FLOAT32, _INT64, *_RAGGED, *_USERS,
        array("int64"), array("int64"),
    ),
)  # fmt: skip
