"""CRC-32 (IEEE, reflected) at memory speed.

Long inputs are folded 64 bytes at a time by carry-less multiplication where the processor has it: a
block of 128 bits times x^n is a block n bits further on, modulo the polynomial. What is left, and every
input on other processors, goes 16 bytes at a time through tables.
"""

from typing import Any, Final

import llvmlite.binding
import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from orbitmq.format.compiled.jit import helper, kernel
from orbitmq.format.compiled.memory import _pointer, load_little_u64

POLYNOMIAL: Final = 0xEDB88320  # x^32 + x^26 + ... + 1, lowest power in the highest bit
FOLD_BYTES: Final = 64
FOLD_BYTES_MIN: Final = 128  # below, the tables are as fast


def _tables() -> Any:
    """Return T[k][b]: the CRC of byte b followed by k zero bytes."""
    tables = np.zeros((16, 256), dtype=np.uint32)
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (POLYNOMIAL if value & 1 else 0)
        tables[0, byte] = value
    for step in range(1, 16):
        before = tables[step - 1]
        tables[step] = before >> 8 ^ tables[0][before & 0xFF]
    return tables


_TABLES: Final = _tables()


def _power(exponent: int) -> int:
    """Return x^exponent modulo the polynomial as a factor for reflected operands (33 bits)."""
    value = 0x80000000  # x^0
    for _ in range(exponent):
        value = value >> 1 ^ (POLYNOMIAL if value & 1 else 0)
    return value << 1


FOLD_FACTORS: Final = (_power(512 + 32), _power(512 - 32))  # four blocks on
STEP_FACTORS: Final = (_power(128 + 32), _power(128 - 32))  # one block on


def has_carryless_multiply() -> bool:
    """Return whether the code that numba makes may use PCLMULQDQ."""
    settings: Any = numba.config
    if settings.CPU_NAME or settings.CPU_FEATURES is not None:
        return False  # compiling for another processor than this one
    try:
        features = llvmlite.binding.get_host_cpu_features()
    except RuntimeError:
        return False
    return bool(features.get("pclmul") and features.get("sse4.1"))


CARRYLESS: Final = has_carryless_multiply()

_INT32: Final = ir.IntType(32)
_INT64: Final = ir.IntType(64)
_BLOCK: Final = ir.VectorType(_INT64, 2)


def _multiply(builder: Any, block: Any, factors: tuple[int, int]) -> Any:
    """Return low half times the first factor plus high half times the second."""
    kind = ir.FunctionType(_BLOCK, [_BLOCK, _BLOCK, ir.IntType(8)])
    name = "llvm.x86.pclmulqdq"
    function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
    constant = ir.Constant(_BLOCK, list(factors))
    low = builder.call(function, [block, constant, ir.Constant(ir.IntType(8), 0x00)])
    high = builder.call(function, [block, constant, ir.Constant(ir.IntType(8), 0x11)])
    return builder.xor(low, high)


@intrinsic
def _fold(_typing: Any, buffer: Any, _start: Any, _rounds: Any, _crc: Any) -> Any:
    """Return 16 bytes (as two numbers) with the CRC of `rounds` times 64 bytes, given `crc` before."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, start, rounds, crc = arguments
        data = _pointer(context, builder, signature.args[0], array, start)
        first = builder.bitcast(data, _BLOCK.as_pointer())

        def block(pointer: Any, index: int) -> Any:
            return builder.load(builder.gep(pointer, [_INT64(index)]), align=1)

        blocks = [block(first, index) for index in range(4)]
        seed = builder.insert_element(
            ir.Constant(_BLOCK, [0, 0]), builder.zext(crc, _INT64), _INT32(0)
        )
        blocks[0] = builder.xor(blocks[0], seed)
        before = builder.block
        head = builder.append_basic_block("fold.head")
        body = builder.append_basic_block("fold.body")
        done = builder.append_basic_block("fold.done")
        builder.branch(head)

        builder.position_at_end(head)
        round_no = builder.phi(_INT64)
        folded = [builder.phi(_BLOCK) for _ in range(4)]
        builder.cbranch(builder.icmp_signed("<", round_no, rounds), body, done)

        builder.position_at_end(body)
        here = builder.gep(first, [builder.mul(round_no, _INT64(4))])
        moved = [
            builder.xor(_multiply(builder, folded[index], FOLD_FACTORS), block(here, index))
            for index in range(4)
        ]
        next_round = builder.add(round_no, _INT64(1))
        builder.branch(head)

        round_no.add_incoming(_INT64(1), before)
        round_no.add_incoming(next_round, body)
        for phi, initial, later in zip(folded, blocks, moved, strict=True):
            phi.add_incoming(initial, before)
            phi.add_incoming(later, body)

        builder.position_at_end(done)
        result = folded[0]
        for later in folded[1:]:
            result = builder.xor(_multiply(builder, result, STEP_FACTORS), later)
        halves = [builder.extract_element(result, _INT32(index)) for index in range(2)]
        return context.make_tuple(builder, signature.return_type, halves)

    arguments = (buffer, types.int64, types.int64, types.uint32)
    return types.UniTuple(types.uint64, 2)(*arguments), generate


@helper
def _through_tables(low, high):
    """Return the CRC state after 16 bytes, the state before already mixed into the first four."""
    value = np.uint32(0)
    for index in range(8):
        shift = np.uint64(8 * index)
        value ^= _TABLES[15 - index, (low >> shift) & np.uint64(0xFF)]
        value ^= _TABLES[7 - index, (high >> shift) & np.uint64(0xFF)]
    return value


@helper
def _by_tables(buffer, at, end, state):
    while end - at >= 16:
        low = load_little_u64(buffer, at) ^ np.uint64(state)
        state = _through_tables(low, load_little_u64(buffer, at + 8))
        at += 16
    while at < end:
        state = _TABLES[0, (state ^ buffer[at]) & np.uint32(0xFF)] ^ (state >> np.uint32(8))
        at += 1
    return state


@helper
def _state_by_tables(buffer, at, end):
    return _by_tables(buffer, at, end, np.uint32(0xFFFFFFFF))


@helper
def _state_by_folding(buffer, at, end):
    state = np.uint32(0xFFFFFFFF)
    if end - at >= FOLD_BYTES_MIN:
        rounds = (end - at) // FOLD_BYTES
        low, high = _fold(buffer, at, rounds, state)
        state = _through_tables(low, high)
        at += rounds * FOLD_BYTES
    return _by_tables(buffer, at, end, state)


_state = _state_by_folding if CARRYLESS else _state_by_tables


@helper
def masked_crc32(buffer, at, end):
    """Return the CRC-32 of buffer[at:end] without its highest bit."""
    return np.int64(~_state(buffer, at, end) & np.uint32(0x7FFFFFFF))


@kernel
def crc32_by_tables(buffer):
    return np.int64(~_state_by_tables(buffer, 0, len(buffer)) & np.uint32(0x7FFFFFFF))


@kernel
def crc32(buffer):
    return masked_crc32(buffer, 0, len(buffer))
