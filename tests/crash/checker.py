"""What must hold of a store after its writer was killed, and what may be missing.

The log is read from the files by this module alone; what the store says of itself (queues, messages,
keys, its own check) is then compared with that and with the acknowledgements.
"""

import random
import shutil
import struct
from collections import defaultdict
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Final

from crash.queue_files import (
    by_queue,
    index_items,
    is_queued,
    keys_of,
    live_units,
    message_count,
    queue_offset,
    require_index,
    require_units,
    sent_properties,
)
from crash.workload import ENDLESS, FLUSHED, NOWHERE, NUMBER, TOGETHER_MAX, Ack, request
from orbitmq.files.disk import Disk
from orbitmq.format.kernels import Kernels
from orbitmq.format.record import BLANK_MAGIC, Record, decode_record
from orbitmq.message import AppendRequest
from orbitmq.store.config import StoreConfig
from orbitmq.store.recovery.adopt import RecoveryReport
from orbitmq.store.store import MessageStore
from orbitmq.store.verify.check import check_store

SAMPLED_KEYS: Final = 60

_HEAD: Final = struct.Struct(">ii")


@dataclass
class History:
    """What a writer was told about its messages, over all its lives."""

    seed: int
    batches: bool = False
    few: bool = False
    acked: dict[int, Ack] = field(default_factory=dict)
    refused: set[int] = field(default_factory=set)
    flushed: int = 0
    told: dict[int, int] = field(default_factory=dict)  # by life: the last number that it heard of

    def request(self, number: int) -> AppendRequest:
        """Return message `number`."""
        return request(self.seed, number, batches=self.batches, few=self.few)

    def learn(self, acks: list[Ack]) -> int:
        """Add what one life left; return how many appends were acknowledged in it."""
        answered = [ack for ack in acks if ack.number >= 0]
        stored = [ack for ack in answered if ack.log_offset != NOWHERE]
        self.acked.update((ack.number, ack) for ack in stored)
        self.refused.update(ack.number for ack in answered if ack.log_offset == NOWHERE)
        for ack in answered:
            life = ack.number // ENDLESS
            self.told[life] = max(self.told.get(life, 0), ack.number)
        marks = [ack.log_offset for ack in acks if ack.number == FLUSHED]
        self.flushed = max([self.flushed, *marks])
        return len(stored)

    def may_be_stored(self, number: int) -> bool:
        """Tell whether a message can be in the log at all: what was being appended is the last."""
        life = number // ENDLESS
        last = self.told.get(life, life * ENDLESS - 1)
        return number not in self.refused and number <= last + TOGETHER_MAX

    def forget_lost(self, records: list[Record]) -> int:
        """Drop acknowledged messages that were never flushed and are gone; return how many there were."""
        there = {record.log_offset for record in records if not record.is_filler}
        lost = [
            number
            for number, ack in self.acked.items()
            if ack.log_offset not in there and ack.log_offset + ack.size > self.flushed
        ]
        for number in lost:
            del self.acked[number]
        return len(lost)

    def copy(self) -> "History":
        """Return what is known now."""
        return replace(
            self, acked=dict(self.acked), refused=set(self.refused), told=dict(self.told)
        )


def check_after_crash(
    config: StoreConfig,
    history: History,
    *,
    cleaned: bool = False,
    may_lose: bool = False,
    may_fill: bool = False,
    kernels: Kernels | None = None,
    disk: Disk | None = None,
) -> RecoveryReport:
    """Open the store and compare it with what its writer was told; raise AssertionError if they differ.

    `cleaned`: the writer deleted old segments. `may_lose`: what was not flushed may be missing (transient
    pool; a power cut without sync flush). `may_fill`: after a power cut, a record that is not known to be
    on disk can be missing between others; a filler then stands in its place. With `kernels` everything
    happens in this thread.
    """
    with MessageStore.open(config, background=kernels is None, disk=disk) as store:
        assert store.wait_dispatched(timeout=60)
        start, end = store.min_log_offset, store.max_log_offset
        records = read_log(config, start, end)
        if may_lose:
            history.forget_lost(records)
        # Only old segments may be gone, and never the last one.
        assert start == 0 or cleaned
        assert start <= max((ack.log_offset for ack in history.acked.values()), default=end)
        _require_content(records, history)
        _require_acknowledged(records, history, start)
        require_queues(store, records)
        if config.index_enabled:
            _require_keys(store, records, random.Random(end))
        report = store.recovery_report
    require_units(config, records)
    if config.index_enabled:
        require_index(config, records)
    fillers = sum(record.is_filler for record in records)
    assert may_fill or not fillers
    if (config.root / "commitlog").exists():  # else it was killed before its first append
        _require_no_findings(config, kernels, fillers=fillers)
    return report


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
    """Every record is one that the writer made, whole, once, in its order; after a power cut too."""
    last = -1
    for record in records:
        if record.is_filler:
            continue
        number = int(record.property_map[NUMBER])
        made = _made(history.seed, number, history.batches, history.few)
        found = (record.topic, record.queue_id, record.body, sent_properties(record), record.flag)
        wanted = (made.topic, made.queue_id, made.body, made.properties, made.flag)
        assert found == wanted, f"record at {record.log_offset}: {found} instead of {wanted}"
        assert record.born_ms == made.born_ms
        assert number > last, f"message {number} is in the log behind message {last}"
        assert history.may_be_stored(number), f"nobody can have appended message {number} yet"
        last = number


@lru_cache(maxsize=20_000)
def _made(seed: int, number: int, batches: bool, few: bool) -> AppendRequest:
    """Return message `number`, one that no store was given: a store is compared with it again and again."""
    return request(seed, number, batches=batches, few=few)


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
            assert queue_offset(record) == ack.queue_offset
        assert record.size == ack.size


def require_queues(store: MessageStore, records: list[Record]) -> None:
    """Queue offsets run without a gap, and reading a queue gives its records in order."""
    expected = by_queue(records)
    for topic, queue_id in store.queues():
        queue = expected.pop((topic, queue_id), [])
        low, high = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
        if not queue:
            assert max(low, 0) == high, (topic, queue_id, low, high)
            continue
        offsets = [
            offset
            for record in queue
            for offset in range(queue_offset(record), queue_offset(record) + message_count(record))
        ]
        assert offsets == list(range(low, high)), (topic, queue_id)
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


def _require_keys(store: MessageStore, records: list[Record], chance: random.Random) -> None:
    """A sample of the keys is found; `require_index` compares all of them with the files."""
    expected: dict[tuple[str, str], list[int]] = defaultdict(list)
    for record in records:
        for key in keys_of(record):
            expected[record.topic, key].append(record.log_offset)
    for topic, key in chance.sample(list(expected), min(len(expected), SAMPLED_KEYS)):
        found = store.query(topic, key, exact=True)
        assert [decode_record(data).log_offset for data in found] == expected[topic, key]


def _require_no_findings(config: StoreConfig, kernels: Kernels | None, *, fillers: int) -> None:
    report = check_store(config.root, broker_settings(config), kernels=kernels)
    assert report.is_sound, [str(finding) for finding in report.errors]
    assert report.fillers == fillers
    assert not report.lagging


def broker_settings(config: StoreConfig) -> dict[str, str]:
    """Return the sizes of a store's files as a broker.conf has them."""
    return {
        "mappedFileSizeCommitLog": str(config.segment_bytes),
        "mappedFileSizeConsumeQueue": str(config.cq_file_bytes),
        "mappedFileSizeConsumeQueueExt": str(config.ext_file_bytes),
        "enableConsumeQueueExt": str(config.enable_cq_ext).lower(),
        "mapperFileSizeBatchConsumeQueue": str(config.batch_cq_file_bytes),
        "messageIndexEnable": str(config.index_enabled).lower(),
        "maxHashSlotNum": str(config.index_slots),
        "maxIndexNum": str(config.index_items),
        "maxMessageSize": str(config.message_bytes_max),
    }


def require_equal_to_rebuild(config: StoreConfig, copy: Path) -> None:
    """Build queues and index of a copy from its log alone; both stores must be the same."""
    shutil.copytree(config.root, copy)
    for name in ("consumequeue", "consumequeue_ext", "batchconsumequeue", "index"):
        shutil.rmtree(copy / name, ignore_errors=True)
    for name in ("checkpoint", "orbitmq.snapshot"):
        (copy / name).unlink(missing_ok=True)
    rebuilt = replace(config, root=copy)
    with MessageStore.open(rebuilt) as store:
        assert store.wait_dispatched(timeout=60)
        start = store.min_log_offset
    assert live_units(rebuilt, start) == live_units(config, start)
    live = [item for item in index_items(config) if item[1] >= start]
    assert index_items(rebuilt) == live
