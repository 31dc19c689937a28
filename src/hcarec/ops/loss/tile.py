"""Tiles of the three products, their sums held in vector registers throughout."""

from __future__ import annotations

from typing import Any

from numba import types
from numba.extending import intrinsic

from hcarec.ops.loss.vectors import (
    INDEX,
    ITEMS,
    LANES,
    LINE,
    ROWS,
    VECTOR,
    constant,
    fma,
    load,
    prefetch,
    spread,
    store,
)


def _emit_sums(builder: Any, A: Any, B: Any, K: Any, vectors: int, row: int, step: int) -> Any:
    """Emit the loop over k and return the sums of A[r * row + k * step] B[k * LANES + column]."""
    before, loop = builder.block, builder.append_basic_block("k")
    after = builder.append_basic_block("summed")
    builder.branch(loop)
    builder.position_at_end(loop)
    k = builder.phi(INDEX)
    k.add_incoming(INDEX(0), before)
    sums = [[builder.phi(constant(0).type) for _ in range(vectors)] for _ in range(ROWS)]
    a = builder.gep(A, [builder.mul(k, INDEX(step))])
    b = builder.gep(B, [builder.mul(k, INDEX(LANES))])
    columns = [load(builder, b, INDEX(v * VECTOR)) for v in range(vectors)]
    results = []
    for r in range(ROWS):
        factor = spread(builder, builder.load(builder.gep(a, [INDEX(r * row)])))
        results.append([fma(builder, factor, columns[v], sums[r][v]) for v in range(vectors)])
        for old, new in zip(sums[r], results[r], strict=True):
            old.add_incoming(constant(0), before)
            old.add_incoming(new, loop)
    following = builder.add(k, INDEX(1))
    k.add_incoming(following, loop)
    builder.cbranch(builder.icmp_signed("<", following, K), loop, after)
    builder.position_at_end(after)
    return results


def _tile(vectors: int, row: int, step: int, add: bool) -> Any:
    """Make C[:ROWS, :columns] (+)= A[:ROWS, :K] B[:K, :columns], columns = vectors * VECTOR.

    A[r, k] lies at r * row + k * step, B is a panel with rows of LANES, C has rows of `ldc`;
    each is a pointer and an offset. K >= 1.
    """

    def tile(typing: Any, C: Any, c: Any, ldc: Any, A: Any, a: Any, B: Any, b: Any, K: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            C, c, ldc, A, a, B, b, K = arguments
            A, B = builder.gep(A, [a]), builder.gep(B, [b])
            outs = [
                builder.gep(C, [builder.add(c, builder.mul(ldc, INDEX(r)))]) for r in range(ROWS)
            ]
            for out in outs:  # they may come from far away while the sums are computed
                for line in range(0, vectors * VECTOR, LINE):
                    prefetch(builder, builder.gep(out, [INDEX(line)]))
            sums = _emit_sums(builder, A, B, K, vectors, row, step)
            for r, out in enumerate(outs):
                for v in range(vectors):
                    place, value = INDEX(v * VECTOR), sums[r][v]
                    if add:
                        value = builder.fadd(load(builder, out, place), value)
                    store(builder, value, out, place)
            return context.get_dummy_value()

        size = types.intp
        return types.void(C, size, size, A, size, B, size, size), generate

    return intrinsic(tile)


# Logits (positions, items) from positions in groups of ROWS and items in panels of LANES.
logits_tile = _tile(2, 1, ROWS, add=False)
# dH (positions, d) from logits, a row per position, and items in panels of LANES columns.
dH_tile, dH_narrow = (_tile(vectors, ITEMS, 1, add=True) for vectors in (2, 1))
# dZ (items, d) from logits, a column per item, and positions in panels of LANES columns.
dZ_tile, dZ_narrow = (_tile(vectors, 1, ITEMS, add=True) for vectors in (2, 1))
