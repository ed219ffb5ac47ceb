"""What a rebuild has made durable when it gives a name to a file, changes directories, and is trusted.

The disk of the power-cut tests knows no renames of whole directories: here the order of calls is looked at.
"""

from pathlib import Path
from typing import NamedTuple

import pytest

from golden_stores import settings, unpack
from orbitmq.files.disk import Disk, FilePath
from orbitmq.spark.jobs.rebuild import attempt_files
from orbitmq.spark.jobs.rebuild import build as rebuild_build
from orbitmq.spark.jobs.rebuild.attempt_files import PREFIX, AttemptFiles
from orbitmq.spark.jobs.rebuild.job import rebuild
from orbitmq.store.checkpoint import CheckpointFile
from orbitmq.testing.forwarding_disk import ForwardingDisk
from spark.rebuild_world import InProcessSpark

STORE = "timer"


class Call(NamedTuple):
    """What was done to a path, or with one to another."""

    kind: str
    path: str
    target: str = ""


class RecordingDisk(ForwardingDisk):
    """Notes all that changes or syncs something, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []

    def write_at(
        self, path: FilePath, fd: int, position: int, data: bytes | bytearray | memoryview
    ) -> None:
        self.calls.append(Call("write", str(path)))
        super().write_at(path, fd, position, data)

    def sync_data(self, path: FilePath, fd: int, position: int = 0, length: int = 0) -> None:
        self.calls.append(Call("sync", str(path)))
        super().sync_data(path, fd, position, length)

    def sync_directory(self, path: FilePath) -> None:
        self.calls.append(Call("names", str(path)))
        super().sync_directory(path)

    def sync_file_system(self, path: FilePath) -> None:
        self.calls.append(Call("all", str(path)))
        super().sync_file_system(path)

    def rename(self, source: FilePath, target: FilePath) -> None:
        self.calls.append(Call("rename", str(source), str(target)))
        super().rename(source, target)

    def first(self, kind: str, end: str) -> int:
        return next(
            number
            for number, call in enumerate(self.calls)
            if call.kind == kind and (call.target or call.path).endswith(end)
        )


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> RecordingDisk:
    found = RecordingDisk()
    monkeypatch.setattr(rebuild_build, "Disk", lambda: found)
    return found


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return unpack(STORE, tmp_path)


def run(root: Path, disk: RecordingDisk) -> None:
    rebuild(InProcessSpark(), root, settings(STORE), disk=disk)  # type: ignore[arg-type]


def given_names(disk: RecordingDisk) -> list[tuple[int, Call]]:
    found = [
        (number, call)
        for number, call in enumerate(disk.calls)
        if call.kind == "rename" and PREFIX in call.path
    ]
    assert len(found) >= 4
    return found


@pytest.mark.feature("P5")
def test_a_file_is_synced_before_it_gets_its_name(root: Path, disk: RecordingDisk) -> None:
    run(root, disk)

    for number, named in given_names(disk):
        kinds = [call.kind for call in disk.calls[:number] if call.path == named.path]
        assert kinds[-1] == "sync", named
        assert "write" in kinds, named


@pytest.mark.feature("P5")
@pytest.mark.parametrize("one_by_one_max", [1000, 0], ids=["one by one", "file system"])
def test_names_of_files_are_synced_before_directories_change_places(
    one_by_one_max: int, root: Path, disk: RecordingDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempt_files, "SYNC_ONE_BY_ONE_MAX", one_by_one_max)

    run(root, disk)

    names = given_names(disk)
    begun = disk.first("write", "exchange.json.tmp")
    between = disk.calls[names[-1][0] + 1 : begun]
    synced = {call.path for call in between if call.kind == "names"}
    # The directory of a file, and those above it up to the rebuild's own: each may be new.
    wanted = {
        str(above)
        for _, call in names
        for above in Path(call.target).parents
        if above.is_relative_to(root / "orbitmq.rebuild")
    }
    assert wanted <= synced or [call.kind for call in between] == ["all"]
    assert bool(one_by_one_max) == (wanted <= synced)


@pytest.mark.feature("P5")
def test_the_files_are_trusted_when_everything_else_is_done(
    root: Path, disk: RecordingDisk
) -> None:
    run(root, disk)

    moved = max(
        number
        for number, call in enumerate(disk.calls)
        if call.kind == "rename" and call.target in (f"{root}/consumequeue", f"{root}/index")
    )
    synced = next(
        number
        for number, call in enumerate(disk.calls)
        if number > moved and call == Call("names", str(root))
    )
    snapshot = disk.first("rename", "orbitmq.snapshot")
    last = [call.path for call in disk.calls].index(f"{root}/checkpoint", synced)
    assert moved < synced < snapshot < last
    assert {call.path for call in disk.calls[last:]} <= {f"{root}/checkpoint", f"{root}/lock"}
    page = CheckpointFile(root / "checkpoint", Disk()).load()
    assert page is not None
    assert page.extension is not None


def test_attempts_of_a_stage_that_spark_runs_again_have_files_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Context:
        """The first attempt of a task, twice: only its id differs."""

        def __init__(self, attempt_id: int) -> None:
            self.taskAttemptId = lambda: attempt_id
            self.partitionId = lambda: 3
            self.attemptNumber = lambda: 0

    paths = []
    for attempt_id in (17, 18):
        context = Context(attempt_id)
        monkeypatch.setattr(attempt_files.TaskContext, "get", lambda context=context: context)
        files = AttemptFiles("/made", "job", "scan")
        paths += [files.new_path(), files.new_path()]

    assert len(set(paths)) == 4
    assert all(path.startswith("/made/.part-job-scan3-1") for path in paths)
