"""Rank the whole catalogue for a batch of users in one pass, without ever holding users x items scores.

The catalogue lies in panels (n_panels, d, LANES), see `pack`. A strip of panels stays in the second-level cache while
all users of the batch go over it, USERS at a time; their scores of the strip stay in the first-level cache while they
are counted and filtered.

A score is one chain of fused multiply-adds in the order 0..d-1, starting from zero, with no remainder loop anywhere: it
is the same to the last bit whatever stands beside it. `_score_tile` computes USERS x LANES of them in vector registers
(Numba's own loops keep the sums in memory and reach little over half of the core's arithmetic), `_dot` a single one.
"""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

USERS = 6
VECTOR = 8
LANES = 2 * VECTOR  # 6 x 2 vectors of sums, 2 of items and 1 of a user fill the 16 registers of AVX2
STRIP = 512  # items whose scores are looked at together: USERS x STRIP floats are 12 KiB
GROUP = 64  # items of a strip that are skipped together when none reaches the top-k

_INDEX = ir.IntType(64)
_FLOAT = ir.FloatType()
_FLOATS = ir.VectorType(_FLOAT, VECTOR)

# Any, because the types that Numba ships do not know how intrinsics and compiled functions are called.
kernel: Any = nb.njit(nogil=True, cache=True, error_model="numpy")
inlined: Any = nb.njit(nogil=True, error_model="numpy", forceinline=True)
_intrinsic: Any = intrinsic
_declare: Any = cgutils.get_or_insert_function


@_intrinsic
def fma(typing_context: Any, a: Any, b: Any, c: Any) -> Any:
    """Return a * b + c of three float32, rounded once."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fma(*arguments)

    return types.float32(types.float32, types.float32, types.float32), generate


@inlined
def _dot(h: Any, x: Any) -> Any:
    """Return the score of one user (d,) and one item (d,), bit for bit as `_score_tile` gives it."""
    total = np.float32(0.0)
    for l in range(h.shape[0]):
        total = fma(h[l], x[l], total)
    return total


@_intrinsic
def _score_tile(typing_context: Any, groups: Any, group: Any, panels: Any, panel: Any, strip: Any, column: Any) -> Any:
    """Write the scores of groups[group] and panels[panel] to strip[:, column : column + LANES].

    `groups` (n, d, USERS), `panels` (n, d, LANES), `strip` (USERS, STRIP), all float32 and contiguous; d >= 1. Whole
    arrays and positions, because a slice costs Numba an atomic count of references, which is much at this size.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        h, x, s = (context.make_array(signature.args[at])(context, builder, arguments[at]) for at in (0, 2, 4))
        d = builder.extract_value(x.shape, 1)
        h_start = builder.gep(h.data, [builder.mul(arguments[1], builder.mul(d, _INDEX(USERS)))])
        x_start = builder.gep(x.data, [builder.mul(arguments[3], builder.mul(d, _INDEX(LANES)))])
        sums = _emit_sums(builder, h_start, x_start, d)
        for user in range(USERS):
            row = builder.gep(s.data, [builder.add(arguments[5], _INDEX(user * STRIP))])
            for part, value in enumerate(sums[user]):
                builder.store(value, _vector_at(builder, row, part), align=4)
        return context.get_dummy_value()

    return types.none(groups, types.intp, panels, types.intp, strip, types.intp), generate


def _emit_sums(builder: Any, h: Any, x: Any, d: Any) -> list[list[Any]]:
    """Emit the loop over d and return the values of its sums, USERS x (LANES / VECTOR)."""
    vector_fma = _declare(builder.module, ir.FunctionType(_FLOATS, [_FLOATS] * 3), f"llvm.fma.v{VECTOR}f32")
    before, loop, after = builder.block, builder.append_basic_block("sum"), builder.append_basic_block("summed")
    builder.branch(loop)
    builder.position_at_end(loop)
    step = builder.phi(_INDEX)
    step.add_incoming(_INDEX(0), before)
    sums = [[builder.phi(_FLOATS) for _ in range(LANES // VECTOR)] for _ in range(USERS)]
    x_row = builder.gep(x, [builder.mul(step, _INDEX(LANES))])
    h_row = builder.gep(h, [builder.mul(step, _INDEX(USERS))])
    items = [builder.load(_vector_at(builder, x_row, part), align=4) for part in range(LANES // VECTOR)]
    results = []
    for user in range(USERS):
        value = _broadcast(builder, builder.load(builder.gep(h_row, [_INDEX(user)])))
        results.append([builder.call(vector_fma, [value, *pair]) for pair in zip(items, sums[user], strict=True)])
        for old, new in zip(sums[user], results[user], strict=True):
            old.add_incoming(ir.Constant(_FLOATS, [0.0] * VECTOR), before)
            old.add_incoming(new, loop)
    following = builder.add(step, _INDEX(1))
    step.add_incoming(following, loop)
    builder.cbranch(builder.icmp_signed("<", following, d), loop, after)
    builder.position_at_end(after)
    return results


def _vector_at(builder: Any, row: Any, part: int) -> Any:
    return builder.bitcast(builder.gep(row, [_INDEX(part * VECTOR)]), _FLOATS.as_pointer())


def _broadcast(builder: Any, value: Any) -> Any:
    undefined = ir.Constant(_FLOATS, ir.Undefined)
    first = builder.insert_element(undefined, value, ir.IntType(32)(0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), VECTOR), [0] * VECTOR)
    return builder.shuffle_vector(first, undefined, zeros)


@kernel
def pack(X: Any) -> Any:
    """Return X (n, d) as panels (n_panels, d, LANES), the last one filled up with zeros; whole strips of them."""
    n, d = X.shape
    n_panels = (n + STRIP - 1) // STRIP * (STRIP // LANES)
    panels = np.zeros((n_panels, d, LANES), np.float32)
    for item in range(n):
        for l in range(d):
            panels[item // LANES, l, item % LANES] = X[item, l]
    return panels


@kernel
def score_pairs(H: Any, X: Any, items: Any, offsets: Any, scores: Any, start: int, end: int) -> None:
    """Write the score of every (user, item) pair of the users start..end, ragged as `items`."""
    for user in range(start, end):
        for at in range(offsets[user], offsets[user + 1]):
            scores[at] = _dot(H[user], X[items[at]])


@kernel
def rank_users(
    H: Any,
    panels: Any,
    order: Any,
    tie_rank: Any,
    allowed: Any,
    hidden: Any,
    hidden_offsets: Any,
    thresholds: Any,
    threshold_offsets: Any,
    start: int,
    end: int,
    top_scores: Any,
    top_ties: Any,
    below: Any,
) -> int:
    """Fill the top-k and the counts of the users start..end; return the first user with a NaN score, or -1.

    `order` (items,) names the items as they lie in the panels; `hidden` sorted within each user; `allowed` (items,) bool
    or (0,) for all; `thresholds` are scores, and `below` gets the number of catalogue items strictly under each.
    `top_scores`, `top_ties` (users, k) must hold -inf and the greatest int32, or heaps of items that are among the hidden;
    they come out best first, `top_ties` being the tie ranks of the items.
    """
    n_items = len(order)
    groups = user_groups(H, start, end)
    strip = np.empty((USERS, STRIP), np.float32)
    bad = -1
    for first_item in range(0, n_items, STRIP):
        in_strip = min(STRIP, n_items - first_item)
        for group in range(len(groups)):
            score_strip(groups, group, panels, first_item, strip)
            first_user = start + group * USERS
            for user in range(first_user, min(first_user + USERS, end)):
                row = user - first_user
                _count_below(strip, row, in_strip, thresholds, threshold_offsets[user], threshold_offsets[user + 1], below)
                if reached(strip, row, 0, STRIP, top_scores[user, 0]):
                    not_shown = hidden[hidden_offsets[user] : hidden_offsets[user + 1]]
                    if not take_row(strip, row, first_item, in_strip, order, tie_rank, allowed, not_shown, top_scores[user], top_ties[user]):
                        bad = user if bad < 0 else min(bad, user)
    for user in range(start, end):
        sort_heap(top_scores[user], top_ties[user])
    return bad


@inlined
def score_strip(groups: Any, group: int, panels: Any, first_item: int, strip: Any) -> None:
    """Write the scores of a group of users and a whole strip of items to `strip` (USERS, STRIP)."""
    for column in range(0, STRIP, LANES):
        _score_tile(groups, group, panels, (first_item + column) // LANES, strip, column)


@inlined
def user_groups(H: Any, start: int, end: int) -> Any:
    """Return the rows start..end of H as (groups, d, USERS), filled up with zeros."""
    groups = np.zeros(((end - start + USERS - 1) // USERS, H.shape[1], USERS), np.float32)
    for user in range(start, end):
        groups[(user - start) // USERS, :, (user - start) % USERS] = H[user]
    return groups


@inlined
def _count_below(strip: Any, row: int, n: int, thresholds: Any, begin: int, end: int, below: Any) -> None:
    """Add to below[begin:end] how many of the first n scores of a row lie strictly under each threshold."""
    four = begin + ((end - begin) & ~3)
    for at in range(begin, four, 4):
        a, b, c, d = thresholds[at], thresholds[at + 1], thresholds[at + 2], thresholds[at + 3]
        # One load serves four comparisons. The casts keep the counters at 32 bits, a whole vector of them per compare.
        in_a, in_b, in_c, in_d = np.int32(0), np.int32(0), np.int32(0), np.int32(0)
        for j in range(n):
            score = strip[row, j]
            in_a = np.int32(in_a + np.int32(score < a))
            in_b = np.int32(in_b + np.int32(score < b))
            in_c = np.int32(in_c + np.int32(score < c))
            in_d = np.int32(in_d + np.int32(score < d))
        below[at] += in_a
        below[at + 1] += in_b
        below[at + 2] += in_c
        below[at + 3] += in_d
    for at in range(four, end):
        a, in_a = thresholds[at], np.int32(0)
        for j in range(n):
            in_a = np.int32(in_a + np.int32(strip[row, j] < a))
        below[at] += in_a


@inlined
def reached(strip: Any, row: int, begin: int, end: int, least: float) -> bool:
    """Say whether any score of a part of a row is not below `least`; a NaN is not."""
    reached = np.int32(0)
    for j in range(np.uint64(begin), np.uint64(end)):  # unsigned, or Numba looks for negative indices at every step
        reached = np.int32(reached | np.int32(not (strip[row, j] < least)))
    return reached != 0


@inlined
def take_row(strip: Any, row: int, first_item: int, n: int, order: Any, tie_rank: Any, allowed: Any, hidden: Any, top_scores: Any, top_ties: Any) -> bool:
    """Take what belongs into the user's top-k heap; return whether all scores are numbers."""
    fine = True
    for begin in range(0, n, GROUP):
        least = top_scores[0]
        if not reached(strip, row, begin, begin + GROUP, least):
            continue
        for j in range(begin, min(begin + GROUP, n)):
            score = strip[row, j]
            if score < least:
                continue
            if score != score:
                fine = False
            elif offer(score, order[first_item + j], tie_rank, allowed, hidden, top_scores, top_ties):
                least = top_scores[0]
    return fine


@inlined
def offer(score: float, item: int, tie_rank: Any, allowed: Any, hidden: Any, top_scores: Any, top_ties: Any) -> bool:
    """Take one item into the user's top-k heap if it belongs there, and say whether it did."""
    if not worse(top_scores[0], top_ties[0], score, tie_rank[item]) or (len(allowed) != 0 and not allowed[item]) or _contains(hidden, item):
        return False
    replace_worst(top_scores, top_ties, len(top_scores), score, tie_rank[item])
    return True


@inlined
def _contains(ordered: Any, value: int) -> Any:
    """Say whether an ascending list has a value; np.searchsorted would take seconds to compile."""
    low, high = 0, len(ordered)
    while low < high:
        middle = (low + high) >> 1
        if ordered[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low < len(ordered) and ordered[low] == value


@inlined
def worse(score: float, tie: int, other_score: float, other_tie: int) -> bool:
    """Say whether an entry stands behind another: a lower score, or the same score and a higher tie rank."""
    return score < other_score or (score == other_score and tie > other_tie)


@inlined
def replace_worst(scores: Any, ties: Any, n: int, score: float, tie: int) -> None:
    """Put an entry in place of the root of a heap of n whose root is the worst."""
    at = 0
    while True:
        child = 2 * at + 1
        if child >= n:
            break
        if child + 1 < n and worse(scores[child + 1], ties[child + 1], scores[child], ties[child]):
            child += 1
        if not worse(scores[child], ties[child], score, tie):
            break
        scores[at], ties[at] = scores[child], ties[child]
        at = child
    scores[at], ties[at] = score, tie


@inlined
def sort_heap(scores: Any, ties: Any) -> None:
    """Turn the heap into a list, best first."""
    for last in range(len(scores) - 1, 0, -1):
        score, tie = scores[last], ties[last]
        scores[last], ties[last] = scores[0], ties[0]
        replace_worst(scores, ties, last, score, tie)


@kernel
def without_known(H: Any, X: Any, test_scores: Any, test_offsets: Any, known: Any, known_offsets: Any, start: int, end: int, below: Any) -> None:
    """Take each user's known items, which are no negatives, out of `below`; each occurs once."""
    for user in range(start, end):
        for place in range(known_offsets[user], known_offsets[user + 1]):
            score = _dot(H[user], X[known[place]])
            for at in range(test_offsets[user], test_offsets[user + 1]):
                below[at] -= score < test_scores[at]
