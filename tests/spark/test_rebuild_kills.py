"""A rebuild that is killed or interrupted: the store is the old one or the new one, and nothing is left."""

import shutil
import signal
from pathlib import Path

import pytest

from golden_stores import GOLDEN, settings, unpack
from orbitmq.files.disk import FilePath
from orbitmq.spark.jobs.rebuild.job import rebuild
from orbitmq.testing.forwarding_disk import ForwardingDisk
from spark.faulty_commands import FaultyCommand
from spark.rebuild_world import (
    InProcessSpark,
    copy_of,
    files_below,
    leftovers,
    made_files,
    rebuild_here,
)

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.timeout(600)]

STORE = "timer"
CONFIG = ("--config", GOLDEN / f"{STORE}.conf")
MASTER = "local[2]"
INTERRUPT_SECONDS = 100.0
"""Less than a task that holds would take."""


class KilledError(BaseException):
    """Stands for the end of the process."""


class DyingDisk(ForwardingDisk):
    """Ends the process at one of its steps; after that nothing reaches the disk."""

    def __init__(self, steps: int, *, can_exchange: bool) -> None:
        super().__init__()
        self.steps_left = steps
        self._can_exchange = can_exchange

    def _step(self) -> None:
        if self.steps_left <= 0:
            raise KilledError
        self.steps_left -= 1

    def rename(self, source: FilePath, target: FilePath) -> None:
        self._step()
        self.inner.rename(source, target)

    def exchange(self, first: FilePath, second: FilePath) -> bool:
        self._step()
        return self._can_exchange and self.inner.exchange(first, second)

    def make_directory(self, path: FilePath) -> None:
        self._step()
        self.inner.make_directory(path)

    def sync_directory(self, path: FilePath) -> None:
        self._step()
        self.inner.sync_directory(path)

    def write_at(
        self, path: FilePath, fd: int, position: int, data: bytes | bytearray | memoryview
    ) -> None:
        self._step()
        self.inner.write_at(path, fd, position, data)


def spoilt_store(tmp_path: Path) -> tuple[Path, dict[str, dict[str, bytes]]]:
    """Return a store whose queues and index hold zeros, and what they should hold."""
    root = unpack(STORE, tmp_path)
    good = made_files(root)
    for part in ("consumequeue", "index"):
        for path in (root / part).rglob("*"):
            if path.is_file():
                path.write_bytes(bytes(path.stat().st_size))
    return root, good


@pytest.mark.feature("P15")
@pytest.mark.parametrize("can_exchange", [True, False])
def test_a_driver_that_dies_at_any_step_leaves_the_old_or_the_new_files(
    can_exchange: bool, tmp_path: Path
) -> None:
    root, good = spoilt_store(tmp_path)
    bad = made_files(root)
    finished = False
    steps = 0
    while not finished:
        copy = copy_of(root, tmp_path / "copy")
        spark = InProcessSpark()
        disk = DyingDisk(steps, can_exchange=can_exchange)
        try:
            rebuild(spark, copy, settings(STORE), disk=disk)  # type: ignore[arg-type]
            finished = True
        except KilledError:
            pass
        now = made_files(copy)
        for part in good:
            if can_exchange:
                assert now[part] in (good[part], bad[part]), f"{part} after {steps} steps"
            else:  # for a moment there may be none, and then the next rebuild brings it back
                assert now[part] in (good[part], bad[part], {}), f"{part} after {steps} steps"
        rebuild_here(copy, settings(STORE))
        assert made_files(copy) == good
        assert not leftovers(copy)
        shutil.rmtree(copy)
        steps += 1
    assert steps > 20


@pytest.mark.feature("P15")
def test_a_killed_driver_is_started_again(tmp_path: Path) -> None:
    root, good = spoilt_store(tmp_path)
    bad = made_files(root)
    for stage in ("scan", "build"):
        place = tmp_path / stage
        place.mkdir()
        with FaultyCommand(
            place, MASTER, "rebuild", root, *CONFIG, faults={stage: {"0": "hold"}}
        ) as held:
            held.wait_for_call(f"{stage}0-0")
            held.process.kill()
            held.process.communicate()
        assert made_files(root) == bad

    with FaultyCommand(tmp_path, MASTER, "rebuild", root, *CONFIG) as rebuild:
        rebuild.wait()

    assert made_files(root) == good
    assert not leftovers(root)


@pytest.mark.feature("P15", "P16")
@pytest.mark.parametrize("stage", ["scan", "build"])
def test_ctrl_c_leaves_the_store_as_it_was(stage: str, tmp_path: Path) -> None:
    root, _ = spoilt_store(tmp_path)
    before = files_below(root)
    faults = {stage: {"0": "hold"}}
    with FaultyCommand(tmp_path, MASTER, "rebuild", root, *CONFIG, faults=faults) as held:
        held.wait_for_call(f"{stage}0-0")

        held.process.send_signal(signal.SIGINT)
        output, _ = held.process.communicate(timeout=INTERRUPT_SECONDS)

    assert held.process.returncode == 130, held.said
    assert "made from" not in output
    assert "Traceback" not in held.said
    assert files_below(root) == before
    assert not leftovers(root)
