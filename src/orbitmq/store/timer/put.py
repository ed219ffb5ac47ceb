"""Put messages into the wheel: units into the timer log, each linked to the one before it in its slot."""

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from orbitmq.format.columns import Ints
from orbitmq.format.timer_log import (
    MAGIC_CANCELS,
    MAGIC_ROLLED,
    MAGIC_WAITS,
    UNIT_BYTES,
    UNIT_DTYPE,
)
from orbitmq.store.timer.timer_log import TimerLog
from orbitmq.store.timer.wheel import TimerWheel

_ROLL_SOON: Final = 3  # less than a third of a window left after it: two equal parts, instead


class Puts(NamedTuple):
    """Messages that go into the wheel, a column each."""

    slot_ms: Ints  # as their records say
    cancels: npt.NDArray[np.bool_]
    log_offsets: Ints
    log_sizes: Ints
    topic_hashes: Ints


def put(
    puts: Puts, wheel: TimerWheel, log: TimerLog, write_ms: int, read_ms: int, window_slots: int
) -> None:
    """Write the units, then change the slots: after a failure nothing has happened."""
    slots, magic = _places(puts, wheel.precision_ms, write_ms, read_ms, window_slots)
    positions = log.positions(len(slots))
    order = np.argsort(slots, kind="stable")
    ordered, sorted_positions = slots[order], positions[order]
    begins = np.empty(len(slots), dtype=np.bool_)
    begins[:1] = True
    begins[1:] = ordered[1:] != ordered[:-1]
    firsts = np.flatnonzero(begins)
    lasts = np.append(firsts[1:], len(slots)) - 1
    # Each leads to the one before it in its slot: of these here, or the last that the slot had.
    linked = np.empty(len(slots), dtype=np.int64)
    linked[1:] = sorted_positions[:-1]
    linked[firsts] = wheel.lasts(ordered[firsts])
    units = np.zeros(len(slots), dtype=UNIT_DTYPE)
    units["size"], units["magic"] = UNIT_BYTES, magic
    units["previous"][order] = linked
    units["write_ms"], units["delay_ms"] = write_ms, slots - write_ms
    units["log_offset"], units["log_size"] = puts.log_offsets, puts.log_sizes
    units["topic_hash"] = puts.topic_hashes
    log.append(units.tobytes(), positions)
    changes = np.where(puts.cancels, -1, 1)[order]
    wheel.add_many(
        ordered[firsts],
        sorted_positions[firsts],
        sorted_positions[lasts],
        np.add.reduceat(changes, firsts),
    )


def _places(
    puts: Puts, precision_ms: int, write_ms: int, read_ms: int, window_slots: int
) -> tuple[Ints, Ints]:
    """Return in which slots messages wait, and the bits of their units."""
    window_ms = window_slots * precision_ms
    beyond_ms = puts.slot_ms - write_ms - window_ms
    is_rolled = beyond_ms >= 0
    soon = beyond_ms < window_slots // _ROLL_SOON * precision_ms
    rolled_ms = np.where(soon, window_slots // 2 * precision_ms, window_ms) + write_ms
    # A clock that was set back: earlier slots are read already, or will be at once. What cancels
    # another message waits where that is.
    earliest_ms = max(write_ms, read_ms)
    near_ms = np.where(puts.cancels, puts.slot_ms, np.maximum(puts.slot_ms, earliest_ms))
    magic = MAGIC_WAITS | np.where(puts.cancels, MAGIC_CANCELS, 0)
    return np.where(is_rolled, rolled_ms, near_ms), magic | np.where(is_rolled, MAGIC_ROLLED, 0)
