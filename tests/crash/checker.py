"""What must hold of a store after its writer was killed, and what may be missing.

The log is read from the files by this module alone; what the store says of itself (queues, messages,
keys, its own check) is then compared with that and with the acknowledgements.
"""

import random
import shutil
import struct
from collections import defaultdict
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from crash.workload import FLUSHED, NUMBER, OPENED, Ack, request
from orbitmq.format.index_file import key_hash
from orbitmq.format.record import BLANK_MAGIC, Record, decode_record
from orbitmq.message import SysFlag
from orbitmq.store.config import StoreConfig
from orbitmq.store.offline.check import check_store
from orbitmq.store.store import MessageStore

Queue = tuple[str, int]
Item = tuple[int, int]

SAMPLED_KEYS: Final = 60

_UNIT: Final = struct.Struct(">qiq")
_ITEM: Final = struct.Struct(">iqii")
_HEAD: Final = struct.Struct(">ii")


@dataclass
class History:
    """What a writer was told about its messages, over all its lives."""

    seed: int
    acked: dict[int, Ack] = field(default_factory=dict)
    flushed: int = 0

    def learn(self, acks: list[Ack]) -> int:
        """Add what one life left; return how many appends were acknowledged in it."""
        appended = [ack for ack in acks if ack.number not in (FLUSHED, OPENED)]
        self.acked.update((ack.number, ack) for ack in appended)
        marks = [ack.log_offset for ack in acks if ack.number == FLUSHED]
        self.flushed = max([self.flushed, *marks])
        return len(appended)

    def forget_lost(self, end: int) -> int:
        """Drop the messages that the transient pool may lose; return how many there were."""
        lost = [number for number, ack in self.acked.items() if ack.log_offset + ack.size > end]
        for number in lost:
            if self.acked[number].log_offset + self.acked[number].size <= self.flushed:
                raise AssertionError(f"message {number} was flushed and is lost")
            del self.acked[number]
        return len(lost)


def check_after_crash(
    config: StoreConfig,
    history: History,
    *,
    cleaned: bool = False,
    may_lose: bool = False,
    may_fill: bool = False,
) -> None:
    """Open the store and compare it with what its writer was told; raise AssertionError if they differ.

    `cleaned`: the writer deleted old segments. `may_lose`: the transient pool is in use. `may_fill`:
    after a power cut, a record that nobody was told of can be missing between others; a filler then
    stands in its place.
    """
    with MessageStore.open(config) as store:
        store.wait_dispatched(timeout=10)
        start, end = store.min_log_offset, store.max_log_offset
        records = read_log(config, start, end)
        if may_lose:
            history.forget_lost(end)
        # Only old segments may be gone, and never the last one.
        assert start == 0 or cleaned
        assert start <= max((ack.log_offset for ack in history.acked.values()), default=end)
        _require_content(records, history)
        _require_acknowledged(records, history, start)
        _require_queues(store, records)
        _require_keys(store, records, random.Random(end))
    _require_units(config, records)
    _require_index(config, records)
    fillers = sum(record.is_filler for record in records)
    assert may_fill or not fillers
    if (config.root / "commitlog").exists():  # else it was killed before its first append
        _require_no_findings(config, fillers=fillers)


def read_log(config: StoreConfig, start: int, end: int) -> list[Record]:
    """Return the records of [start, end), read from the files; what follows must be zeros."""
    records: list[Record] = []
    offset = start
    while offset < end:
        base = offset - offset % config.segment_bytes
        data = (config.root / "commitlog" / f"{base:020d}").read_bytes()
        assert len(data) == config.segment_bytes
        offset = _read_segment(data, base, offset, end, records)
    assert offset == end, f"the log ends at {offset}, the store says {end}"
    _require_zeros(config, end)
    return records


def _read_segment(data: bytes, base: int, offset: int, end: int, records: list[Record]) -> int:
    while offset < end and offset < base + len(data):
        size, magic = _HEAD.unpack_from(data, offset - base)
        if magic == BLANK_MAGIC:
            assert size == base + len(data) - offset
            return base + len(data)
        record = decode_record(data, offset - base)
        assert record.log_offset == offset
        records.append(record)
        offset += record.size
    return offset


def _require_zeros(config: StoreConfig, end: int) -> None:
    """Behind the end there is nothing that another reader could take for a record."""
    for path in sorted((config.root / "commitlog").glob("*")):
        base = int(path.name)
        if base + config.segment_bytes > end:
            rest = path.read_bytes()[max(end - base, 0) :]
            if _HEAD.unpack_from(rest.ljust(8, b"\0")) == (len(rest), BLANK_MAGIC):
                rest = rest[_HEAD.size :]  # it rolled, but nothing came to the next segment
            assert not rest.strip(b"\0"), f"{path.name}: bytes behind the end of the log, {end}"


def _require_content(records: list[Record], history: History) -> None:
    """Every record is one that the writer made, whole; after a power cut too."""
    seen: set[int] = set()
    for record in records:
        if record.is_filler:
            continue
        number = int(record.property_map[NUMBER])
        made = request(history.seed, number)
        found = (record.topic, record.queue_id, record.body, record.properties, record.flag)
        wanted = (made.topic, made.queue_id, made.body, made.properties, made.flag)
        assert found == wanted, f"record at {record.log_offset}: {found} instead of {wanted}"
        assert record.born_ms == made.born_ms
        assert number not in seen, f"message {number} is in the log twice"
        seen.add(number)


def _require_acknowledged(records: list[Record], history: History, start: int) -> None:
    by_offset = {record.log_offset: record for record in records}
    for number, ack in history.acked.items():
        if ack.log_offset < start:
            continue  # cleaned
        assert ack.log_offset in by_offset, f"message {number} was acknowledged and is lost: {ack}"
        record = by_offset[ack.log_offset]
        assert record.property_map.get(NUMBER) == str(number), (
            f"message {number} is damaged: {record}"
        )
        if is_queued(record):
            assert record.queue_offset == ack.queue_offset
        assert record.size == ack.size


def is_queued(record: Record) -> bool:
    return record.sys_flag & SysFlag.TRANSACTION in (0, SysFlag.COMMIT)


def by_queue(records: list[Record]) -> dict[Queue, list[Record]]:
    queues: dict[Queue, list[Record]] = defaultdict(list)
    for record in records:
        if is_queued(record):
            queues[record.topic, record.queue_id].append(record)
    return queues


def _require_queues(store: MessageStore, records: list[Record]) -> None:
    """Queue offsets run without a gap, and reading a queue gives its records in order."""
    expected = by_queue(records)
    for topic, queue_id in store.queues():
        queue = expected.pop((topic, queue_id), [])
        low, high = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
        assert [record.queue_offset for record in queue] == list(range(low, high)), (
            topic,
            queue_id,
        )
        messages = [record.log_offset for record in queue if not record.is_filler]
        assert _read_queue(store, topic, queue_id) == messages
    assert not expected, f"records without a queue: {list(expected)}"


def _read_queue(store: MessageStore, topic: str, queue_id: int) -> list[int]:
    offsets: list[int] = []
    offset, end = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
    while offset < end:
        found = store.get(topic, queue_id, offset, 32)
        assert found.next_offset > offset, found
        offsets += [decode_record(data).log_offset for data in found.records]
        offset = found.next_offset
    return offsets


def keys_of(record: Record) -> list[str]:
    """Return the keys under which a record is found, in the order of the index."""
    if record.sys_flag & SysFlag.TRANSACTION == SysFlag.ROLLBACK:
        return []
    unique = [record.unique_key] if record.unique_key else []
    return unique + record.keys


def _require_keys(store: MessageStore, records: list[Record], chance: random.Random) -> None:
    """A sample of the keys is found; `_require_index` compares all of them with the files."""
    expected: dict[tuple[str, str], list[int]] = defaultdict(list)
    for record in records:
        for key in keys_of(record):
            expected[record.topic, key].append(record.log_offset)
    for topic, key in chance.sample(list(expected), min(len(expected), SAMPLED_KEYS)):
        found = store.query(topic, key, exact=True)
        assert [decode_record(data).log_offset for data in found] == expected[topic, key]


def _require_units(config: StoreConfig, records: list[Record]) -> None:
    """The queue files hold what a rebuild from the log would write."""
    for (topic, queue_id), queue in by_queue(records).items():
        directory = config.root / "consumequeue" / topic / str(queue_id)
        for record in queue:
            file_no, position = divmod(record.queue_offset * 20, config.cq_file_bytes)
            path = directory / f"{file_no * config.cq_file_bytes:020d}"
            unit = _UNIT.unpack_from(path.read_bytes(), position)
            assert unit == (record.log_offset, record.size, _tags_code(record)), (path, position)


def _tags_code(record: Record) -> int:
    from orbitmq.format.java_hash import java_hash

    return java_hash(record.tags) if record.tags else 0


def _require_index(config: StoreConfig, records: list[Record]) -> None:
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


def _require_no_findings(config: StoreConfig, *, fillers: int) -> None:
    report = check_store(config.root, broker_settings(config))
    assert report.is_sound, [str(finding) for finding in report.errors]
    assert report.fillers == fillers
    assert not report.lagging


def broker_settings(config: StoreConfig) -> dict[str, str]:
    """Return the sizes of a store's files as a broker.conf has them."""
    return {
        "mappedFileSizeCommitLog": str(config.segment_bytes),
        "mappedFileSizeConsumeQueue": str(config.cq_file_bytes),
        "mapperFileSizeBatchConsumeQueue": str(config.batch_cq_file_bytes),
        "maxHashSlotNum": str(config.index_slots),
        "maxIndexNum": str(config.index_items),
        "maxMessageSize": str(config.message_bytes_max),
    }


def require_equal_to_rebuild(config: StoreConfig, copy: Path) -> None:
    """Build queues and index of a copy from its log alone; both stores must be the same."""
    shutil.copytree(config.root, copy)
    for name in ("consumequeue", "index"):
        shutil.rmtree(copy / name, ignore_errors=True)
    for name in ("checkpoint", "orbitmq.snapshot"):
        (copy / name).unlink(missing_ok=True)
    rebuilt = replace(config, root=copy)
    with MessageStore.open(rebuilt) as store:
        store.wait_dispatched(timeout=10)
        start = store.min_log_offset
    assert _live_units(rebuilt, start) == _live_units(config, start)
    live = [item for item in index_items(config) if item[1] >= start]
    assert index_items(rebuilt) == live


def _live_units(config: StoreConfig, start: int) -> dict[Queue, dict[int, tuple[int, int, int]]]:
    """Return the units that point at or behind `start`, by queue and queue offset."""
    units: dict[Queue, dict[int, tuple[int, int, int]]] = defaultdict(dict)
    for path in sorted((config.root / "consumequeue").glob("*/*/*")):
        data, first = path.read_bytes(), int(path.name) // 20
        for number in range(len(data) // 20):
            log_offset, size, tags_code = _UNIT.unpack_from(data, number * 20)
            if 0 < size < 0x7FFFFFFF and log_offset >= start:
                queue = path.parent.parent.name, int(path.parent.name)
                units[queue][first + number] = log_offset, size, tags_code
    return units
