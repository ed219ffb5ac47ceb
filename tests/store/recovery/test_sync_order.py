"""In which order recovery makes things durable: a power cut at any moment must leave a store that opens."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from orbitmq.files.disk import Disk, FilePath
from orbitmq.message import AppendRequest, QueueType
from orbitmq.store.config import StoreConfig
from orbitmq.store.store import MessageStore
from orbitmq.testing.builders import make_request
from orbitmq.testing.fake_clock import FakeClock

SEGMENT = 16 * 1024


class RecordingDisk(Disk):
    """Notes what is changed and what is made durable, in order."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self._root = root
        self.calls: list[tuple[str, str]] = []

    def _note(self, call: str, path: FilePath) -> None:
        self.calls.append((call, str(Path(path).relative_to(self._root))))

    def open(self, path: FilePath, *, create: bool = False, writable: bool = True) -> int:
        if create and not Path(path).exists():
            self._note("create", path)
        return super().open(path, create=create, writable=writable)

    def write_at(self, path, fd, position, data) -> None:
        self._note("write", path)
        super().write_at(path, fd, position, data)

    def zero(self, path, fd, position, length, **given) -> None:
        self._note("write", path)
        super().zero(path, fd, position, length, **given)

    def rename(self, source: FilePath, target: FilePath) -> None:
        self._note("rename", target)
        super().rename(source, target)

    def remove(self, path: FilePath) -> None:
        self._note("remove", path)
        super().remove(path)

    def sync_data(self, path, fd, position=0, length=0) -> None:
        self._note("sync", path)
        super().sync_data(path, fd, position, length)

    def sync_directory(self, path: FilePath) -> None:
        self._note("sync", path)
        super().sync_directory(path)

    def sync_file_system(self, path: FilePath) -> None:
        self.calls.append(("sync", "everything"))
        super().sync_file_system(path)

    def synced_after(self, path: str, until: tuple[str, str]) -> bool:
        """Tell whether the last change of a file was made durable before `until` happened last.

        By a sync of its own: everything is synced only after a crash, and a cut may come at any start.
        """
        end = len(self.calls) - 1 - self.calls[::-1].index(until)
        calls = self.calls[:end]
        changes = [at for at, call in enumerate(calls) if call == ("write", path)]
        syncs = [at for at, call in enumerate(calls) if call == ("sync", path)]
        assert changes or syncs, f"{path} was never touched"
        return bool(syncs) and (not changes or syncs[-1] > changes[-1])


EVERYTHING = ("sync", "everything")
CHECKPOINTED = ("write", "checkpoint")
SNAPSHOT = ("rename", "orbitmq.snapshot")
LOG = f"commitlog/{0:020d}"


def config(root: Path) -> StoreConfig:
    return StoreConfig(
        root=root,
        segment_bytes=SEGMENT,
        cq_file_bytes=2000,
        batch_cq_file_bytes=460,
        ext_file_bytes=256,
        index_slots=50,
        index_items=200,
        enable_cq_ext=True,
    )


def open_store(root: Path, disk: Disk | None = None, **changes: object) -> MessageStore:
    return MessageStore.open(
        replace(config(root), **changes),
        background=False,
        clock=FakeClock(),
        disk=disk,
        topic_types=lambda t: QueueType.BATCH if t == "B" else QueueType.SIMPLE,
    )


@pytest.fixture
def killed(tmp_path: Path) -> tuple[Path, list[int]]:
    """Return a store that was killed, and where its records lie; the last 20 are in no snapshot."""
    with open_store(tmp_path / "alive") as store:
        places = [store.append(request(n)).log_offset for n in range(30)]
        store.wait_dispatched()
        store.flush()
        places += [store.append(request(n)).log_offset for n in range(30, 50)]
        store.wait_dispatched()
        dispatcher = store._parts.dispatcher
        dispatcher.ext.write_out()
        dispatcher.queues.write_out(thorough=True)
        dispatcher.batch_queues.write_out()
        root = Path(shutil.copytree(tmp_path / "alive", tmp_path / "killed"))
    return root, places


def request(number: int) -> AppendRequest:
    return make_request(number, "B" if number % 5 == 0 else "T", 0, keys=f"k{number}")


def overwrite(root: Path, log_offset: int, data: bytes) -> None:
    base = log_offset // SEGMENT * SEGMENT
    with (root / "commitlog" / f"{base:020d}").open("r+b") as segment:
        segment.seek(log_offset - base)
        segment.write(data)


def recovered(root: Path, **changes: object) -> RecordingDisk:
    disk = RecordingDisk(root)
    with open_store(root, disk, **changes) as store:
        disk.calls.append(("open", "done"))
        disk.report = store.recovery_report
    del disk.calls[disk.calls.index(("open", "done")) :]
    return disk


def test_bad_bytes_are_safe_in_quarantine_before_their_place_is_written(killed) -> None:
    root, places = killed
    overwrite(root, places[40] + 100, b"?")

    calls = recovered(root).calls

    (kept,) = (path for call, path in calls if call == "create" and path.endswith(".bin"))
    mended = calls.index(("write", LOG))
    journal = "orbitmq.quarantine/journal.jsonl"
    for safe in (kept, journal, "orbitmq.quarantine", "."):
        assert ("sync", safe) in calls[calls.index(("create", kept)) : mended]


def test_a_mended_log_is_on_disk_before_a_checkpoint_speaks_of_it(killed) -> None:
    root, places = killed
    overwrite(root, places[40] + 100, b"?")

    disk = recovered(root)

    at = disk.calls.index(("write", LOG))
    assert disk.calls[at + 1] == ("sync", LOG)
    assert disk.synced_after(LOG, CHECKPOINTED)


@pytest.mark.parametrize("trusted", [True, False])
def test_after_a_crash_the_log_is_synced_before_a_checkpoint_calls_it_flushed(
    killed, trusted: bool
) -> None:
    root, _ = killed
    if not trusted:
        (root / "orbitmq.snapshot").unlink()

    disk = recovered(root)

    assert disk.report.adopted is not trusted
    assert EVERYTHING in disk.calls[: disk.calls.index(CHECKPOINTED)]


@pytest.mark.parametrize("kept", [30, 32], ids=["cut", "cut and written"])
def test_cut_queue_files_are_on_disk_before_the_snapshot(killed, kept: int) -> None:
    root, places = killed
    overwrite(root, places[kept], bytes(SEGMENT - places[kept]))

    disk = recovered(root)

    cut = [path for call, path in disk.calls if call == "write" and "consumequeue" in path]
    assert {path.split("/")[0] for path in cut} == {
        "consumequeue",
        "consumequeue_ext",
        "batchconsumequeue",
    }
    assert all(disk.synced_after(path, SNAPSHOT) for path in cut)


def test_removed_segments_are_gone_from_the_directory_before_the_log_goes_on(tmp_path) -> None:
    with open_store(tmp_path / "alive") as store:
        places = [store.append(request(n)).log_offset for n in range(200)]
        store.flush()
        root = Path(shutil.copytree(tmp_path / "alive", tmp_path / "killed"))
    (root / "orbitmq.snapshot").unlink()
    for base in range(0, places[-1], SEGMENT):
        overwrite(root, max(base, places[5]), b"\x17" * (SEGMENT - max(0, places[5] - base)))

    calls = recovered(root).calls

    gone = [at for at, (call, path) in enumerate(calls) if call == "rename" and "commitlog" in path]
    assert len(gone) > 1
    assert all(("sync", "commitlog") in calls[at : calls.index(CHECKPOINTED)] for at in gone)
    assert [calls[at][1] for at in gone] == sorted((calls[at][1] for at in gone), reverse=True)


def test_a_store_that_is_adopted_has_its_abort_file_before_anything_changes(tmp_path) -> None:
    root = tmp_path / "store"
    with open_store(root) as store:
        for number in range(30):
            store.append(request(number))
    (root / "orbitmq.snapshot").unlink()
    queue = root / "consumequeue" / "T" / "0" / f"{0:020d}"
    queue.write_bytes(bytes(2000))

    calls = recovered(root).calls

    marked = calls.index(("create", "abort"))
    changed = next(at for at, (_, path) in enumerate(calls) if path.startswith("consumequeue"))
    assert ("sync", ".") in calls[marked:changed]


def test_ext_units_are_on_disk_before_the_units_that_lead_to_them(killed) -> None:
    root, _ = killed
    (root / "orbitmq.snapshot").unlink()
    for family in ("consumequeue", "consumequeue_ext"):
        for path in (root / family / "T" / "0").iterdir():
            path.unlink()

    disk = recovered(root)

    written = {path for call, path in disk.calls if call == "write" and "consumequeue" in path}
    assert {path.split("/")[0] for path in written} >= {"consumequeue", "consumequeue_ext"}
    assert all(disk.synced_after(path, SNAPSHOT) for path in written)
    first_unit_sync = disk.calls.index(("sync", f"consumequeue/T/0/{0:020d}"))
    ext = [path for path in written if path.startswith("consumequeue_ext")]
    assert all(("sync", path) in disk.calls[:first_unit_sync] for path in ext)


def test_index_files_are_on_disk_before_the_snapshot_that_knows_them(killed) -> None:
    root, _ = killed
    (root / "orbitmq.snapshot").unlink()
    for path in (root / "index").iterdir():
        path.unlink()

    disk = recovered(root, index_items=21)

    written = {path for call, path in disk.calls if call == "write" and path.startswith("index/")}
    assert len(written) > 2
    assert all(disk.synced_after(path, SNAPSHOT) for path in written)
    assert disk.calls.index(SNAPSHOT) < disk.calls.index(CHECKPOINTED)
