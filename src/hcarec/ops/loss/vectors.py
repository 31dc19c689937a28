"""The width of this machine's vectors, and the block sizes that follow from it."""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba.core import cgutils, config

INDEX = ir.IntType(64)
FLOAT = ir.FloatType()


def _has_wide_vectors() -> bool:
    """Say whether Numba compiles for AVX-512; settings of Numba go before what the host has."""
    if config.CPU_FEATURES is not None:
        return "+avx512f" in config.CPU_FEATURES
    return config.CPU_NAME is None and bool(llvm.get_host_cpu_features().get("avx512f"))


WIDE = _has_wide_vectors()
VECTOR = 16 if WIDE else 8
"""Numbers in a vector."""
LANES = 2 * VECTOR
"""Columns of a tile."""
ROWS = 12 if WIDE else 6
"""Rows of a tile: its sums, two vectors and a factor fill the 32 registers of AVX-512, or 16."""
ITEMS = 96
"""Items of a chunk, whose logits lie side by side; a multiple of LANES and of ROWS."""
LINE = 16
"""Numbers in a line of the cache."""

FLOATS = ir.VectorType(FLOAT, VECTOR)


def vector_at(builder: Any, base: Any, offset: Any) -> Any:
    """Return the address of the vector at base[offset:]."""
    return builder.bitcast(builder.gep(base, [offset]), FLOATS.as_pointer())


def load(builder: Any, base: Any, offset: Any) -> Any:
    """Return the vector at base[offset:]."""
    return builder.load(vector_at(builder, base, offset), align=4)


def store(builder: Any, value: Any, base: Any, offset: Any) -> None:
    """Write a vector to base[offset:]."""
    builder.store(value, vector_at(builder, base, offset), align=4)


def constant(number: float) -> Any:
    """Return a vector with the same constant in every lane."""
    return ir.Constant(FLOATS, [number] * VECTOR)


def spread(builder: Any, scalar: Any) -> Any:
    """Return a vector with the same number in every lane."""
    undefined = ir.Constant(FLOATS, ir.Undefined)
    first = builder.insert_element(undefined, scalar, ir.IntType(32)(0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), VECTOR), [0] * VECTOR)
    return builder.shuffle_vector(first, undefined, zeros)


def fma(builder: Any, a: Any, b: Any, c: Any) -> Any:
    """Return a * b + c of three vectors, rounded once."""
    kind = ir.FunctionType(FLOATS, [FLOATS] * 3)
    function = cgutils.get_or_insert_function(builder.module, kind, f"llvm.fma.v{VECTOR}f32")
    return builder.call(function, [a, b, c])


def prefetch(builder: Any, address: Any) -> None:
    """Ask for the cache line of an address that is to be written to."""
    kind = ir.FunctionType(ir.VoidType(), [ir.IntType(8).as_pointer(), *[ir.IntType(32)] * 3])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    flags = [ir.IntType(32)(flag) for flag in (1, 3, 1)]  # to write, into L1, data
    builder.call(function, [builder.bitcast(address, ir.IntType(8).as_pointer()), *flags])


def fold(builder: Any, value: Any, combine: Any) -> Any:
    """Return the lanes of a vector combined into one number, always in the same order."""
    lanes = VECTOR
    while lanes > 1:
        lanes //= 2
        undefined = ir.Constant(value.type, ir.Undefined)
        low, high = (
            ir.Constant(ir.VectorType(ir.IntType(32), lanes), list(range(first, first + lanes)))
            for first in (0, lanes)
        )
        value = combine(
            builder.shuffle_vector(value, undefined, low),
            builder.shuffle_vector(value, undefined, high),
        )
    return builder.extract_element(value, ir.IntType(32)(0))
