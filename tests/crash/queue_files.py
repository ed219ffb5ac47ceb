"""Queues and index of a store as their files have them, read without the store, beside its log."""

import struct
from collections import defaultdict
from pathlib import Path
from typing import Final

from crash.workload import BATCH_TOPIC
from orbitmq.format.index_file import key_hash
from orbitmq.format.java_hash import java_hash
from orbitmq.format.properties import encode_properties
from orbitmq.format.record import Record
from orbitmq.message import Property, SysFlag
from orbitmq.store.config import StoreConfig

Queue = tuple[str, int]
Item = tuple[int, int]
Unit = tuple[int, ...]

_UNIT: Final = struct.Struct(">qiq")
_EXT_UNIT: Final = struct.Struct(">hqqh")
_BATCH_UNIT: Final = struct.Struct(">qiqqqhii")
_ITEM: Final = struct.Struct(">iqii")
_EXT_BASE: Final = -(2**63)
_EXT_MAX: Final = -(2**31)


# --- what a record says ---


def is_queued(record: Record) -> bool:
    return record.sys_flag & SysFlag.TRANSACTION in (0, SysFlag.COMMIT)


def message_count(record: Record) -> int:
    """Return how many queue offsets it takes; the filler of a batch, which is no batch, as many."""
    return int(record.property_map.get(Property.INNER_NUM, 1))


def queue_offset(record: Record) -> int:
    inner = record.sys_flag & SysFlag.INNER_BATCH
    return int(record.property_map[Property.INNER_BASE]) if inner else record.queue_offset


def sent_properties(record: Record) -> bytes:
    """Return the properties without what the store adds to an inner batch."""
    if not record.sys_flag & SysFlag.INNER_BATCH:
        return record.properties
    sent = {key: value for key, value in record.property_map.items() if key != Property.INNER_BASE}
    return encode_properties(sent)


def by_queue(records: list[Record]) -> dict[Queue, list[Record]]:
    queues: dict[Queue, list[Record]] = defaultdict(list)
    for record in records:
        if is_queued(record):
            queues[record.topic, record.queue_id].append(record)
    return queues


def keys_of(record: Record) -> list[str]:
    """Return the keys under which a record is found, in the order of the index."""
    if record.sys_flag & SysFlag.TRANSACTION == SysFlag.ROLLBACK:
        return []
    unique = [record.unique_key] if record.unique_key else []
    return unique + record.keys


# --- what the files hold ---


def require_units(config: StoreConfig, records: list[Record]) -> None:
    """The queue files hold what a rebuild from the log would write, and nothing behind it."""
    start = records[0].log_offset if records else 0
    found, expected = live_units(config, start), by_queue(records)
    assert found.keys() == expected.keys()
    fillers = {record.log_offset for record in records if record.is_filler}
    for queue, its_records in expected.items():
        units = _expected_units(config, queue, its_records)
        # The ext unit of a lost record keeps its store time: the filler has another one.
        assert _without_ext(found[queue], fillers) == _without_ext(units, fillers), queue
    if config.enable_cq_ext:
        _require_no_stale_ext(config)


def _expected_units(config: StoreConfig, queue: Queue, records: list[Record]) -> dict[int, Unit]:
    if queue[0] == BATCH_TOPIC:
        return {queue_offset(one): _expected_batch_unit(one) for one in records}
    return {
        one.queue_offset: (one.log_offset, one.size, _tags_code(one), *_ext_time(config, one))
        for one in records
    }


def _without_ext(units: dict[int, Unit], log_offsets: set[int]) -> dict[int, Unit]:
    return {at: one[:2] if one[0] in log_offsets else one for at, one in units.items()}


def _ext_time(config: StoreConfig, one: Record) -> Unit:
    return (one.store_ms,) if config.enable_cq_ext else ()


def _expected_batch_unit(one: Record) -> Unit:
    return (one.log_offset, one.size, _tags_code(one), one.store_ms, message_count(one), -1, 0)


def live_units(config: StoreConfig, start: int) -> dict[Queue, dict[int, Unit]]:
    """Return the units that point at or behind `start`, by queue and queue offset."""
    units: dict[Queue, dict[int, Unit]] = defaultdict(dict)
    for path in sorted((config.root / "consumequeue").glob("*/*/*")):
        data, first = path.read_bytes(), int(path.name) // _UNIT.size
        for number in range(len(data) // _UNIT.size):
            log_offset, size, code = _UNIT.unpack_from(data, number * _UNIT.size)
            if 0 < size < 0x7FFFFFFF and log_offset >= start:
                told = _ext_unit(config, path, code) if config.enable_cq_ext else (code,)
                units[_queue_of(path)][first + number] = log_offset, size, *told
    for path in sorted((config.root / "batchconsumequeue").glob("*/*/*")):
        for at, *unit in _batch_units(path.read_bytes()):
            if unit[0] >= start:
                units[_queue_of(path)][at] = tuple(unit)
    return units


def _queue_of(path: Path) -> Queue:
    return path.parent.parent.name, int(path.parent.name)


def _ext_unit(config: StoreConfig, path: Path, code: int) -> Unit:
    """Return tag hash and store time of the ext unit that a queue unit leads to."""
    assert code < _EXT_MAX, f"{path}: a unit without an ext unit"
    base, position = divmod(code - _EXT_BASE, config.ext_file_bytes)
    name = f"{base * config.ext_file_bytes:020d}"
    ext = config.root / "consumequeue_ext" / path.parent.parent.name / path.parent.name / name
    size, tag_hash, store_ms, _ = _EXT_UNIT.unpack_from(ext.read_bytes(), position)
    assert size == _EXT_UNIT.size, f"{ext}: no ext unit at {position}"
    return tag_hash, store_ms


def _require_no_stale_ext(config: StoreConfig) -> None:
    """Behind the ext unit of a queue's last unit there are only zeros."""
    for directory in sorted((config.root / "consumequeue_ext").glob("*/*")):
        queue = config.root / "consumequeue" / directory.parent.name / directory.name
        codes = [
            code
            for path in sorted(queue.glob("*"))
            for _, size, code in _UNIT.iter_unpack(path.read_bytes())
            if 0 < size < 0x7FFFFFFF
        ]
        end = max((code - _EXT_BASE for code in codes), default=-_EXT_UNIT.size) + _EXT_UNIT.size
        for path in sorted(directory.glob("*")):
            rest = path.read_bytes()[max(end - int(path.name), 0) :]
            assert not rest.strip(b"\0"), f"{path}: bytes behind the last ext unit, at {end}"


def _batch_units(data: bytes) -> list[Unit]:
    found = []
    for position in range(0, len(data) - _BATCH_UNIT.size + 1, _BATCH_UNIT.size):
        offset, size, tags, store_ms, base, *rest = _BATCH_UNIT.unpack_from(data, position)
        if size > 0:
            found.append((base, offset, size, tags, store_ms, *rest))
    return found


def _tags_code(record: Record) -> int:
    return java_hash(record.tags) if record.tags else 0


def require_index(config: StoreConfig, records: list[Record]) -> None:
    """The index files hold each key of each record once, in the log's order."""
    expected = [
        (key_hash(record.topic, key), record.log_offset)
        for record in records
        for key in keys_of(record)
    ]
    start = records[0].log_offset if records else 0
    assert [item for item in index_items(config) if item[1] >= start] == expected


def index_items(config: StoreConfig) -> list[Item]:
    """Return (key hash, log offset) of all index files, in order."""
    items: list[Item] = []
    for path in sorted((config.root / "index").glob("*")):
        data = path.read_bytes()
        (next_item,) = struct.unpack_from(">i", data, 36)
        first = 40 + 4 * config.index_slots
        for number in range(1, next_item):
            key, log_offset, _, _ = _ITEM.unpack_from(data, first + 20 * number)
            items.append((key, log_offset))
    return items
