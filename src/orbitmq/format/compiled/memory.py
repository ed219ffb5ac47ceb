"""Loads and stores of numbers at any byte of an array, and copies: what numpy indexing cannot say.

None of them checks bounds: the caller has compared lengths before. With NUMBA_BOUNDSCHECK=1 the same
functions go byte by byte through checked indexing, which is how the tests prove that.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from orbitmq.format.compiled.jit import BOUNDS_CHECKED, helper


def _pointer(context: Any, builder: Any, kind: Any, buffer: Any, position: Any) -> Any:
    """Return the address of a position in an array, or in what `raw` made of one."""
    is_raw = isinstance(kind, types.CPointer)
    data = buffer if is_raw else context.make_array(kind)(context, builder, buffer).data
    return builder.gep(data, [position])


@intrinsic
def _raw(_typing: Any, array: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return context.make_array(signature.args[0])(context, builder, arguments[0]).data

    return types.CPointer(array.dtype)(array), generate


@helper
def _checked_raw(array):
    return array


def _loader(bits: int, result: Any, *, swap: bool) -> Any:
    """Return an intrinsic (array, position) -> number that loads without alignment."""

    def load(_typing: Any, array: Any, _position: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            pointer = _pointer(context, builder, signature.args[0], *arguments)
            typed = builder.bitcast(pointer, ir.IntType(bits).as_pointer())
            value = builder.load(typed, align=1)
            return builder.bswap(value) if swap else value

        return result(array, types.int64), generate

    return intrinsic(load)


def _storer(bits: int) -> Any:
    """Return an intrinsic (array, position, number) that stores big-endian without alignment."""

    def store(_typing: Any, array: Any, _position: Any, _value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            buffer, position, value = arguments
            pointer = _pointer(context, builder, signature.args[0], buffer, position)
            kind = ir.IntType(bits)
            narrow = value if bits == 64 else builder.trunc(value, kind)
            builder.store(
                builder.bswap(narrow), builder.bitcast(pointer, kind.as_pointer()), align=1
            )
            return context.get_dummy_value()

        return types.void(array, types.int64, types.int64), generate

    return intrinsic(store)


_i16 = _loader(16, types.int16, swap=True)
_i32 = _loader(32, types.int32, swap=True)
_i64 = _loader(64, types.int64, swap=True)
_u32 = _loader(32, types.uint32, swap=False)
_u64 = _loader(64, types.uint64, swap=False)
_store_i16, _store_i32, _store_i64 = _storer(16), _storer(32), _storer(64)


@intrinsic
def _copy(_typing: Any, out: Any, _at: Any, source: Any, _start: Any, _length: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        target, at, origin, start, length = arguments
        to = _pointer(context, builder, signature.args[0], target, at)
        of = _pointer(context, builder, signature.args[2], origin, start)
        cgutils.raw_memcpy(builder, to, of, length, 1)
        return context.get_dummy_value()

    return types.void(out, types.int64, source, types.int64, types.int64), generate


@helper
def _fast_i16(buffer, at):
    return np.int64(_i16(buffer, at))


@helper
def _fast_i32(buffer, at):
    return np.int64(_i32(buffer, at))


def _checked_loader(count: int) -> Any:
    """Return what loads so many bytes as a signed number, byte by byte."""

    @helper
    def load(buffer, at):
        value = np.int64(np.int8(buffer[at]))  # the first byte carries the sign
        for index in range(1, count):
            value = (value << 8) | np.int64(buffer[at + index])
        return value

    return load


def _checked_little_loader(count: int, kind: Any) -> Any:
    """Return what loads so many bytes as an unsigned number of this kind, the last byte first."""

    @helper
    def load(buffer, at):
        value = np.uint64(0)
        for index in range(count - 1, -1, -1):
            value = (value << np.uint64(8)) | np.uint64(buffer[at + index])
        return kind(value)

    return load


def _checked_storer(count: int) -> Any:
    @helper
    def store(buffer, at, value):
        for index in range(count - 1, -1, -1):
            buffer[at + index] = np.uint8(value & 0xFF)
            value >>= 8

    return store


@helper
def _checked_copy(out, at, source, start, length):
    for index in range(length):
        out[at + index] = source[start + index]


def _choose(fast: Any, checked: Any) -> Any:
    return checked if BOUNDS_CHECKED else fast


raw = _choose(_raw, _checked_raw)
"""What a kernel hands to its helpers in a hot loop in place of an array: the address of its first element.

An array travels as seven numbers, and each function that gets one counts a use up and down again, which took
half of the time of a scan. The kernel's caller keeps the array.
"""

Load = Callable[[Any, int], Any]

load_i16: Load = _choose(_fast_i16, _checked_loader(2))
load_i32: Load = _choose(_fast_i32, _checked_loader(4))
load_i64: Load = _choose(_i64, _checked_loader(8))
load_little_u32: Load = _choose(_u32, _checked_little_loader(4, np.uint32))
load_little_u64: Load = _choose(_u64, _checked_little_loader(8, np.uint64))
store_i16 = _choose(_store_i16, _checked_storer(2))
store_i32 = _choose(_store_i32, _checked_storer(4))
store_i64 = _choose(_store_i64, _checked_storer(8))
copy = _choose(_copy, _checked_copy)


@intrinsic
def _separators(_typing: Any, buffer: Any, _at: Any) -> Any:
    """Return a bit for each of 32 bytes that is 0x01 or 0x02, the first byte's bit lowest."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        block = ir.VectorType(ir.IntType(8), 32)
        pointer = _pointer(context, builder, signature.args[0], *arguments)
        loaded = builder.load(builder.bitcast(pointer, block.as_pointer()), align=1)
        one, two = (ir.Constant(block, [byte] * 32) for byte in (1, 2))
        found = builder.or_(
            builder.icmp_unsigned("==", loaded, one), builder.icmp_unsigned("==", loaded, two)
        )
        bits = builder.bitcast(found, ir.IntType(32))
        return builder.zext(bits, ir.IntType(64))

    return types.uint64(buffer, types.int64), generate


@helper
def _checked_separators(buffer, at):
    bits = np.uint64(0)
    for index in range(32):
        if buffer[at + index] == 1 or buffer[at + index] == 2:
            bits |= np.uint64(1) << np.uint64(index)
    return bits


separators = _choose(_separators, _checked_separators)
SEPARATORS_BYTES = 32


@intrinsic
def prefetch(_typing: Any, buffer: Any, _at: Any) -> Any:
    """Ask the processor to load the line at this position; any position will do, also outside."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = _pointer(context, builder, signature.args[0], *arguments)
        kinds = [pointer.type, *[ir.IntType(32)] * 3]
        name = "llvm.prefetch.p0"
        function = builder.module.globals.get(name) or ir.Function(
            builder.module, ir.FunctionType(ir.VoidType(), kinds), name
        )
        read, keep, data = (ir.IntType(32)(number) for number in (0, 3, 1))
        builder.call(function, [pointer, read, keep, data])
        return context.get_dummy_value()

    return types.void(buffer, types.int64), generate


@intrinsic
def trailing_zeros(_typing: Any, _value: Any) -> Any:
    """Return the number of zero bits below the lowest set bit of a uint64 that is not 0."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), generate
