"""Which segments and queues a store directory holds, from names and lengths alone.

A problem is something that a RocketMQ broker would stumble over too. It goes to `on_problem`: the
default raises it, so opening a store stops there; `check` collects them and goes on. What a broker
ignores (other directories beside the files, such as `lost+found`) is ignored here.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from orbitmq.errors import WrongFileError, io_error
from orbitmq.format.segment_name import parse_segment_name

NAME_BYTES_MAX = 255
"""Longest file name that Linux file systems take."""

CHECK_STEP = "Run `orbitmq store check` on the store directory; it shows what belongs there."
SIZE_STEP = (
    "If all files beside it have this length, give the broker's own settings (--config broker.conf); "
    "if only this one has, the file was cut: `orbitmq store check` tells what it still holds."
)
GAP_STEP = (
    "Bring the missing file back, or run `orbitmq store check` to see what is lost without it."
)

OnProblem = Callable[[WrongFileError], None]


class SegmentFile(NamedTuple):
    """One file of a log: the offset in its name, where it lies, how many bytes it has."""

    base_offset: int
    path: Path
    length: int


class QueueFiles(NamedTuple):
    """The files of one queue; both bases are 0 when its directory is empty."""

    topic: str
    queue_id: int
    first_base: int
    last_base: int
    file_count: int


def raise_problem(problem: WrongFileError) -> None:
    raise problem


def topic_name_problem(topic: str) -> str | None:
    """Say why a topic cannot be the name of a directory; None when it can.

    A record's topic is bytes from a file that anybody may have written: `../../etc` is a topic too.
    """
    if topic in ("", ".", ".."):
        return f"a topic cannot be named {topic!r}"
    if "/" in topic or "\x00" in topic:
        return f"topic {topic!r} has a character that no file name may have"
    try:
        length = len(topic.encode("utf-8"))
    except UnicodeEncodeError:
        return f"topic {topic!r} is not UTF-8"
    if length > NAME_BYTES_MAX:
        return (
            f"topic {topic[:40]!r}... has {length} bytes, and a file name at most {NAME_BYTES_MAX}"
        )
    return None


def list_segments(
    directories: Path | Iterable[Path],
    file_bytes: int | None = None,
    *,
    on_problem: OnProblem = raise_problem,
) -> list[SegmentFile]:
    """Return the segments of one log, oldest first; several directories are merged.

    With `file_bytes`, lengths and gaps are checked too. A file of wrong length stays in the list, for
    those who go on after the problem. An empty file that sorts last is no problem: a broker died
    between creating and sizing it. It is listed with length 0, and the engine removes it.
    """
    roots = [directories] if isinstance(directories, Path) else list(directories)
    found = [segment for root in roots for segment in _scan(root, on_problem)]
    found.sort()
    if file_bytes is not None:
        _check_lengths(found, file_bytes, on_problem)
        _check_chain(found, file_bytes, on_problem)
    return found


def list_queues(directory: Path, *, on_problem: OnProblem = raise_problem) -> Iterator[QueueFiles]:
    """Yield every queue below `consumequeue`, `consumequeue_ext` or `batchconsumequeue`, by topic and id.

    Only names are read, no lengths: this is called for tens of thousands of queues at each start.
    """
    for topic, topic_path in _subdirectories(directory):
        problem = topic_name_problem(topic)
        if problem is not None:
            on_problem(WrongFileError(topic_path, problem, CHECK_STEP))
            continue
        queues = [(_queue_id(name), path) for name, path in _subdirectories(topic_path)]
        numbered = sorted((queue_id, path) for queue_id, path in queues if queue_id is not None)
        for queue_id, path in numbered:
            yield _queue_files(topic, queue_id, path, on_problem)


def _scan(directory: Path, on_problem: OnProblem) -> Iterator[SegmentFile]:
    for entry in _entries(directory):
        base_offset = parse_segment_name(entry.name)
        path = Path(entry.path)
        is_directory, is_file = _kind(entry)
        if is_directory or not is_file:
            if base_offset is not None:
                thing = "a directory" if is_directory else "no plain file"
                what = f"is {thing}, and its name is that of a segment"
                on_problem(WrongFileError(path, what, CHECK_STEP))
        elif base_offset is None:
            what = "is not named as a segment is (20 digits)"
            on_problem(WrongFileError(path, what, "Move it out of this directory."))
        else:
            yield SegmentFile(base_offset, path, _length(entry))


def _check_lengths(segments: list[SegmentFile], file_bytes: int, on_problem: OnProblem) -> None:
    for segment in segments:
        is_last = segment is segments[-1]
        if segment.length != file_bytes and not (is_last and segment.length == 0):
            what = f"has {segment.length} bytes instead of {file_bytes}"
            on_problem(WrongFileError(segment.path, what, SIZE_STEP))


def _check_chain(segments: list[SegmentFile], file_bytes: int, on_problem: OnProblem) -> None:
    for segment in segments:
        if segment.base_offset % file_bytes:
            what = f"is named after an offset that is no multiple of the file size {file_bytes}"
            on_problem(WrongFileError(segment.path, what, SIZE_STEP))
    for before, segment in pairwise(segments):
        step = segment.base_offset - before.base_offset
        if step == 0:
            what = f"is there twice, the other one is {before.path}"
            on_problem(WrongFileError(segment.path, what, "Move one of the two away."))
        elif step != file_bytes:
            what = f"should follow {before.path.name} by {file_bytes} bytes, but follows by {step}"
            on_problem(WrongFileError(segment.path, what, GAP_STEP))


def _queue_files(topic: str, queue_id: int, path: Path, on_problem: OnProblem) -> QueueFiles:
    bases = []
    for name in _names(path):
        base = parse_segment_name(name)
        if base is not None:
            bases.append(base)
        elif not os.path.isdir(path / name):  # noqa: PTH112  (never raises)
            what = "is not named as a segment is (20 digits)"
            on_problem(WrongFileError(path / name, what, "Move it out of this directory."))
    if not bases:
        return QueueFiles(topic, queue_id, 0, 0, 0)
    return QueueFiles(topic, queue_id, min(bases), max(bases), len(bases))


def _queue_id(name: str) -> int | None:
    # Java reads the name with Integer.parseInt and skips a directory that it cannot read.
    if not name.isascii() or not name.removeprefix("-").isdigit() or len(name) > 11:
        return None
    number = int(name)
    return number if str(number) == name and -(2**31) <= number < 2**31 else None


def _subdirectories(directory: Path) -> list[tuple[str, Path]]:
    found = [(entry.name, Path(entry.path)) for entry in _entries(directory) if _kind(entry)[0]]
    found.sort()
    return found


def _entries(directory: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return list(entries)
    except FileNotFoundError:
        return []
    except OSError as cause:
        raise io_error(directory, "list", cause) from cause


def _names(directory: Path) -> list[str]:
    try:
        return os.listdir(directory)  # noqa: PTH208  (half the cost of iterdir, for 80 000 queues)
    except OSError as cause:
        raise io_error(directory, "list", cause) from cause


def _kind(entry: os.DirEntry[str]) -> tuple[bool, bool]:
    """Return whether it is a directory, and whether it is a plain file; a link counts as what it leads to."""
    try:
        return entry.is_dir(), entry.is_file()
    except OSError as cause:
        raise io_error(entry.path, "look at", cause) from cause


def _length(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat().st_size
    except OSError as cause:
        raise io_error(entry.path, "look at", cause) from cause
