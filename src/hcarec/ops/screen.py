"""Rank for top-k alone: rule out most items by small whole numbers, and compute the scores of the few that are left.

With codes q of 7 and 8 bits, h = s p + e and x = t q + f, so that h x = s t p q + s p f + e x: a score lies no further
from s t p q than |s p| |f| + |e| |x|, and what float32 rounds. An item whose s t p q lies further than that below the
worst of a user's top-k so far cannot enter it. All that may enter is scored as ever, so the answer has the same bits.

The items lie in descending order of |x|, so that a strip has vectors of one size, coded alike, and the top-k is good
early; from some strip on even |h| |x| may be too small, which rules out the strip without a look at it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hcarec.ops.compiled import SOURCES
from hcarec.ops.score import LANES, STRIP, USERS, fma, inlined, kernel, offer, reached, score_strip, sort_heap, take_row, user_groups
from hcarec.ops.screen_tile import WIDTH, count_bits, lowest_bit, screen_tile

LARGEST_D = 256  # beyond, sums of 16 bits would leave too few bits for a user's code
ITEM_LEVELS, USER_LEVELS = 63, 127  # a pair of products, (63 + 64) 127 at most each, fits into 16 bits
_CENTRE = 64  # makes an item's code positive
_GREATEST_SUM = 32_000
_NONE, _ANY = 32_767, -32_768  # limits that no sum exceeds, or every one
_FEW = 96  # pairs of a group and a strip: scoring them one by one costs less than scoring all
_SAFETY = 1.000001  # covers that the bounds are computed in float64 themselves
_ROUNDING, _TINY = 2.0**-23, 2.0**-148  # more than a float32 operation may be off: as a share, and below the normal range


def _encoder(sources: int) -> Any:
    def encode(X):
        """Return the codes of X (n, d), items in descending order of |x|, and what the bounds need.

        Codes (n_panels, pairs, 2 WIDTH) uint8, see `screen_tile`; (n_strips, 3) float64, a strip's step t, greatest |f| and
        greatest |x|; and the greatest |q| of all.
        """
        _ = sources
        n, d = X.shape
        n_strips = (n + STRIP - 1) // STRIP
        codes = np.empty((n_strips * STRIP // WIDTH, (d + 1) // 2, 2 * WIDTH), np.uint8)
        for place in range(codes.size):
            codes.flat[place] = _CENTRE
        bounds = np.empty((n_strips, 3))
        reach = 0.0
        for strip in range(n_strips):
            first, last = strip * STRIP, min(strip * STRIP + STRIP, n)
            greatest = 0.0
            for item in range(first, last):
                for l in range(d):
                    greatest = max(greatest, abs(np.float64(X[item, l])))
            step = greatest / ITEM_LEVELS if greatest > 0.0 else 1.0
            missed, size = 0.0, 0.0
            for item in range(first, last):
                f, x, q = 0.0, 0.0, 0.0
                for l in range(d):
                    value = np.float64(X[item, l])
                    code = np.rint(value / step)
                    codes[item // WIDTH, l // 2, 2 * (item % WIDTH) + l % 2] = np.uint8(code + _CENTRE)
                    f, x, q = f + (value - step * code) ** 2, x + value**2, q + code**2
                missed, size, reach = max(missed, f), max(size, x), max(reach, q)
            bounds[strip, 0], bounds[strip, 1], bounds[strip, 2] = step, np.sqrt(missed), np.sqrt(size)
        return codes, bounds, np.sqrt(reach)

    return encode


@inlined
def _encode_users(H: Any, start: int, end: int, reach: float) -> Any:
    """Return the codes of the rows start..end of H as `screen_tile` wants them, and (users, 4): step s, |s p|, |e|, |h|."""
    d = H.shape[1]
    n_groups = (end - start + USERS - 1) // USERS
    codes = np.zeros((n_groups, (d + 1) // 2, USERS), np.int32)
    starts = np.zeros((n_groups, USERS), np.int16)
    bounds = np.zeros((end - start, 4))
    for user in range(start, end):
        group, place = (user - start) // USERS, (user - start) % USERS
        size, greatest = 0.0, 0.0
        for l in range(d):
            value = np.float64(H[user, l])
            size, greatest = size + value**2, max(greatest, abs(value))
        size = np.sqrt(size)
        # Codes of |p| <= |h| / s + sqrt(d) / 2, so that no sum p q leaves 16 bits.
        step = max(greatest / USER_LEVELS, size / (_GREATEST_SUM / max(reach, 1.0) - 0.5 * np.sqrt(d)))
        if step == 0.0:
            step = 1.0
        p, e, total = 0.0, 0.0, 0
        for l in range(d):
            value = np.float64(H[user, l])
            code = np.int64(np.rint(value / step))
            p, e, total = p + np.float64(code) ** 2, e + (value - step * code) ** 2, total + int(code)
            codes[group, l // 2, place] |= np.int32((code & 255) * 0x00010001 << (l % 2 * 8))
        starts[group, place] = np.int16(-_CENTRE * total)
        row = user - start
        bounds[row, 0], bounds[row, 1], bounds[row, 2], bounds[row, 3] = step, step * np.sqrt(p), np.sqrt(e), size
    return codes, starts, bounds


@inlined
def _limit(users: Any, user: int, strips: Any, strip: int, d: int, least: float) -> int:
    """Return what p q must exceed for a score to reach `least`: _NONE where none can, _ANY where any may."""
    s, coded, e, h = users[user, 0], users[user, 1], users[user, 2], users[user, 3]
    t, f, x = strips[strip, 0], strips[strip, 1], strips[strip, 2]
    rounding = (d + 1) * (_ROUNDING * h * x + _TINY)
    if h * x * _SAFETY + rounding < least:
        return _NONE
    off = (coded * f + e * x + rounding) * _SAFETY
    return int(min(max(np.floor((least - off) / (s * t)) - 1.0, np.float64(_ANY)), np.float64(_NONE)))


@inlined
def _set_limits(limits: Any, group: int, bounds: Any, item_bounds: Any, strip: int, d: int, top_scores: Any, start: int, end: int) -> int:
    """Write the limits of a group of users for a strip to limits[group] and return the lowest."""
    lowest = _NONE
    for row in range(USERS):
        user = start + group * USERS + row
        limit = _limit(bounds, user - start, item_bounds, strip, d, top_scores[user, 0]) if user < end else _NONE
        limits[group, row] = limit
        lowest = min(lowest, limit)
    return lowest


@inlined
def _screen(codes: Any, starts: Any, limits: Any, group: int, item_codes: Any, first_item: int, masks: Any) -> int:
    """Fill `masks` for a group of users and a strip of items; return how many pairs are left."""
    for column in range(STRIP // WIDTH):
        screen_tile(codes, starts, limits, group, item_codes, first_item // WIDTH + column, masks, column)
    left = np.uint32(0)
    for row in range(USERS):
        for column in range(STRIP // WIDTH):
            left += count_bits(masks[row, column])
    return int(left)


@inlined
def _any(masks: Any, row: int) -> bool:
    found = np.uint32(0)
    for column in range(STRIP // WIDTH):
        found |= masks[row, column]
    return found != 0


@inlined
def _take_left(
    masks: Any, row: int, h: Any, panels: Any, first_item: int, order: Any, tie_rank: Any, allowed: Any, hidden: Any, top_scores: Any, top_ties: Any
) -> None:
    """Take what belongs of the items that are left into the user's top-k heap."""
    for column in range(STRIP // WIDTH):
        mask = masks[row, column]
        while mask != 0:
            place = first_item + column * WIDTH + lowest_bit(mask)
            mask &= np.uint32(mask - np.uint32(1))
            if place < len(order):
                offer(_exact(h, panels, place), order[place], tie_rank, allowed, hidden, top_scores, top_ties)


@inlined
def _exact(h: Any, panels: Any, place: int) -> Any:
    """Return the score of a user (d,) and the item at a place of the panels, bit for bit as `score_strip` gives it."""
    total = np.float32(0.0)
    for l in range(h.shape[0]):
        total = fma(h[l], panels[place // LANES, l, place % LANES], total)
    return total


def _ranker(sources: int) -> Any:
    def rank_screened(
        H, panels, order, item_codes, item_bounds, reach, tie_rank, allowed, hidden, hidden_offsets, start, end, top_scores, top_ties,
    ):  # fmt: skip
        """Fill the top-k of the users start..end, as `score.rank_users` does; no score may be other than finite.

        `panels` and `order` hold the items in descending order of |x|, the next three are what `encode` made of them.
        """
        _ = sources
        groups = user_groups(H, start, end)
        codes, starts, bounds = _encode_users(H, start, end, reach)
        limits, masks = np.empty((len(groups), USERS), np.int16), np.empty((USERS, STRIP // WIDTH), np.uint32)
        strip = np.empty((USERS, STRIP), np.float32)
        next_try, pause = np.zeros(len(groups), np.int64), np.ones(len(groups), np.int64)
        for number in range(len(item_bounds)):
            first_item = number * STRIP
            in_strip = min(STRIP, len(order) - first_item)
            for group in range(len(groups)):
                left = USERS * STRIP
                if number >= next_try[group]:
                    lowest = _set_limits(limits, group, bounds, item_bounds, number, H.shape[1], top_scores, start, end)
                    if lowest == _NONE:
                        continue
                    if lowest > _ANY:
                        left = _screen(codes, starts, limits, group, item_codes, first_item, masks)
                        # Where it does not pay it is tried again later and later, so that it costs next to nothing.
                        next_try[group] = number + 1 + (pause[group] if left > _FEW else 0)
                        pause[group] = 2 * pause[group] if left > _FEW else 1
                if left == 0:
                    continue
                if left > _FEW:
                    score_strip(groups, group, panels, first_item, strip)
                for row in range(min(USERS, end - start - group * USERS)):
                    user = start + group * USERS + row
                    # Looked at first, because what follows costs more than most strips are worth.
                    if not (reached(strip, row, 0, STRIP, top_scores[user, 0]) if left > _FEW else _any(masks, row)):
                        continue
                    not_shown = hidden[hidden_offsets[user] : hidden_offsets[user + 1]]
                    rest = order, tie_rank, allowed, not_shown, top_scores[user], top_ties[user]
                    if left > _FEW:
                        take_row(strip, row, first_item, in_strip, *rest)
                    else:
                        _take_left(masks, row, H[user], panels, first_item, *rest)
        for user in range(start, end):
            sort_heap(top_scores[user], top_ties[user])

    return rank_screened


encode: Any = kernel(_encoder(SOURCES))
rank_screened: Any = kernel(_ranker(SOURCES))
