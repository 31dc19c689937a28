"""The two kernels of the CPU engine, training and encoding. Each serves all sizes and levels."""

from __future__ import annotations

from functools import cache
from typing import Any

from numba import types

from hcarec.ops.compiled import array, compiled
from hcarec.ops.cpu_backward import descend, from_loss, preferences, squared, uninputs, unoverall, unrecur, untranspose
from hcarec.ops.cpu_forward import gather, inputs, level_h, overall, padded, record, recur
from hcarec.ops.layout import DA, DH, XQ, H, O, X
from hcarec.ops.negatives import draw, known_items
from hcarec.ops.simd import pointer


@cache
def trainer(dtype: str) -> Any:
    """Return the training kernel for float32 or float64."""
    own, number, whole = array(dtype), getattr(types, dtype), types.int64
    parameters = (array(dtype, 2), own, own, own)
    space = (own, own, own, own, array("int32"), array("uint64"))
    data = (array("int32", given=True), array("int64", given=True), array("int64", given=True), types.uint64)
    settings = (number, number, number, whole, whole, types.boolean)
    return compiled(_trainer, types.void(*parameters, *space, *data, *settings, array("float64"), array("int64")))


def _trainer(sources: int) -> Any:
    def train(
        table, dense, dense_back, dense_gradients, space, weights_x, weights_h, lines, drawn, seen,
        items, offsets, order, key, rate, lam, bound, w_x, w_h, learn, sums, counts,
    ):  # fmt: skip
        """Take one SGD step per user of `order`; with `learn` false only compute, from the negatives in `drawn`.

        sums: loss, penalty; counts: steps, users without a negative, position and step of a bad loss (see `Trained`).
        """
        _ = sources
        n_items, d = table.shape
        D, size = padded(d), len(dense)
        rows, P, B, G, S = pointer(table), pointer(dense), pointer(dense_back), pointer(dense_gradients), pointer(space)
        a_x, a_h, q, chosen = pointer(weights_x), pointer(weights_h), pointer(drawn), pointer(items)
        length = len(lines) // 3
        e, slope, losses = pointer(lines), pointer(lines[length:]), pointer(lines[2 * length :])
        Q, back = level_h(d, w_x)
        out, d_out = (O, DA) if w_h > 1 else (H, DH)
        untranspose(P, B, Q, back, w_x, w_h, d, D)
        for position in range(len(order)):
            user = order[position]
            begin, end = offsets[user], offsets[user + 1]
            T = end - begin - 1
            if T < 1:
                continue
            if not known_items(items, begin, end, n_items):
                counts[2] = position
                return
            if learn and not draw(items, begin, end, user, n_items, key, seen, drawn, T):
                counts[1] += 1
                continue
            gather(S, X, 1, rows, chosen, begin, T + 1, d, D)
            gather(S, XQ, 1, rows, q, 0, T, d, D)
            inputs(S, P, a_x, e, 1, T, w_x, d, D)
            recur(S, P, 1, T, d, D)
            if w_h > 1:
                overall(S, P, Q, a_h, e, 1, T, w_h, d, D)
            squares = preferences(S, slope, losses, T, D, out) + squared(P, size)
            loss = 0.0
            for t in range(1, T + 1):
                if not losses[t] <= bound:
                    counts[2], counts[3] = position, t
                    return
                loss += losses[t]
            sums[0] += loss
            sums[1] += 0.5 * lam * squares
            counts[0] += T
            from_loss(S, slope, T, D, out, d_out)
            if w_h > 1:
                unoverall(S, P, Q, G, B, back, a_h, e, T, w_h, d, D)
            unrecur(S, B, T, d, D)
            uninputs(S, P, G, B, a_x, e, T, w_x, d, D)
            if learn:
                descend(S, P, G, size, rows, chosen, begin, q, slope, T, d, D, out, rate, lam)
                untranspose(P, B, Q, back, w_x, w_h, d, D)

    return train


@cache
def encoder(dtype: str) -> Any:
    """Return the encoding kernel for float32 or float64."""
    own, whole = array(dtype), types.int64
    parameters = (array(dtype, 2, given=True), array(dtype, given=True))
    data = (array("int32", given=True), array("int64", given=True), whole, whole)
    state = (array(dtype, 2), array("int32", 2), array(dtype, 3))
    return compiled(_encoder, types.int64(*parameters, own, own, own, own, *data, array(dtype, 2), *state))


def _encoder(sources: int) -> Any:
    def encode(table, dense, space, weights_x, weights_h, lines, items, offsets, w_x, w_h, interest, h, last, hidden):
        """Add each user's events to its state (h, last, hidden) and write its interest; return -1, or a bad user."""
        _ = sources
        n_items, d = table.shape
        D = padded(d)
        LD = record(D)
        rows, P, S, chosen = pointer(table), pointer(dense), pointer(space), pointer(items)
        a_x, a_h, e = pointer(weights_x), pointer(weights_h), pointer(lines)
        Q, _ = level_h(d, w_x)
        out = O if w_h > 1 else H
        first = max(w_x, w_h)  # the row of the first event; the rows before it hold the state
        for user in range(len(offsets) - 1):
            begin = offsets[user]
            T = offsets[user + 1] - begin
            if T == 0:
                continue
            if not known_items(items, begin, begin + T, n_items):
                return user
            for k in range(d):
                S[(first - 1) * LD + H * D + k] = h[user, k]
                for i in range(w_x - 1):
                    S[(first - w_x + 1 + i) * LD + X * D + k] = table[last[user, i], k] if last[user, i] >= 0 else 0
                for i in range(w_h - 1):
                    S[(first - w_h + 1 + i) * LD + H * D + k] = hidden[user, i, k]
            gather(S, X, first, rows, chosen, begin, T, d, D)
            end = first + T - 1
            inputs(S, P, a_x, e, first, end, w_x, d, D)
            recur(S, P, first, end, d, D)
            if w_h > 1:
                overall(S, P, Q, a_h, e, end, end, w_h, d, D)
            for i in range(w_x - 1):
                event = T - w_x + 1 + i
                last[user, i] = items[begin + event] if event >= 0 else last[user, i + T]
            for k in range(d):
                interest[user, k] = S[end * LD + out * D + k]
                h[user, k] = S[end * LD + H * D + k]
                for i in range(w_h - 1):
                    hidden[user, i, k] = S[(end - w_h + 2 + i) * LD + H * D + k]
        return -1

    return encode
