"""What a store directory holds, in figures, from names, ends and headers; the log is read only if asked."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from orbitmq.errors import FormatError, WrongFileError
from orbitmq.files.layout import QueueKind
from orbitmq.files.listing import QueueFiles
from orbitmq.format import batch_unit, cq_unit
from orbitmq.format.checkpoint import Checkpoint
from orbitmq.format.checkpoint import decode as decode_checkpoint
from orbitmq.format.index_file import HEADER_BYTES, decode_header
from orbitmq.format.segment_name import is_index_file_name
from orbitmq.log_read import Segment
from orbitmq.store.offline.reader import OfflineStore, Selection, first_store_ms
from orbitmq.store.verify.index_entries import list_index_files


@dataclass(slots=True, kw_only=True)
class TopicStat:
    """One topic: its queues as the queue files show them, its records if the log was read."""

    topic: str
    kind: str
    queues: int = 0
    messages: int = 0  # between min and next offset of all its queues
    records: int | None = None
    bytes: int | None = None


@dataclass(slots=True, kw_only=True)
class IndexStat:
    """One index file."""

    name: str
    items: int
    begin_ms: int
    end_ms: int
    begin_log_offset: int
    end_log_offset: int


@dataclass(slots=True, kw_only=True)
class StoreStat:
    """The figures of a store."""

    root: str
    abort: bool  # a broker has it open, or was killed
    abort_pid: int | None
    segment_bytes: int
    segments: int
    min_log_offset: int
    end_log_offset: int
    first_store_ms: int | None
    last_store_ms: int | None
    topics: list[TopicStat] = field(default_factory=list)
    index: list[IndexStat] = field(default_factory=list)
    checkpoint: Checkpoint | None = None
    quarantined: int = 0


def stat(store: OfflineStore, *, read_log: bool = False) -> StoreStat:
    """Return the figures; with `read_log` also the records and bytes of each topic."""
    layout = store.layout
    end, last_ms = _log_end(store)
    topics = _topics(store)
    if read_log:
        _count_records(store, topics)
    held = [segment for segment in store.log.segments if not segment.missing]
    return StoreStat(
        root=str(layout.root),
        abort=layout.abort.exists(),
        abort_pid=_abort_pid(layout.abort),
        segment_bytes=layout.segment_bytes,
        segments=len(held),
        min_log_offset=store.log.min_offset,
        end_log_offset=end,
        first_store_ms=first_store_ms(held[0]) if held else None,
        last_store_ms=last_ms,
        topics=sorted(topics.values(), key=lambda topic: (topic.kind, topic.topic)),
        index=list(_index(store)),
        checkpoint=_checkpoint(store),
        quarantined=len(list(layout.quarantine.glob("*.bin"))),
    )


def _log_end(store: OfflineStore) -> tuple[int, int | None]:
    """Return where the last record ends and its store time; segments that are only preallocated are empty."""
    for segment in reversed(store.log.segments):
        last = _last_record(store, segment)
        if last is not None:
            return last
    return store.log.min_offset, None


def _last_record(store: OfflineStore, segment: Segment) -> tuple[int, int] | None:
    last = None
    selection = Selection(start=segment.base_offset, end=segment.end_offset)
    for _, rows in store.iter_rows(selection):
        row = rows[-1]
        last = int(row["log_offset"]) + int(row["size"]), int(row["store_ms"])
    return last


def _topics(store: OfflineStore) -> dict[str, TopicStat]:
    topics: dict[str, TopicStat] = {}
    for kind in (QueueKind.SIMPLE, QueueKind.BATCH):
        for queue in store.layout.list_queues(kind, on_problem=lambda p: store.say(str(p))):
            topic = topics.setdefault(
                queue.topic, TopicStat(topic=queue.topic, kind=kind.value, queues=0)
            )
            topic.queues += 1
            topic.messages += _message_count(store, kind, queue)
    return topics


def _message_count(store: OfflineStore, kind: QueueKind, queue: QueueFiles) -> int:
    try:
        reader = UnitFiles(store, kind, queue)
    except WrongFileError as error:
        store.say(str(error))
        return 0
    first = reader.first_live(store.log.min_offset)
    if kind is QueueKind.SIMPLE:
        return reader.end - first
    if first >= reader.end:
        return 0
    start = batch_unit.decode_unit(reader.unit(first)).base_offset
    return batch_unit.decode_unit(reader.unit(reader.end - 1)).end_offset - start


class UnitFiles:
    """The units of one queue, by number, straight from its files. Numbers start with the first file."""

    def __init__(self, store: OfflineStore, kind: QueueKind, queue: QueueFiles) -> None:
        self._store = store
        self._unit_bytes = cq_unit.UNIT_BYTES if kind is QueueKind.SIMPLE else batch_unit.UNIT_BYTES
        self._file_bytes = store.layout.queue_file_bytes(kind)
        self._directory = store.layout.queue_directory(kind, queue.topic, queue.queue_id)
        self.start = queue.first_base // self._unit_bytes
        last = queue.last_base // self._unit_bytes
        count = self._file_bytes // self._unit_bytes if queue.file_count else 0
        self.end = last + bisect_left(range(last, last + count), True, key=self._is_zero)

    def unit(self, number: int) -> bytes:
        """Return the raw unit, zeros where the file has none."""
        base, position = divmod(number * self._unit_bytes, self._file_bytes)
        path = self._directory / f"{base * self._file_bytes:020d}"
        raw = self._store.read_file(path, position, self._unit_bytes)
        return raw.ljust(self._unit_bytes, b"\0")

    def first_live(self, min_log_offset: int) -> int:
        """Return the first unit whose record is still in the log; padding is never live."""

        def is_live(number: int) -> bool:
            unit = cq_unit.decode_unit(self.unit(number))
            return not unit.is_padding and unit.log_offset >= min_log_offset

        return self.start + bisect_left(range(self.start, self.end), True, key=is_live)

    def _is_zero(self, number: int) -> bool:
        return not cq_unit.decode_unit(self.unit(number)).is_valid


def _count_records(store: OfflineStore, topics: dict[str, TopicStat]) -> None:
    records: Counter[bytes] = Counter()
    sizes: Counter[bytes] = Counter()
    for segment, rows in store.iter_rows(Selection()):
        data = segment.data.data
        columns = rows["topic_at"], rows["topic_length"], rows["size"]
        for at, length, size in zip(*(column.tolist() for column in columns), strict=True):
            topic = bytes(data[at : at + length])
            records[topic] += 1
            sizes[topic] += size
    for raw, count in records.items():
        name = raw.decode("utf-8", "replace")
        stat_of = topics.setdefault(name, TopicStat(topic=name, kind=""))
        stat_of.records, stat_of.bytes = count, sizes[raw]


def _index(store: OfflineStore) -> Iterator[IndexStat]:
    for path in list_index_files(store.layout):
        if not is_index_file_name(path.name):
            continue
        try:
            header = decode_header(store.read_file(path, 0, HEADER_BYTES))
        except FormatError as error:
            store.say(f"{path}: {error.reason}")
            continue
        yield IndexStat(
            name=path.name,
            items=header.next_item - 1,
            begin_ms=header.begin_ms,
            end_ms=header.end_ms,
            begin_log_offset=header.begin_log_offset,
            end_log_offset=header.end_log_offset,
        )


def _checkpoint(store: OfflineStore) -> Checkpoint | None:
    raw = store.read_file(store.layout.checkpoint, 0, 4096)
    if not raw:
        return None
    try:
        return decode_checkpoint(raw)
    except FormatError as error:
        store.say(f"{store.layout.checkpoint}: {error.reason}")
        return None


def _abort_pid(path: Path) -> int | None:
    try:
        text = path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None
    return int(text) if text.isascii() and text.isdigit() else None
