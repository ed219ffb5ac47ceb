"""One process per store, Java brokers included."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from orbitmq.errors import NoPermissionError, NoSpaceError, StoreLockedError, WrongFileError
from orbitmq.files.disk import Disk
from orbitmq.files.lock import StoreLock
from orbitmq.testing.fake_disk import FaultyDisk

TRY_LIKE_JAVA = """
import fcntl, sys
with open(sys.argv[1], "r+b") as file:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
    except OSError:
        sys.exit(9)
"""
HOLD = """
import fcntl, sys
file = open(sys.argv[1], "w+b")
fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
print("held", flush=True)
sys.stdin.read()
"""


def another_process_gets_it(path: Path) -> bool:
    result = subprocess.run([sys.executable, "-c", TRY_LIKE_JAVA, str(path)], check=False)
    assert result.returncode in (0, 9)
    return result.returncode == 0


def test_another_process_cannot_lock_byte_0_until_we_release(tmp_path: Path) -> None:
    path = tmp_path / "lock"

    with StoreLock(Disk(), path):
        assert path.read_bytes() == b"lock"

    with StoreLock(Disk(), path):
        assert not another_process_gets_it(path)
    assert another_process_gets_it(path)
    assert path.exists()


def test_a_store_held_by_another_process_names_that_process(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"

    with pytest.raises(StoreLockedError, match=f"process {holder.pid} has this store open"):
        StoreLock(Disk(), path).acquire()

    holder.kill()
    holder.wait(20)
    holder.stdin.close()
    holder.stdout.close()
    StoreLock(Disk(), path).acquire().release()


def test_a_second_opener_in_the_same_process_is_refused_and_does_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    lock = StoreLock(Disk(), path).acquire()

    with pytest.raises(StoreLockedError, match="this process has this store open"):
        StoreLock(Disk(), path).acquire()

    # The refused one must not have given up the lock of the first: POSIX would, on any close.
    assert not another_process_gets_it(path)
    lock.release()
    lock.release()
    StoreLock(Disk(), path).acquire().release()


def test_the_pid_in_abort_is_named_when_the_kernel_tells_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "abort").write_text("4711", encoding="ascii")

    def refuse(*_: int) -> None:
        raise BlockingIOError

    monkeypatch.setattr(fcntl, "lockf", refuse)

    with pytest.raises(StoreLockedError, match="process 4711 has"):
        StoreLock(Disk(), tmp_path / "lock").acquire()


def test_a_forked_child_does_not_believe_to_hold_the_lock(tmp_path: Path) -> None:
    script = """
import os, sys
from pathlib import Path
from orbitmq.errors import StoreLockedError
from orbitmq.files.disk import Disk
from orbitmq.files.lock import StoreLock
path = Path(sys.argv[1])
lock = StoreLock(Disk(), path).acquire()
pid = os.fork()
if pid == 0:
    try:
        StoreLock(Disk(), path).acquire()
    except StoreLockedError as error:
        os._exit(0 if f"process {os.getppid()} has" in str(error) else 3)
    os._exit(2)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
    command = [sys.executable, "-c", script, str(tmp_path / "lock")]

    assert subprocess.run(command, check=False).returncode == 0


def test_what_stops_the_lock_file_is_a_typed_error(tmp_path: Path) -> None:
    (tmp_path / "lock").mkdir()
    disk = FaultyDisk()
    disk.fail("open", "*/denied", 13)

    with pytest.raises(WrongFileError, match="Is a directory"):
        StoreLock(Disk(), tmp_path / "lock").acquire()
    with pytest.raises(NoPermissionError):
        StoreLock(disk, tmp_path / "denied").acquire()


def test_a_failed_write_of_the_lock_leaves_it_free(tmp_path: Path) -> None:
    disk = FaultyDisk()
    disk.fail("write_at", "lock", 28)
    before = set(os.listdir("/proc/self/fd"))  # noqa: PTH208

    with pytest.raises(NoSpaceError, match="No space"):
        StoreLock(disk, tmp_path / "lock").acquire()

    assert set(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
    StoreLock(disk, tmp_path / "lock").acquire().release()
