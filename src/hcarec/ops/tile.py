"""A register-blocked product of small matrices.

Compilers turn plain loops over 20 x 20 matrices into code that keeps storing and reloading its sums. These products hold
a block of the result in vector registers instead. Matrices are given by pointers; strides count elements.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic, register_jitable

from hcarec.ops.simd import FLAGS, LANES, spread_lane, vector_at


def _emit(rows: int, vectors: int, chains: int, context: Any, builder: Any, sig: Any, args: Any) -> Any:
    """Emit C[:rows, :8 vectors] (+)= A[:rows, :K] B[:K, :8 vectors], the sums held in registers throughout.

    With several chains the terms k, k + 1, .. are summed apart, which hides the latency of an addition; K must then
    be a multiple of their number.
    """
    C, c, ldc, A, a, row_a, col_a, B, b, ldb, K, add = args
    width = sig.args[0].dtype.bitwidth // 8
    zero = ir.Constant(ir.VectorType(C.type.pointee, LANES), None)
    block = [(j, i, v) for j in range(chains) for i in range(rows) for v in range(vectors)]

    def number(value: int) -> Any:
        return ir.Constant(K.type, value)

    def at(base: Any, offset: Any) -> Any:
        return builder.gep(base, [offset])

    def plus(x: Any, y: Any) -> Any:
        return builder.fadd(x, y, flags=FLAGS)

    C, A, B = at(C, c), at(A, a), at(B, b)
    out = {(i, v): vector_at(builder, at(C, builder.mul(ldc, number(i))), number(v * LANES)) for j, i, v in block if j == 0}
    first = dict.fromkeys(block, zero)
    for (i, v), place in out.items():
        first[0, i, v] = builder.select(add, builder.load(place, align=width), zero)

    entry, loop, done = builder.block, builder.append_basic_block("k"), builder.append_basic_block("done")
    builder.cbranch(builder.icmp_signed(">", K, number(0)), loop, done)
    builder.position_at_end(loop)
    k = builder.phi(K.type)
    sums = {key: builder.phi(zero.type) for key in block}
    total = {}
    for j in range(chains):
        term = builder.add(k, number(j))
        row_of_B, column_of_A = at(B, builder.mul(term, ldb)), at(A, builder.mul(term, col_a))
        loaded = [builder.load(vector_at(builder, row_of_B, number(v * LANES)), align=width) for v in range(vectors)]
        for i in range(rows):
            factor = spread_lane(builder, builder.load(at(column_of_A, builder.mul(row_a, number(i)))))
            for v in range(vectors):
                total[j, i, v] = plus(builder.fmul(factor, loaded[v], flags=FLAGS), sums[j, i, v])
    following = builder.add(k, number(chains))
    builder.cbranch(builder.icmp_signed("<", following, K), loop, done)

    k.add_incoming(number(0), entry)
    k.add_incoming(following, loop)
    builder.position_at_end(done)
    results = {key: builder.phi(zero.type) for key in block}
    for key in block:
        for node in (sums[key], results[key]):
            node.add_incoming(first[key], entry)
            node.add_incoming(total[key], loop)
    for (i, v), place in out.items():
        value = results[0, i, v]
        for j in range(1, chains):
            value = plus(value, results[j, i, v])
        builder.store(value, place, align=width)
    return context.get_dummy_value()


def _tile(rows: int, vectors: int, chains: int = 1) -> Any:
    """Make a compiled block product of a fixed size."""

    def tile(typing, C, c, ldc, A, a, row_a, col_a, B, b, ldb, K, add):
        size = types.intp
        sig = types.void(C, size, size, A, size, size, size, B, size, size, size, types.boolean)
        return sig, lambda *parts: _emit(rows, vectors, chains, *parts)

    return intrinsic(tile)


# 12 sums, 3 vectors of B and one factor fill the 16 vector registers of a common processor.
_tile_4x3, _tile_4x2 = _tile(4, 3), _tile(4, 2)
_tile_1x3, _tile_1x2, _tile_1x1 = _tile(1, 3), _tile(1, 2), _tile(1, 1)
_pair_1x3, _pair_1x2, _pair_1x1 = _tile(1, 3, 2), _tile(1, 2, 2), _tile(1, 1, 2)


@register_jitable(error_model="numpy")
def _width(left):
    """Return how many of the columns left to take at once."""
    return 24 if left >= 24 and left != 32 else 16 if left >= 16 else 8


@register_jitable(error_model="numpy")
def matmul(C, c, ldc, A, a, row_a, col_a, B, b, ldb, M, N, K, add):
    """Compute C[:M, :N] = A[:M, :K] B[:K, :N], or add it to C; N is a multiple of 8.

    Pointers, each with the offset of the first element; `ldc`, `ldb` row strides, `row_a`, `col_a` strides of A.
    """
    n = 0
    while n < N:
        width, m = _width(N - n), 0
        if width == 24:
            while m + 4 <= M:
                _tile_4x3(C, c + m * ldc + n, ldc, A, a + m * row_a, row_a, col_a, B, b + n, ldb, K, add)
                m += 4
        elif width == 16:
            while m + 4 <= M:
                _tile_4x2(C, c + m * ldc + n, ldc, A, a + m * row_a, row_a, col_a, B, b + n, ldb, K, add)
                m += 4
        while m < M:
            row(C, c + m * ldc + n, A, a + m * row_a, col_a, B, b + n, ldb, width, K, add)
            m += 1
        n += width


@register_jitable(error_model="numpy")
def row(C, c, A, a, col_a, B, b, ldb, N, K, add):
    """Compute one row, C[:N] = A[:K] B[:K, :N], or add it to C; N is a multiple of 8."""
    n = 0
    while n < N:
        width = _width(N - n)
        if width == 24:
            _tile_1x3(C, c + n, 0, A, a, 0, col_a, B, b + n, ldb, K, add)
        elif width == 16:
            _tile_1x2(C, c + n, 0, A, a, 0, col_a, B, b + n, ldb, K, add)
        else:
            _tile_1x1(C, c + n, 0, A, a, 0, col_a, B, b + n, ldb, K, add)
        n += width


@register_jitable(error_model="numpy")
def even_row(C, c, A, a, B, b, ldb, N, K, add):
    """Compute what `row` does for contiguous A and even K, with two sums apart: what a recurrence waits for."""
    n = 0
    while n < N:
        width = _width(N - n)
        if width == 24:
            _pair_1x3(C, c + n, 0, A, a, 0, 1, B, b + n, ldb, K, add)
        elif width == 16:
            _pair_1x2(C, c + n, 0, A, a, 0, 1, B, b + n, ldb, K, add)
        else:
            _pair_1x1(C, c + n, 0, A, a, 0, 1, B, b + n, ldb, K, add)
        n += width
