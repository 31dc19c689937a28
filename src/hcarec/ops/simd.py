"""Vectors of eight numbers and bare pointers for compiled kernels.

Plain loops over 20 numbers compile into checks, copies and left-overs that cost more than the arithmetic. Here a kernel
says what it means: `z = load(S, i)`, `store(S, i, one - z * z)`. LLVM turns that into the machine's own vectors, whatever
their width. Works on float32 and float64.
"""

from __future__ import annotations

import operator
from typing import Any, ClassVar

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.typing.templates import ConcreteTemplate, infer_global, signature
from numba.extending import intrinsic, lower_builtin, models, register_jitable, register_model

LANES = 8
FLAGS = ("contract", "nsz", "reassoc")  # never nnan or ninf: a NaN must be found


class Vector(types.Type):
    """Numba's type of eight numbers."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype
        super().__init__(f"Vector({dtype})")


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, ir.VectorType(manager.lookup(kind.dtype).get_value_type(), LANES))


def _operation(symbol: Any, emit: str) -> None:
    """Give vectors an operator."""
    kinds = [Vector(types.float32), Vector(types.float64)]

    @infer_global(symbol)
    class _Typing(ConcreteTemplate):
        cases: ClassVar = [signature(kind, kind, kind) for kind in kinds]

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return getattr(builder, emit)(*args, flags=FLAGS)

    lower_builtin(symbol, Vector, Vector)(lower)


for _symbol, _emit in ((operator.add, "fadd"), (operator.sub, "fsub"), (operator.mul, "fmul"), (operator.truediv, "fdiv")):
    _operation(_symbol, _emit)


def vector_at(builder: Any, base: Any, offset: Any) -> Any:
    """Return the address of the eight numbers at an offset."""
    return builder.bitcast(builder.gep(base, [offset]), ir.VectorType(base.type.pointee, LANES).as_pointer())


def spread_lane(builder: Any, scalar: Any) -> Any:
    """Return a vector with the same number in every lane."""
    undefined = ir.Constant(ir.VectorType(scalar.type, LANES), ir.Undefined)
    lane = builder.insert_element(undefined, scalar, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(lane, undefined, ir.Constant(ir.VectorType(ir.IntType(32), LANES), None))


@intrinsic
def pointer(typing, array):
    """Return the address of an array's first element; indexing it checks nothing and counts no references."""

    def emit(context, builder, sig, args):
        return context.make_array(sig.args[0])(context, builder, args[0]).data

    return types.CPointer(array.dtype)(array), emit


@intrinsic
def load(typing, base, offset):
    """Return the eight numbers at base[offset:]."""

    def emit(context, builder, sig, args):
        return builder.load(vector_at(builder, args[0], args[1]), align=sig.args[0].dtype.bitwidth // 8)

    return Vector(base.dtype)(base, types.intp), emit


@intrinsic
def store(typing, base, offset, value):
    """Write eight numbers to base[offset:]."""

    def emit(context, builder, sig, args):
        builder.store(args[2], vector_at(builder, args[0], args[1]), align=sig.args[0].dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(base, types.intp, value), emit


@intrinsic
def spread(typing, number):
    """Return a vector with the same number in every lane."""
    return Vector(number)(number), lambda context, builder, sig, args: spread_lane(builder, args[0])


@intrinsic
def scalar(typing, base, number):
    """Return a constant of the kind that a pointer points to: a bare literal would turn float32 into float64."""

    def emit(context, builder, sig, args):
        return context.cast(builder, args[1], sig.args[1], sig.args[0].dtype)

    return base.dtype(base, number), emit


@register_jitable
def constant(base, number):
    """Return a vector of one constant, of the kind that a pointer points to."""
    return spread(scalar(base, number))


@intrinsic
def total(typing, value):
    """Return the sum of the eight lanes, always in the same order."""

    def emit(context, builder, sig, args):
        part, lanes = args[0], LANES
        while lanes > 1:
            lanes //= 2
            low, high = (ir.Constant(ir.VectorType(ir.IntType(32), lanes), list(range(first, first + lanes))) for first in (0, lanes))
            undefined = ir.Constant(part.type, ir.Undefined)
            part = builder.fadd(builder.shuffle_vector(part, undefined, low), builder.shuffle_vector(part, undefined, high))
        return builder.extract_element(part, ir.Constant(ir.IntType(32), 0))

    return value.dtype(value), emit


@intrinsic
def clip(typing, value, limit):
    """Return the lanes held within [-limit, limit]; a NaN stays a NaN."""

    def emit(context, builder, sig, args):
        x, top = args
        bottom = builder.fneg(top)
        x = builder.select(builder.fcmp_ordered(">", x, top), top, x)
        return builder.select(builder.fcmp_ordered("<", x, bottom), bottom, x)

    return value(value, value), emit


@intrinsic
def tanh_lanes(typing, value):
    """Return tanh of each lane by the mathematical library."""

    def emit(context, builder, sig, args):
        kind = args[0].type.element
        function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(kind, [kind]), "tanh")
        result = args[0]
        for i in range(LANES):
            lane = ir.Constant(ir.IntType(32), i)
            result = builder.insert_element(result, builder.call(function, [builder.extract_element(args[0], lane)]), lane)
        return result

    return value(value), emit
