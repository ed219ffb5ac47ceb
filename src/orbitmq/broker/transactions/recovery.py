"""What a start finds out about the transactions of its store: which have ended, and which still wait.

Op messages tell most ends. Those of the last seconds before a kill were not written yet (`op_batch.py`), so
a half message without one may have been committed all the same. The committed message itself is in the log
then, behind its half message: the log is read from the first half message that waits. Half messages are
copied to the end of their queue at every check, so that is about what was written since the last check.
"""

import logging
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from orbitmq.broker.transactions.forms import QUEUE, ended_offsets
from orbitmq.broker.transactions.half_table import HalfTable, Verdict
from orbitmq.errors import FormatError
from orbitmq.format.properties import find_property
from orbitmq.format.record import Record, decode_record
from orbitmq.message import HALF_TOPIC, OP_HALF_TOPIC, GetStatus, Property
from orbitmq.store.store import MessageStore
from orbitmq.units import MiB

logger = logging.getLogger(__name__)

READ_COUNT: Final = 32  # the store gives no more at once
PLAIN_BYTES_MAX: Final = 64 * MiB
"""For a longer part of the log the compiled kernels are worth their loading."""


class _Half(NamedTuple):
    """A half message that no op message lists."""

    offset: int
    log_offset: int
    key: str
    is_copy: bool
    first_offset: str | None  # of a copy that nobody was asked about


def recover(store: MessageStore, table: HalfTable) -> list[int]:
    """Fill the table, which has its two offsets; return ended half messages that no op message lists."""
    table.op_checked = _inside(store, OP_HALF_TOPIC, table.op_checked)
    table.move_to(_inside(store, HALF_TOPIC, table.checked))
    done: set[int] = set()  # half messages that are done with, but for their copies
    for offset, op in _records(store, OP_HALF_TOPIC, table.op_checked):
        listed = _listed(store, op) if op is not None else []
        done.update(one for one in listed if one < table.checked)
        table.read_op(offset, listed)
    halves = [half for half in _halves(store, table) if not table.is_ended(half.offset)]
    for half in halves:
        if half.is_copy and half.key:
            table.copy(half.key, half.offset)
    committed = _committed(store, halves)
    firsts = {str(offset) for offset in done}
    unlisted: list[int] = []
    for half in halves:
        if half.key in committed or half.log_offset in committed:
            unlisted += table.end(half.key, half.offset, Verdict.COMMITTED)
        elif half.first_offset in firsts:
            unlisted += table.end(half.key, half.offset, Verdict.ENDED)
    if halves:
        waiting = len(halves) - len(set(unlisted))
        logger.info("transactions: %d half messages wait for their end", waiting)
    return sorted(set(unlisted))


def _listed(store: MessageStore, op: Record) -> list[int]:
    """Return which half messages an op message lists, without those that lie behind it.

    A power cut may take a half message and leave the op message behind it: its offset is that of
    another one now, or of the next one, which has not ended.
    """
    listed = list(ended_offsets(op))
    if not listed or _lies_before(store, max(listed), op.log_offset):
        return listed
    return [offset for offset in listed if _lies_before(store, offset, op.log_offset)]


def _lies_before(store: MessageStore, offset: int, log_offset: int) -> bool:
    if offset < store.min_offset(HALF_TOPIC, QUEUE):
        return True
    if offset >= store.max_offset(HALF_TOPIC, QUEUE):
        return False
    units = store.units(HALF_TOPIC, QUEUE, offset, 1)
    return bool(units) and units[0].log_offset < log_offset


def _inside(store: MessageStore, topic: str, offset: int) -> int:
    """Return the nearest queue offset that there is."""
    low, high = store.min_offset(topic, QUEUE), store.max_offset(topic, QUEUE)
    return min(max(offset, low), high)


def _records(store: MessageStore, topic: str, offset: int) -> Iterator[tuple[int, Record | None]]:
    """Yield queue offset and record from a queue offset on; None: it cannot be read."""
    while True:
        found = store.get(topic, QUEUE, offset, READ_COUNT)
        if found.status is not GetStatus.FOUND and found.next_offset <= offset:
            return
        for queue_offset, raw in zip(found.queue_offsets, found.records, strict=True):
            yield queue_offset, _decoded(raw)
        offset = found.next_offset


def _decoded(raw: memoryview) -> Record | None:
    try:
        return decode_record(raw)
    except FormatError:
        return None  # the checks tell it when they come there


def _halves(store: MessageStore, table: HalfTable) -> Iterator[_Half]:
    for offset, record in _records(store, HALF_TOPIC, table.checked):
        if record is None:
            continue
        properties = record.properties
        first = find_property(properties, Property.PREPARED_QUEUE_OFFSET)
        times = find_property(properties, Property.CHECK_TIMES)
        key, is_copy = record.unique_key or "", first is not None or times is not None
        yield _Half(offset, record.log_offset, key, is_copy, first)


def _committed(store: MessageStore, halves: Iterable[_Half]) -> set[str | int]:
    """Return unique keys and half messages' log offsets of all that was committed since the first one."""
    start = min((half.log_offset for half in halves), default=None)
    if start is None:
        return set()
    if store.max_log_offset - start > PLAIN_BYTES_MAX:
        store.wait_kernels()
    found: set[str | int] = set()
    for record in store.committed_from(start):
        if record.prepared_offset:  # a delayed message has lost it when it is delivered
            found.add(record.prepared_offset)
        if record.unique_key:
            found.add(record.unique_key)
    return found
