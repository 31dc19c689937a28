"""Eight bytes at a time, for compiled code that reads text."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

ONES, HIGH = np.uint64(0x7F7F7F7F7F7F7F7F), np.uint64(0x8080808080808080)


@intrinsic
def word_at(typing, array, place):
    """Return the eight bytes array[place : place + 8] as one number, the first byte lowest; all eight must be there."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        address = builder.bitcast(builder.gep(data, [arguments[1]]), ir.IntType(64).as_pointer())
        return builder.load(address, align=1)

    return types.uint64(array, types.intp), emit


@intrinsic
def fetch_soon(typing, array, place):
    """Ask for array[place], a number or a short row of them, to be brought near, without waiting for it."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        held = context.make_array(signature.args[0])(context, builder, arguments[0])
        stride = cgutils.unpack_tuple(builder, held.strides)[0]
        bytes_ = builder.bitcast(held.data, cgutils.voidptr_t)
        address = builder.gep(bytes_, [builder.mul(arguments[1], stride)])
        number = ir.IntType(32)
        prefetch = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, number, number, number]), "llvm.prefetch.p0"
        )
        builder.call(prefetch, [address, number(0), number(3), number(1)])
        return context.get_dummy_value()

    return types.void(array, types.intp), emit


@intrinsic
def lowest_bit(typing, word):
    """Return the place of the lowest bit that is set; there must be one."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.IntType(1)(1))

    return types.uint64(types.uint64), emit


@njit(nogil=True, cache=True)
def bytes_equal(word: Any, pattern: Any) -> Any:
    """Mark, by its highest bit, each byte of a word that equals the pattern's."""
    difference = word ^ pattern
    return ~(((difference & ONES) + ONES) | difference | ONES)


@njit(nogil=True, cache=True)
def repeated(byte: int) -> Any:
    """Return a word of eight equal bytes."""
    return np.uint64(byte) * np.uint64(0x0101010101010101)


@njit(nogil=True, cache=True)
def part_at(text: Any, place: int, end: int) -> Any:
    """Return the bytes text[place:end], eight at most, as one number; what is missing is zero."""
    count = end - place
    if count >= 8:
        return word_at(text, place)
    if place + 8 <= len(text):
        return word_at(text, place) & ((np.uint64(1) << np.uint64(8 * count)) - np.uint64(1))
    word = np.uint64(0)
    for k in range(count):
        word |= np.uint64(text[place + k]) << np.uint64(8 * k)
    return word
