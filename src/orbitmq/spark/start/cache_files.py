"""Small files that other programs are given: written once, kept in the user's cache directory."""

import atexit
import fcntl
import hashlib
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Final

_LOCK: Final = ".orbitmq-process-lives"
"""In directories that go with a process, and in no others: without its owner such a directory is removed."""


def cached_file(name: str, text: str, *, mode: int = 0o644) -> Path:
    """Return a file `name` (may hold a directory) with this text, from the cache or made now."""
    try:
        return _make_file(cache_directory() / name, text, mode)
    except OSError:  # no home directory, or one that is full
        return _make_file(own_directory() / name, text, mode)


def cached_script(directory: str, name: str, script: str) -> Path:
    """Return a program with this text, in a directory of its own that is named by it."""
    digest = hashlib.sha256(script.encode()).hexdigest()[:12]
    return cached_file(f"{directory}-{digest}/{name}", script, mode=0o755)


def cache_directory() -> Path:
    """Return the user's directory for such files; nothing says that it is there or can be made."""
    caches = os.environ.get("XDG_CACHE_HOME")
    try:
        return Path(caches or Path.home() / ".cache") / "orbitmq"
    except RuntimeError as error:
        raise FileNotFoundError("this user has no home directory") from error


@cache
def own_directory(prefix: str = "orbitmq-") -> Path:
    """Return a directory that goes with this process."""
    return private_directory(prefix)


def private_directory(prefix: str) -> Path:
    """Make a directory that nobody else may look into, and that goes with this process.

    Those of processes that were killed are removed: each holds a lock in its own as long as it lives.
    """
    for path in Path(tempfile.gettempdir()).glob(f"{prefix}????????"):
        if _is_left_behind(path / _LOCK):
            shutil.rmtree(path, ignore_errors=True)
    # Not a fixed name below /tmp: another user could put a file of theirs there before us.
    directory = Path(tempfile.mkdtemp(prefix=prefix))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    made = directory / f"{_LOCK}.tmp"  # under its name it is locked from the first moment on
    fcntl.flock(os.open(made, os.O_RDWR | os.O_CREAT, 0o600), fcntl.LOCK_EX)  # never closed
    made.rename(directory / _LOCK)
    return directory


def _is_left_behind(lock: Path) -> bool:
    """Return whether nobody has this lock, of ours; one that cannot be looked at is somebody else's."""
    try:
        with lock.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _make_file(target: Path, text: str, mode: int) -> Path:
    if target.exists() and target.read_text() == text and target.stat().st_mode & 0o777 == mode:
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    # Another process may be about to use it: it must be there whole or not at all.
    fresh = target.with_name(f"{target.name}-{os.getpid()}")
    fresh.write_text(text)
    fresh.chmod(mode)
    return fresh.replace(target)
