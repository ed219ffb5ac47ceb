"""Where each file of a store lies, what it is called and how large it is.

path                                         | here                         | size set by (RocketMQ's key)
commitlog/<20 digits>                        | segment_path                 | mappedFileSizeCommitLog
consumequeue/<topic>/<queue>/<20 digits>     | queue_file(QueueKind.SIMPLE) | mappedFileSizeConsumeQueue
consumequeue_ext/<topic>/<queue>/<20 digits> | queue_file(QueueKind.EXT)    | mappedFileSizeConsumeQueueExt
batchconsumequeue/<topic>/<queue>/<20 d.>    | queue_file(QueueKind.BATCH)  | mapperFileSizeBatchConsumeQueue
index/<17 digits of local time>              | index_directory              | maxHashSlotNum, maxIndexNum
timerwheel, timerlog/<20 digits>             | timer_wheel, timer_log       | fixed; mappedFileSizeTimerLog
checkpoint, abort, lock                      | checkpoint, abort, lock      | 4096 bytes, a pid, 4 bytes
config/<name>.json                           | config(name)                 |
orbitmq.snapshot, orbitmq.quarantine/        | snapshot, quarantine         | ours; a broker ignores them
orbitmq.epochs, orbitmq.cut                  | epochs, cut                  | ours; a broker ignores them
orbitmq.dispatch/                            | store/handover.py            | ours, with `dispatch = spark`

The sizes are not written in the files: a store can only be read with the right ones (`guess_layout`).
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import Final

from orbitmq.errors import ConfigError, NotAStoreError, StoreError, WrongFileError, io_error
from orbitmq.files.disk import exists
from orbitmq.files.listing import (
    CHECK_STEP,
    OnProblem,
    QueueFiles,
    SegmentFile,
    list_queues,
    list_segments,
    raise_problem,
    topic_name_problem,
)
from orbitmq.format.segment_name import is_index_file_name, segment_name
from orbitmq.units import GiB, MiB

SEGMENT_BYTES: Final = 1 * GiB
CQ_FILE_BYTES: Final = 300_000 * 20
EXT_FILE_BYTES: Final = 48 * MiB
BATCH_CQ_FILE_BYTES: Final = 300_000 * 46
INDEX_SLOTS: Final = 5_000_000
INDEX_ITEMS: Final = 20_000_000


class QueueKind(StrEnum):
    """The three families of queue files; the value is the directory's name."""

    SIMPLE = "consumequeue"
    EXT = "consumequeue_ext"
    BATCH = "batchconsumequeue"


# RocketMQ's key, its default, and the size of one unit; an ext file has units of any size.
_QUEUE_FILE_SIZES: Final = {
    QueueKind.SIMPLE: ("mappedFileSizeConsumeQueue", CQ_FILE_BYTES, 20),
    QueueKind.EXT: ("mappedFileSizeConsumeQueueExt", EXT_FILE_BYTES, 1),
    QueueKind.BATCH: ("mapperFileSizeBatchConsumeQueue", BATCH_CQ_FILE_BYTES, 46),
}


@dataclass(frozen=True, slots=True)
class StoreLayout:
    """Paths, names and sizes of one store. Immutable; opens nothing."""

    root: Path
    commit_log_paths: tuple[Path, ...] = ()  # storePathCommitLog; empty: <root>/commitlog
    read_only_commit_log_paths: tuple[Path, ...] = ()  # readOnlyCommitLogStorePaths
    segment_bytes: int = SEGMENT_BYTES  # mappedFileSizeCommitLog
    cq_file_bytes: int = CQ_FILE_BYTES  # mappedFileSizeConsumeQueue
    ext_file_bytes: int = EXT_FILE_BYTES  # mappedFileSizeConsumeQueueExt
    batch_cq_file_bytes: int = BATCH_CQ_FILE_BYTES  # mapperFileSizeBatchConsumeQueue
    index_slots: int = INDEX_SLOTS  # maxHashSlotNum
    index_items: int = INDEX_ITEMS  # maxIndexNum

    def __post_init__(self) -> None:
        for name in ("segment_bytes", "ext_file_bytes", "index_slots", "index_items"):
            _require_multiple(name, getattr(self, name), 1)
        _require_multiple("cq_file_bytes", self.cq_file_bytes, 20)
        _require_multiple("batch_cq_file_bytes", self.batch_cq_file_bytes, 46)

    @property
    def commit_log(self) -> Path:
        """The commit log's directory; the first one when there are several disks."""
        return self.commit_log_paths[0] if self.commit_log_paths else self.root / "commitlog"

    @property
    def commit_log_directories(self) -> tuple[Path, ...]:
        """All directories that may hold segments, those that take no new ones included."""
        listed = self.commit_log_paths or (self.commit_log,)
        extra = [path for path in self.read_only_commit_log_paths if path not in listed]
        return (*listed, *extra)

    @property
    def index_directory(self) -> Path:
        return self.root / "index"

    @property
    def index_file_bytes(self) -> int:
        return 40 + 4 * self.index_slots + 20 * self.index_items

    @property
    def checkpoint(self) -> Path:
        return self.root / "checkpoint"

    @property
    def abort(self) -> Path:
        return self.root / "abort"

    @property
    def lock(self) -> Path:
        return self.root / "lock"

    @property
    def snapshot(self) -> Path:
        return self.root / "orbitmq.snapshot"

    @property
    def quarantine(self) -> Path:
        return self.root / "orbitmq.quarantine"

    @property
    def epochs(self) -> Path:
        return self.root / "orbitmq.epochs"

    @property
    def cut(self) -> Path:
        return self.root / "orbitmq.cut"

    @property
    def timer_wheel(self) -> Path:
        return self.root / "timerwheel"

    @property
    def timer_log(self) -> Path:
        return self.root / "timerlog"

    @property
    def config_directory(self) -> Path:
        return self.root / "config"

    def config(self, name: str) -> Path:
        """Return the path of a state file, "topics.json" for example."""
        return self.config_directory / name

    def segment_path(self, base_offset: int, *, full: Collection[Path] = ()) -> Path:
        """Return where a new segment belongs; with several disks they take turns.

        Disks in `full` are left out, unless that leaves none.
        """
        listed = self.commit_log_paths or (self.commit_log,)
        usable = [path for path in listed if path not in self.read_only_commit_log_paths] or listed
        available = sorted((path for path in usable if path not in full), key=str)
        disks = available or sorted(usable, key=str)
        disk = disks[base_offset // self.segment_bytes % len(disks)]
        return disk / segment_name(base_offset)

    def queue_root(self, kind: QueueKind) -> Path:
        return self.root / kind.value

    def queue_directory(self, kind: QueueKind, topic: str, queue_id: int) -> Path:
        """Return a queue's directory. WrongFileError: the topic's name leads somewhere else."""
        problem = topic_name_problem(topic)
        if problem is not None:
            raise WrongFileError(self.queue_root(kind), problem, CHECK_STEP)
        return self.root / kind.value / topic / str(queue_id)

    def queue_file(self, kind: QueueKind, topic: str, queue_id: int, base: int) -> Path:
        """Return the file of a queue that starts at byte `base` of that queue."""
        return self.queue_directory(kind, topic, queue_id) / segment_name(base)

    def queue_file_bytes(self, kind: QueueKind) -> int:
        match kind:
            case QueueKind.SIMPLE:
                return self.cq_file_bytes
            case QueueKind.EXT:
                return self.ext_file_bytes
            case QueueKind.BATCH:
                return self.batch_cq_file_bytes

    def list_segments(self) -> list[SegmentFile]:
        """Return the checked segments of the commit log, of all disks."""
        return list_segments(self.commit_log_directories, self.segment_bytes)

    def list_queues(
        self, kind: QueueKind, *, on_problem: OnProblem = raise_problem
    ) -> Iterator[QueueFiles]:
        """Yield (topic, queue_id, first_base, last_base, file_count) of every queue of a family."""
        return list_queues(self.queue_root(kind), on_problem=on_problem)


def _require_multiple(name: str, value: int, unit: int) -> None:
    if value <= 0 or value % unit:
        rule = "must be positive" if unit == 1 else f"must be a positive multiple of {unit}"
        raise ConfigError(name, value, rule)


def guess_layout(
    root: Path, settings: Mapping[str, object] | None = None, *, index_needed: bool = True
) -> StoreLayout:
    """Return the layout of a store that is there, for those who only read it.

    Sizes come from the files where names or lengths tell them, else from `settings` (RocketMQ's keys),
    else they are RocketMQ's defaults. NotAStoreError: no commit log here. WrongFileError: nobody tells
    the sizes of the index files; the caller may do without them (`index_needed`).
    """
    given = settings or {}
    directories = _commit_log_directories(root, given)
    if not any(exists(directory) for directory in directories):
        step = "Give the directory that holds `commitlog` (a broker's storePathRootDir)."
        raise NotAStoreError(root, "is no message store: it has no commit log", step)
    log = list_segments(directories, on_problem=_ignore)
    problem = raise_problem if index_needed else _ignore
    slots, items = _index_sizes(root / "index", given, problem)
    return StoreLayout(
        root,
        commit_log_paths=() if directories == (root / "commitlog",) else directories,
        segment_bytes=_file_size(log, given, "mappedFileSizeCommitLog", SEGMENT_BYTES),
        cq_file_bytes=_queue_file_size(root, given, QueueKind.SIMPLE),
        ext_file_bytes=_queue_file_size(root, given, QueueKind.EXT),
        batch_cq_file_bytes=_queue_file_size(root, given, QueueKind.BATCH),
        index_slots=slots,
        index_items=items,
    )


def _commit_log_directories(root: Path, settings: Mapping[str, object]) -> tuple[Path, ...]:
    text = f"{settings.get('storePathCommitLog', '')},{settings.get('readOnlyCommitLogStorePaths', '')}"
    listed = [Path(part.strip()) for part in text.split(",") if part.strip()]
    # A store that was copied comes with settings that name another machine's directories.
    there = [path for path in dict.fromkeys(listed) if exists(path)]
    return tuple(there) or (root / "commitlog",)


def _file_size(
    files: list[SegmentFile],
    settings: Mapping[str, object],
    key: str,
    default: int,
    unit: int = 1,
) -> int:
    """Return the size of a log's files. The names tell it best: a cut file keeps its name."""
    steps = [b.base_offset - a.base_offset for a, b in pairwise(files)]
    whole = [step for step in steps if step > 0 and step % unit == 0]
    if whole:
        return min(whole)
    lengths = [file.length for file in files if file.length and file.length % unit == 0]
    return _number(settings, key) or (lengths[0] if lengths else default)


def _queue_file_size(root: Path, settings: Mapping[str, object], kind: QueueKind) -> int:
    key, default, unit = _QUEUE_FILE_SIZES[kind]
    lone: list[SegmentFile] = []
    for queue in list_queues(root / kind.value, on_problem=_ignore):
        if queue.file_count > 1 or not lone:
            directory = root / kind.value / queue.topic / str(queue.queue_id)
            files = list_segments(directory, on_problem=_ignore)
            if queue.file_count > 1:
                return _file_size(files, settings, key, default, unit)
            lone = [file for file in files if file.length]
    return _file_size(lone, settings, key, default, unit)


def _index_sizes(
    directory: Path, settings: Mapping[str, object], on_problem: OnProblem
) -> tuple[int, int]:
    """Return (slots, items). A length alone fits many pairs, so without settings only the default counts."""
    given = _number(settings, "maxHashSlotNum"), _number(settings, "maxIndexNum")
    slots, items = given[0] or INDEX_SLOTS, given[1] or INDEX_ITEMS
    expected = 40 + 4 * slots + 20 * items
    files = [(path, length) for path, length in _index_files(directory) if length]
    if files and None in given and expected not in {length for _, length in files}:
        path, length = files[0]
        what = (
            f"has {length} bytes; {slots} slots and {items} items would give {expected}, "
            "and the length alone does not tell how many of each there are"
        )
        step = "Give maxHashSlotNum and maxIndexNum of the broker (--config broker.conf)."
        on_problem(WrongFileError(path, what, step))
    return slots, items


def _index_files(directory: Path) -> list[tuple[Path, int]]:
    try:
        files = [path for path in sorted(directory.iterdir()) if is_index_file_name(path.name)]
        return [(path, path.stat().st_size) for path in files]
    except FileNotFoundError:
        return []
    except OSError as cause:
        raise io_error(directory, "list", cause) from cause


def _number(settings: Mapping[str, object], key: str) -> int | None:
    if key not in settings:
        return None
    try:
        number = int(str(settings[key]).strip())
    except ValueError:
        number = 0
    if number <= 0:
        raise ConfigError(key, settings[key], "must be a positive whole number")
    return number


def _ignore(problem: StoreError) -> None:
    """A guess looks at names only; whoever reads the files reports what is wrong with them."""
