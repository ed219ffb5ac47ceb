"""Every step of a store's life against power cuts; see cut_points.py."""

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from crash.checker import broker_settings, read_log, require_queues
from crash.cut_points import Cut, Killed, NoSyncDisk, Scene
from crash.workload import FLUSHED, Ack, write_topics
from dispatch_job import StandInJob
from orbitmq.errors import FormatError
from orbitmq.files.disk import Disk
from orbitmq.files.state_file import State, parse_state, read_state, write_state
from orbitmq.format.checkpoint import decode as decode_checkpoint
from orbitmq.format.kernels import plain
from orbitmq.format.record import decode_record
from orbitmq.message import AppendRequest
from orbitmq.store.config import DispatchMode, FlushMode
from orbitmq.store.offline.rebuild import rebuild_store
from orbitmq.store.offline.repair import repair_store
from orbitmq.store.recovery.adopt import RecoveryReport
from orbitmq.store.store import MessageStore
from orbitmq.testing.power_cut import NOTHING, write_image
from orbitmq.units import HOUR_MS, SECOND_MS
from quarantine_journal import read_journal

NEVER_MS = 1000 * HOUR_MS


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory in memory: thousands of files come and go."""
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if memory.is_dir() else None) as directory:
        yield Path(directory)


@pytest.mark.feature("F70", "X8")
def test_an_acknowledged_message_is_there_whenever_the_power_fails(place: Path) -> None:
    scene = Scene(place)
    scene.disk.armed = True

    with scene.open() as store:
        scene.append(store, 10)
        store.tick()  # the next segments are made
        scene.append(store, 18)  # over the end of a segment

    scene.check(least=60)


@pytest.mark.parametrize("kind", ["plain", "ext", "batches", "no-index"])
def test_queues_and_index_that_are_flushed_before_the_log_do_no_harm(
    kind: str, place: Path
) -> None:
    scene = _async_scene(place, kind)
    scene.disk.armed = True

    with scene.open() as store:
        for _ in range(3):
            scene.append(store, 6, step_ms=10 * SECOND_MS)
            scene.clock.advance(61 * SECOND_MS)
            store.tick()  # dispatches, and flushes queues, index, snapshot and checkpoint: not the log
        scene.flush_log(store)
        scene.append(store, 2)
        end = store.max_log_offset

    scene.history.learn([Ack(FLUSHED, end)])  # a stop flushes the log
    scene.check(least=40, may_lose=True)


def _async_scene(place: Path, kind: str = "plain", *, mixed: int = 0, **config: Any) -> Scene:
    # No mixtures: where unsynced parts of a log are lost between others, more is lost than can be checked.
    scene = Scene(
        place,
        mixed=mixed,
        batches=kind == "batches",
        enable_cq_ext=kind == "ext",
        index_enabled=kind != "no-index",
        flush_mode=FlushMode.ASYNC,
        flush_interval_ms=NEVER_MS,
        **config,
    )
    if kind == "batches":
        write_topics(scene.root, scene.disk)
    return scene


@pytest.mark.parametrize("flush_interval_ms", [NEVER_MS, 1])
def test_the_checkpoint_never_says_more_of_the_log_than_is_on_disk(
    flush_interval_ms: int, place: Path
) -> None:
    scene = _async_scene(place, flush_least_pages=2, flush_thorough_ms=NEVER_MS)
    scene.given["flush_interval_ms"] = flush_interval_ms  # full segments only, or none at all
    scene.disk.armed = True

    store = scene.open()
    for _ in range(4):
        scene.append(store, 5, step_ms=10 * SECOND_MS)
        store.tick()
    scene.disk.keep("the end")

    assert len(scene.disk.cuts) > 20
    for cut in scene.disk.cuts:
        page = cut.image.get("checkpoint")
        if page:  # else the store is new
            times = _durable_times(scene, cut)
            assert decode_checkpoint(page).physic_ms <= max(times, default=0), cut.label
    scene.kill()


def _durable_times(scene: Scene, cut: Cut) -> list[int]:
    """Return the store times of the messages that are there, up to the first that is not."""
    times = []
    for ack in cut.history.acked.values():
        base, position = divmod(ack.log_offset, scene.config().segment_bytes)
        name = f"commitlog/{base * scene.config().segment_bytes:020d}"
        try:
            times.append(decode_record(cut.image.get(name) or b"", position).store_ms)
        except FormatError:
            break
    return times


@pytest.mark.parametrize("kind", ["plain", "ext", "batches"])
def test_a_store_that_was_stopped_is_trusted_after_a_power_cut(kind: str, place: Path) -> None:
    scene = _async_scene(place, kind)
    with scene.open() as store:
        scene.append(store, 16)
        end = store.max_log_offset

    scene.history.learn([Ack(FLUSHED, end)])
    scene.check(least=1, then=_require_trusted)


def _require_trusted(_: Path, report: RecoveryReport) -> None:
    assert report.clean
    assert not report.adopted, report.why_adopted
    assert report.records == 0


def test_a_power_cut_during_a_flush_leaves_the_last_snapshot_in_force(place: Path) -> None:
    scene = Scene(place, mixed=0)
    store = scene.open()
    scene.append(store, 8)
    store.tick()
    store.flush()
    before = store.dispatched_offset
    scene.append(store, 6)
    store.tick()
    scene.disk.armed = True

    store.flush()
    scene.kill()

    def is_resumed(_: Path, report: RecoveryReport) -> None:
        assert not report.adopted, report.why_adopted
        assert report.records < 14 or report.start_offset < before

    scene.check(least=10, then=is_resumed)


def test_an_open_store_is_marked_as_such_before_anything_else_is_written(place: Path) -> None:
    scene = Scene(place)
    with scene.open() as store:
        scene.append(store, 5)

    scene.open()
    scene.kill()

    assert "abort" in scene.disk.image(survival=NOTHING)


def test_a_store_is_marked_as_open_before_adoption_changes_its_queues(place: Path) -> None:
    scene = Scene(place)
    with scene.open() as store:
        scene.append(store, 16)
    (scene.root / "orbitmq.snapshot").unlink()
    unit_file = next((scene.root / "consumequeue").rglob("0*0"))
    unit_file.write_bytes(bytes(100))
    scene.disk.sync_file_system(scene.root)
    scene.disk.armed = True

    scene.open().close()

    name = str(unit_file.relative_to(scene.root))
    changed = [cut for cut in scene.disk.cuts if cut.image[name] != bytes(100)]
    assert changed
    assert "abort" in changed[0].image, changed[0].label


@pytest.mark.feature("X8")
def test_what_a_killed_process_left_unsynced_is_synced_by_the_next_one(place: Path) -> None:
    for step in range(1, 1000):
        scene = Scene(place / str(step), kinds=["nothing"], mixed=0)
        scene.disk.kill_at = step
        with suppress(Killed):
            _short_life(scene)
            assert step > 40  # it was not killed: that was the last step
            return
        scene.kill()

        store = scene.open()
        scene.append(store, 3)

        scene.kill()
        scene.check(least=1)


def _short_life(scene: Scene) -> None:
    store = scene.open()
    scene.append(store, 4)
    store.tick()
    scene.append(store, 10)
    store.flush()
    store.close()


@pytest.mark.feature("X8")
@pytest.mark.parametrize("kind", ["plain", "ext", "batches"])
def test_a_power_cut_during_recovery_from_a_kill_loses_nothing(kind: str, place: Path) -> None:
    scene = _async_scene(place, kind)
    store = scene.open()
    scene.append(store, 14)
    scene.clock.advance(61 * SECOND_MS)
    store.tick()
    scene.append(store, 9)
    scene.flush_log(store)
    scene.append(store, 3)
    scene.kill()
    scene.disk.armed = True

    store = scene.open()
    scene.history.learn([Ack(FLUSHED, store.max_log_offset)])  # recovery syncs what it finds
    scene.append(store, 1)
    store.close()

    scene.check(least=15, may_lose=True)


@pytest.mark.feature("X8")
def test_a_power_cut_while_recovery_mends_the_log_loses_nothing_else(place: Path) -> None:
    scene = Scene(place)
    store = scene.open()
    scene.append(store, 24)
    scene.kill()
    bad = [_damage(scene, number) for number in (3, 17)]
    scene.disk.armed = True

    scene.open().close()

    def is_kept(root: Path, _: RecoveryReport) -> None:
        _require_in_quarantine(root, bad)

    scene.check(least=30, then=is_kept)


def _damage(scene: Scene, number: int) -> bytes:
    """Destroy a message for good; return what is at its place now."""
    ack = scene.history.acked.pop(number)
    base = ack.log_offset - ack.log_offset % scene.config().segment_bytes
    path = scene.root / "commitlog" / f"{base:020d}"
    with path.open("r+b") as file:
        file.seek(ack.log_offset - base)
        bad = b"\xff" * 40 + file.read(ack.size)[40:]
        file.seek(ack.log_offset - base)
        file.write(bad)
    scene.disk.sync_file_system(scene.root)
    return bad


def _require_in_quarantine(root: Path, bad: list[bytes]) -> None:
    """What was replaced is kept, and the journal tells of it."""
    quarantine = root / "orbitmq.quarantine"
    journal = {entry["kept"] for entry in read_journal(quarantine)}
    kept = [path for path in quarantine.glob("*.bin") if path.name in journal]
    for content in bad:
        assert any(content.rstrip(b"\0") in path.read_bytes() for path in kept)


OFFSETS = Path("config", "consumerOffset.json")


def _broken_offsets(scene: Scene) -> State:
    """Break a state file; return what the version before it says."""
    versions = [{"offsetTable": {"T@g": {"0": number}}} for number in (1, 2)]
    for version in versions:
        write_state(scene.disk, scene.root / OFFSETS, version)
    (scene.root / OFFSETS).write_text("{")
    scene.disk.sync_file_system(scene.root)
    return versions[0]


@pytest.mark.feature("X8")
def test_a_power_cut_during_repair_loses_nothing_else(place: Path) -> None:
    scene = Scene(place)
    with scene.open() as store:
        scene.append(store, 24)
    bad = [_damage(scene, 5)]
    offsets = _broken_offsets(scene)
    scene.disk.armed = True

    def repair(root: Path, disk: Disk) -> None:
        assert read_state(root / OFFSETS) == offsets  # a broker that is started instead reads them
        settings = broker_settings(scene.config())
        repair_store(root, settings, kernels=plain(), clock=scene.clock, disk=disk)

    repair(scene.root, scene.disk)
    assert parse_state((scene.root / OFFSETS).read_text()) == offsets

    def is_kept(root: Path, _: RecoveryReport) -> None:
        _require_in_quarantine(root, bad)
        assert read_state(root / OFFSETS) == offsets

    # Who repairs and is cut short repairs again.
    scene.check(least=30, before=lambda root: repair(root, NoSyncDisk()), then=is_kept)
    scene.disk.forget()
    scene.check(least=1, then=is_kept)


@pytest.mark.feature("X8")
@pytest.mark.parametrize("can_exchange", [True, False])
def test_a_power_cut_during_a_rebuild_leaves_a_store_that_is_whole(
    can_exchange: bool, place: Path
) -> None:
    scene = Scene(place)
    scene.disk.can_exchange = can_exchange
    with scene.open() as store:
        scene.append(store, 24)
    scene.disk.armed = True

    rebuild_store(
        scene.root,
        broker_settings(scene.config()),
        kernels=plain(),
        clock=scene.clock,
        disk=scene.disk,
    )

    scene.check(least=30)
    scene.disk.forget()
    scene.check(least=1, then=_require_trusted)


def test_no_checkpoint_covers_queues_and_index_while_they_change_places(place: Path) -> None:
    scene = Scene(place, mixed=0)
    with scene.open() as store:
        scene.append(store, 16)
    unit_file = next((scene.root / "consumequeue").rglob("0*0"))
    name, units = str(unit_file.relative_to(scene.root)), unit_file.read_bytes()
    unit_file.write_bytes(bytes(100))
    old_index = {path.name for path in (scene.root / "index").iterdir()}
    scene.disk.sync_file_system(scene.root)
    scene.clock.advance(HOUR_MS)
    scene.disk.armed = True

    rebuild_store(
        scene.root,
        broker_settings(scene.config()),
        kernels=plain(),
        clock=scene.clock,
        disk=scene.disk,
    )

    mixtures = 0
    for cut in scene.disk.cuts:
        new_queues = cut.image.get(name) == units
        new_index = not any(f"index/{old}" in cut.image for old in old_index)
        page = cut.image["checkpoint"]
        assert page is not None
        if new_queues != new_index:
            mixtures += 1
            state = f"{cut.label}: {name} new {new_queues}, of {sorted(cut.image)}"
            assert decode_checkpoint(page).extension is None, state
    assert mixtures > 0


def test_a_rebuild_keeps_the_numbers_of_an_expired_queue_over_a_power_cut(place: Path) -> None:
    scene = Scene(place, retention_ms=HOUR_MS, delete_pause_ms=0)
    scene.clock.set_now_ms(time.time_ns() // 1_000_000)
    with scene.open() as store:
        for _ in range(3):
            store.append(AppendRequest("Expired", 0, b"x"))
        scene.append(store, 30)
        store.tick()
        scene.clock.advance(2 * HOUR_MS)
        store.delete_expired_now()
        assert store.min_offset("Expired", 0) == store.max_offset("Expired", 0) == 3
    scene.disk.armed = True

    rebuild_store(
        scene.root,
        broker_settings(scene.config()),
        kernels=plain(),
        clock=scene.clock,
        disk=scene.disk,
    )
    scene.disk.keep("the end")

    for number, cut in enumerate(scene.disk.cuts):
        root = write_image(cut.image, place / f"cut-{number}")
        with MessageStore.open(scene.config(root), background=False, disk=NoSyncDisk()) as store:
            assert store.max_offset("Expired", 0) == 3, cut.label


@pytest.mark.feature("X8")
@pytest.mark.parametrize("kind", ["plain", "ext", "batches"])
def test_a_power_cut_during_cleaning_takes_only_whole_segments(kind: str, place: Path) -> None:
    scene = _async_scene(
        place, kind, mixed=3, retention_ms=HOUR_MS, delete_pause_ms=0, queue_delete_pause_ms=0
    )
    scene.clock.set_now_ms(time.time_ns() // 1_000_000)  # segments have the time of their files
    store = scene.open()
    scene.append(store, 40)
    scene.flush_log(store)
    store.tick()
    store.flush()
    scene.clock.advance(2 * HOUR_MS)
    scene.disk.armed = True

    store.delete_expired_now()
    assert store.min_log_offset > 0
    store.flush()

    scene.kill()
    scene.check(least=15, cleaned=True)


@pytest.mark.parametrize("kind", ["plain", "ext", "batches"])
def test_a_power_cut_while_a_job_dispatches_leaves_what_it_said(kind: str, place: Path) -> None:
    scene = _async_scene(place, kind, dispatch=DispatchMode.SPARK)
    store = scene.open()
    scene.disk.armed = True

    for _ in range(2):
        scene.append(store, 9)
        scene.flush_log(store)
        store.tick()
        with StandInJob(scene.root, scene.disk) as job:
            job.round()
        store.tick()
    scene.kill()

    def followed(root: Path) -> None:
        config = scene.config(root)
        with MessageStore.open(config, background=False, disk=NoSyncDisk()) as store:
            records = read_log(config, 0, store.max_log_offset)
            told = [one for one in records if one.log_offset < store.dispatched_offset]
            require_queues(store, told)

    scene.check(least=20, before=followed, may_lose=True)
