"""The maximum and the exponentials of a row of logits."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from hcarec.ops.loss.vectors import (
    FLOATS,
    INDEX,
    ITEMS,
    VECTOR,
    constant,
    fma,
    fold,
    load,
    spread,
    store,
)

# exp(x) = 2^n exp(r) with n = round(x / ln 2) and |r| <= ln 2 / 2; ln 2 in two parts, so that n
# times the first one is exact. exp(r) = 1 + r + r^2 q(r), a minimax fit: 0.7 ulp in all.
_PER_LN2 = 1.4426950408889634
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.1219444005469057e-4
_Q = (
    0.4999999343206682,
    0.16666520398167758,
    0.04166839079296132,
    0.008368745212758981,
    0.001381454007892241,
)
_ROUND = 12582912.0  # 1.5 * 2^23: a float32 this large has no fraction, its low bits are n
LEAST = -64.0  # exp of less counts for nothing beside exp(0) = 1; zero keeps subnormals away


def _emit_exp(builder: Any, x: Any) -> Any:
    """Emit exp of a vector of numbers <= 0; a NaN stays a NaN."""
    integers = ir.VectorType(ir.IntType(32), VECTOR)
    shifted = fma(builder, x, constant(_PER_LN2), constant(_ROUND))
    n = builder.fsub(shifted, constant(_ROUND))
    r = fma(builder, n, constant(-_LN2_HIGH), x)
    r = fma(builder, n, constant(-_LN2_LOW), r)
    value = constant(_Q[-1])
    for coefficient in (*_Q[-2::-1], 1.0, 1.0):
        value = fma(builder, value, r, constant(coefficient))
    power = builder.shl(builder.bitcast(shifted, integers), ir.Constant(integers, [23] * VECTOR))
    value = builder.bitcast(builder.add(builder.bitcast(value, integers), power), FLOATS)
    return builder.select(builder.fcmp_ordered("<", x, constant(LEAST)), constant(0), value)


@intrinsic
def row_max(typing: Any, base: Any, offset: Any) -> Any:
    """Return the greatest of base[offset : offset + ITEMS]."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        def larger(x: Any, y: Any) -> Any:
            return builder.select(builder.fcmp_ordered(">", x, y), x, y)

        row = builder.gep(arguments[0], [arguments[1]])
        values = [load(builder, row, INDEX(at)) for at in range(0, ITEMS, VECTOR)]
        while len(values) > 1:
            pairs = [larger(*values[at : at + 2]) for at in range(0, len(values) - 1, 2)]
            values = pairs + values[2 * len(pairs) :]
        return fold(builder, values[0], larger)

    return types.float32(base, types.intp), generate


@intrinsic
def exp_row(typing: Any, base: Any, offset: Any, shift: Any) -> Any:
    """Turn s into exp(s - shift) in base[offset : offset + ITEMS] and return the sum.

    No s may exceed `shift`.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        row = builder.gep(arguments[0], [arguments[1]])
        shift, sums = spread(builder, arguments[2]), constant(0)
        for at in range(0, ITEMS, VECTOR):
            x = builder.fsub(load(builder, row, INDEX(at)), shift)
            value = _emit_exp(builder, x)
            store(builder, value, row, INDEX(at))
            sums = builder.fadd(sums, value)
        return fold(builder, sums, builder.fadd)

    return types.float32(base, types.intp, types.float32), generate
