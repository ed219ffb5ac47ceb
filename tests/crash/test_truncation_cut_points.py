"""The end of a log is cut because its primary does not have it: power cuts before every sync of that."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from crash.cut_points import Scene
from orbitmq.format.checkpoint import decode as decode_checkpoint
from orbitmq.store.cut import wish_cut
from orbitmq.store.recovery.adopt import RecoveryReport
from orbitmq.store.store import MessageStore
from orbitmq.testing.power_cut import write_image
from quarantine_journal import kept_log

KEPT, ALL = 9, 40


@pytest.fixture
def place() -> Iterator[Path]:
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if memory.is_dir() else None) as directory:
        yield Path(directory)


def written(scene: Scene) -> tuple[int, int, bytes]:
    """Fill a store; return where it is to be cut, where it ends, and what lies between."""
    with scene.open() as store:
        scene.append(store, ALL)
        store.tick()
        end = store.max_log_offset
        cut = scene.history.acked[KEPT].log_offset
        views = []
        while (span := store.replication.read(cut + sum(map(len, views)), 1 << 30)) is not None:
            views.append(bytes(span.view))
    return cut, end, b"".join(views)


@pytest.mark.crash
@pytest.mark.feature("F84", "X8")
def test_what_is_cut_off_is_kept_and_what_stays_is_whole_whenever_the_power_fails(
    place: Path,
) -> None:
    scene = Scene(place)
    cut, end, tail = written(scene)
    assert (end - 1) // scene.config().segment_bytes > cut // scene.config().segment_bytes
    wish_cut(scene.config().layout(), scene.disk, cut, "never the primary's")
    for number in range(KEPT, ALL):
        del scene.history.acked[number]
    scene.disk.armed = True

    with scene.open() as store:
        assert store.max_log_offset == cut
        scene.append(store, 3)
        assert store.max_log_offset < end
        new_end = store.max_log_offset

    def is_cut(root: Path, report: RecoveryReport) -> None:
        assert cut <= report.end_offset <= new_end
        assert kept_log(root / "orbitmq.quarantine", cut, len(tail)) == tail

    scene.check(least=20, then=is_cut)
    assert not (scene.root / "orbitmq.cut").exists()


@pytest.mark.crash
@pytest.mark.feature("X8")
def test_a_wish_to_cut_is_there_or_it_is_not_whenever_the_power_fails(place: Path) -> None:
    scene = Scene(place)
    cut, end, tail = written(scene)
    for number in range(KEPT, ALL):
        del scene.history.acked[number]
    scene.disk.armed = True
    wish_cut(scene.config().layout(), scene.disk, cut, "never the primary's")
    ends = set()

    def is_whole(root: Path, report: RecoveryReport) -> None:
        ends.add(report.end_offset)
        if report.end_offset == cut:
            assert kept_log(root / "orbitmq.quarantine", cut, len(tail)) == tail

    scene.check(least=2, then=is_whole)
    assert ends == {cut, end}


@pytest.mark.crash
def test_nothing_is_trusted_that_speaks_of_the_end_before_the_log_is_cut(place: Path) -> None:
    scene = Scene(place, mixed=0)
    cut, end, _ = written(scene)
    wish_cut(scene.config().layout(), scene.disk, cut, "never the primary's")
    scene.disk.armed = True
    scene.open().close()

    for number, state in enumerate(scene.disk.cuts):
        if "orbitmq.snapshot" in state.image and "orbitmq.cut" in state.image:
            segment = state.image[f"commitlog/{end - end % scene.config().segment_bytes:020d}"]
            assert segment is not None, state.label
        root = write_image(state.image, place / f"cut-{number}")
        with MessageStore.open(scene.config(root), background=False) as store:
            assert store.max_log_offset == cut, state.label
            ends = [store.max_offset(*queue) for queue in store.queues()]
            assert sum(ends) == KEPT, state.label
            page = (root / "checkpoint").read_bytes()
            assert decode_checkpoint(page).physic_ms <= scene.clock.now_ms()
