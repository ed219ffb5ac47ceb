"""Paths that travel: made absolute on the driver, looked for on the machine of a task.

Executors have working directories of their own, and may be other machines. A path that the driver has looked
at names the same files there, or the job must say so: nothing of a store that is not there may count as read.
"""

import errno
import os
import platform
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Final

from pyspark import TaskContext

from orbitmq.errors import StoreError, StoreIOError

SAME_PATH: Final = (
    "The store must lie at the same path on all machines; or read it through the brokers"
    " (option namesrv)."
)
_LOG_PATHS: Final = ("storePathCommitLog", "readOnlyCommitLogStorePaths")
_GONE: Final = (errno.ENOENT, errno.ENOTDIR)
_of_the_jvm: Final = ContextVar("of_the_jvm", default=False)


def absolute_text(text: str) -> str:
    """Return a path as every process understands it; `file:` is Spark's way to say that it is local."""
    local = re.sub(r"^file:(//)?", "", text)
    return local if not local or "://" in local else str(Path(local).absolute())


def absolute_settings(settings: Mapping[str, str] | None) -> dict[str, str]:
    """Return RocketMQ's settings with the directories of the log made absolute."""
    given = dict(settings or {})
    for key in _LOG_PATHS:
        if key in given:
            parts = (part.strip() for part in given[key].split(","))
            given[key] = ",".join(str(Path(part).absolute()) for part in parts if part)
    return given


def without_log_paths(settings: Mapping[str, str] | None) -> dict[str, str]:
    """Return RocketMQ's settings for a store that was copied elsewhere, whose log lies with the rest."""
    return {key: value for key, value in (settings or {}).items() if key not in _LOG_PATHS}


@contextmanager
def task_of_the_jvm() -> Iterator[None]:
    """Count as a task inside the `with`, in a process of which Spark's Python side knows nothing."""
    token = _of_the_jvm.set(True)
    try:
        yield
    finally:
        _of_the_jvm.reset(token)


def _is_task() -> bool:
    return _of_the_jvm.get() or TaskContext.get() is not None


def unseen_error(path: str, error: StoreIOError) -> StoreError:
    """Return the error for a file that cannot be opened; in a task, whether this machine is the reason."""
    if error.errno not in _GONE or not _is_task():
        return error
    directory = os.path.dirname(path)  # noqa: PTH120  (a text stays one)
    if not os.path.isdir(directory):  # noqa: PTH112
        return _unseen(directory)
    step = "It was deleted since the job began, or another directory lies there on that machine."
    cause = OSError(error.errno, os.strerror(error.errno))
    return StoreIOError(path, f"{error.operation} on {platform.node()}", cause, step)


def require_seen(directory: str | Path) -> None:
    """Raise StoreError in a task whose machine does not have this directory of the driver's."""
    if _is_task() and not os.path.isdir(directory):  # noqa: PTH112
        raise _unseen(str(directory))


def _unseen(directory: str) -> StoreError:
    what = f"the executor on {platform.node()} does not see this directory, which the driver sees"
    return StoreError(directory, what, SAME_PATH)
