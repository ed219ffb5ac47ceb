"""The few steps of a job that must not be cut off in the middle."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from orbitmq.spark.progress import JobProgress


@contextmanager
def uninterrupted(progress: JobProgress) -> Iterator[None]:
    """Let Ctrl-C wait for the end of what is done inside, which is a matter of milliseconds.

    KeyboardInterrupt: it was pressed before, while the JVM finished the job.
    """
    if progress.interrupted:
        raise KeyboardInterrupt
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ignore(number: int, frame: FrameType | None) -> None:
        """Too late to leave everything as it was; the command ends by itself at once."""

    before = signal.signal(signal.SIGINT, ignore)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
