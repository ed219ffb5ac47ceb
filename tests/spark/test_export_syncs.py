"""What an export has made durable when its commit begins, when files get their names, and when it is done."""

from pathlib import Path

import pytest

from orbitmq.spark.jobs.export import parts
from spark.export_world import append, export_here
from spark.test_rebuild_syncs import RecordingDisk

pytestmark = pytest.mark.spark


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> RecordingDisk:
    made = RecordingDisk()
    monkeypatch.setattr(parts, "Disk", lambda: made)  # what tasks use, which run here
    return made


@pytest.mark.feature("P10")
def test_every_step_is_durable_before_the_next_counts_on_it(
    disk: RecordingDisk, tmp_path: Path
) -> None:
    store, lake = tmp_path / "store", tmp_path / "lake"
    append(store, 60)

    export_here(store, lake, format="delta", disk=disk)

    begun = disk.first("rename", "pending.json")
    done = disk.first("rename", "00000001.json")
    moves = [call for call in disk.calls[begun:done] if call.target.endswith(".parquet")]
    assert len(moves) == 2
    for move in moves:
        assert disk.first("sync", move.path) < begun
    attempt = str(Path(moves[0].path).parent)
    assert disk.first("names", attempt) < begun
    assert disk.first("sync", "pending.tmp") < begun
    named = disk.calls.index(moves[-1])
    later = [call for call in disk.calls[named:done] if call.kind == "names"]
    assert {call.path for call in later} >= {str(Path(move.target).parent) for move in moves}
    assert disk.first("all", "lake") in range(named, done)
    assert disk.calls[done + 1].path == str(lake / "_orbitmq" / "commits")
