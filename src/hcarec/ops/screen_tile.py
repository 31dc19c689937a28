"""The product of users and items in small whole numbers, compared with a limit: one bit per pair.

A code of an item is a byte without sign, a code of a user one with a sign. Two products at a time are added to sums of 16
bits, for which processors have an instruction; the sums may wrap on the way, as long as the last one fits.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from hcarec.ops.score import USERS

WIDTH = 32  # items side by side: 6 x 2 vectors of sums, 2 of items, 1 of a user and 1 of products fill 16 registers

_HALVES = 2
_SUMS = WIDTH // _HALVES
_INDEX, _BYTE, _SHORT, _WORD = ir.IntType(64), ir.IntType(8), ir.IntType(16), ir.IntType(32)
_BYTES, _SHORTS = ir.VectorType(_BYTE, WIDTH), ir.VectorType(_SHORT, _SUMS)

_intrinsic: Any = intrinsic
_declare: Any = cgutils.get_or_insert_function


@_intrinsic
def screen_tile(typing_context: Any, users: Any, starts: Any, limits: Any, group: Any, items: Any, panel: Any, masks: Any, column: Any) -> Any:
    """Write to masks[user, column] a bit for each item of items[panel] whose sum lies above limits[group, user].

    `users` (n, pairs, USERS) int32, two codes twice over; `starts`, `limits` (n, USERS) int16, where the sums start and
    what they must exceed; `items` (n, pairs, 2 WIDTH) uint8, two codes of each item side by side; `masks` (USERS, n) uint32.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        h, first, limit, x, out = (context.make_array(signature.args[at])(context, builder, arguments[at]) for at in (0, 1, 2, 4, 6))
        pairs, columns = builder.extract_value(x.shape, 1), builder.extract_value(out.shape, 1)
        group_row = builder.mul(arguments[3], _INDEX(USERS))
        h_start = builder.gep(h.data, [builder.mul(group_row, pairs)])
        x_start = builder.gep(x.data, [builder.mul(builder.mul(arguments[5], pairs), _INDEX(2 * WIDTH))])
        begin = [_spread(builder, builder.load(builder.gep(first.data, [builder.add(group_row, _INDEX(user))])), _SUMS) for user in range(USERS)]
        fast = "+avx2" in context.codegen().magic_tuple()[2]
        sums = _emit_sums(builder, h_start, x_start, pairs, begin, _pairs_by_avx2 if fast else _pairs_by_shifts)
        for user in range(USERS):
            least = _spread(builder, builder.load(builder.gep(limit.data, [builder.add(group_row, _INDEX(user))])), _SUMS)
            low, high = (builder.icmp_signed(">", value, least) for value in sums[user])
            lanes = ir.Constant(ir.VectorType(_WORD, WIDTH), list(range(WIDTH)))
            bits = builder.bitcast(builder.shuffle_vector(low, high, lanes), _WORD)
            builder.store(bits, builder.gep(out.data, [builder.add(builder.mul(_INDEX(user), columns), arguments[7])]))
        return context.get_dummy_value()

    size = types.intp
    return types.none(users, starts, limits, size, items, size, masks, size), generate


def _emit_sums(builder: Any, h: Any, x: Any, pairs: Any, begin: list[Any], multiply: Any) -> list[list[Any]]:
    """Emit the loop over pairs of codes and return its sums, USERS x _HALVES."""
    before, loop, after = builder.block, builder.append_basic_block("pair"), builder.append_basic_block("screened")
    builder.branch(loop)
    builder.position_at_end(loop)
    step = builder.phi(_INDEX)
    step.add_incoming(_INDEX(0), before)
    sums = [[builder.phi(_SHORTS) for _ in range(_HALVES)] for _ in range(USERS)]
    x_row = builder.gep(x, [builder.mul(step, _INDEX(2 * WIDTH))])
    h_row = builder.gep(h, [builder.mul(step, _INDEX(USERS))])
    items = [builder.load(builder.bitcast(builder.gep(x_row, [_INDEX(half * WIDTH)]), _BYTES.as_pointer()), align=1) for half in range(_HALVES)]
    results = []
    for user in range(USERS):
        value = builder.bitcast(_spread(builder, builder.load(builder.gep(h_row, [_INDEX(user)])), WIDTH // 4), _BYTES)
        results.append([builder.add(old, multiply(builder, half, value)) for half, old in zip(items, sums[user], strict=True)])
        for old, new in zip(sums[user], results[user], strict=True):
            old.add_incoming(begin[user], before)
            old.add_incoming(new, loop)
    following = builder.add(step, _INDEX(1))
    step.add_incoming(following, loop)
    builder.cbranch(builder.icmp_signed("<", following, pairs), loop, after)
    builder.position_at_end(after)
    return results


def _pairs_by_avx2(builder: Any, items: Any, user: Any) -> Any:
    function = _declare(builder.module, ir.FunctionType(_SHORTS, [_BYTES, _BYTES]), "llvm.x86.avx2.pmadd.ub.sw")
    return builder.call(function, [items, user])


def _pairs_by_shifts(builder: Any, items: Any, user: Any) -> Any:
    """Emit the same for any processor."""
    eight = ir.Constant(_SHORTS, [8] * _SUMS)
    x, h = builder.bitcast(items, _SHORTS), builder.bitcast(user, _SHORTS)
    even = builder.mul(builder.and_(x, ir.Constant(_SHORTS, [255] * _SUMS)), builder.ashr(builder.shl(h, eight), eight))
    return builder.add(even, builder.mul(builder.lshr(x, eight), builder.ashr(h, eight)))


def _spread(builder: Any, scalar: Any, lanes: int) -> Any:
    undefined = ir.Constant(ir.VectorType(scalar.type, lanes), ir.Undefined)
    first = builder.insert_element(undefined, scalar, _WORD(0))
    return builder.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(_WORD, lanes), [0] * lanes))


@_intrinsic
def lowest_bit(typing_context: Any, mask: Any) -> Any:
    """Return the place of the lowest bit that is set; one must be."""
    return types.uint32(types.uint32), lambda context, builder, signature, arguments: builder.cttz(arguments[0], ir.IntType(1)(1))


@_intrinsic
def count_bits(typing_context: Any, mask: Any) -> Any:
    """Return how many bits are set."""
    return types.uint32(types.uint32), lambda context, builder, signature, arguments: builder.ctpop(arguments[0])
