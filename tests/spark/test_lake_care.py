"""`orbitmq spark lake`: each topic is kept as long as it is to be, and many small files become few."""

import json
from pathlib import Path

import pytest

from command import call
from orbitmq.message import AppendRequest
from orbitmq.spark.jobs.export.care import expire
from orbitmq.store.store import MessageStore
from orbitmq.testing import FakeClock
from orbitmq.units import HOUR_MS
from spark.export_world import (
    FORMATS,
    append,
    config_of,
    export_here,
    lake_rows,
    leftovers,
    log_rows,
)
from spark.test_export_kills import DyingDisk, KilledError

pytestmark = pytest.mark.spark

DAY_MS = 24 * HOUR_MS
NOW_MS = 20_600 * DAY_MS + 5 * HOUR_MS
DAYS = 6


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with two messages of two topics on each of six days, the last one today."""
    clock = FakeClock(NOW_MS - (DAYS - 1) * DAY_MS)
    root = tmp_path / "store"
    with MessageStore.open(config_of(root), background=False, clock=clock) as opened:
        for _ in range(DAYS):
            for number in range(4):
                opened.append(AppendRequest(("Orders", "Payments")[number % 2], 0, b"body"))
            clock.advance(DAY_MS)
    return root


@pytest.mark.feature("P10", "P18")
@pytest.mark.parametrize("format_", FORMATS)
def test_each_topic_is_kept_as_long_as_it_is_to_be(
    format_: str, store: Path, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    export_here(store, lake, format=format_)
    wanted = {topic: log_rows(store, topic) for topic in ("Orders", "Payments")}

    dry = expire(lake, {"Orders": 2, "*": 4}, now_ms=NOW_MS, dry_run=True)
    assert lake_rows(lake, format_, "Orders") == wanted["Orders"]
    done = expire(lake, {"Orders": 2, "*": 4}, now_ms=NOW_MS)
    again = export_here(store, lake, format=format_)

    assert dry.expired == done.expired == {"Orders": "2026-05-25", "Payments": "2026-05-23"}
    assert lake_rows(lake, format_, "Orders") == wanted["Orders"][-6:]
    assert lake_rows(lake, format_, "Payments") == wanted["Payments"][-10:]
    assert (again.rows, again.commit) == (0, 2)
    assert not leftovers(lake)


@pytest.mark.feature("P10")
@pytest.mark.parametrize("steps", range(1, 4))
def test_an_expiry_that_dies_is_finished_by_whoever_comes_next(
    steps: int, store: Path, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    export_here(store, lake)
    with pytest.raises(KilledError):
        expire(lake, {"*": 1}, now_ms=NOW_MS, disk=DyingDisk(steps))

    export_here(store, lake)
    expire(lake, {"*": 1}, now_ms=NOW_MS)

    for topic in ("Orders", "Payments"):
        assert lake_rows(lake, "parquet", topic) == log_rows(store, topic)[-4:]
    assert not leftovers(lake)


@pytest.mark.feature("P16")
def test_the_command_says_what_it_removed_or_why_it_cannot(store: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    export_here(store, lake)
    cases = (
        ((tmp_path, "--keep", "*=1d"), "is no directory that"),
        ((lake, "--keep", "Ordrs=1d"), "no table of this topic"),
        ((lake, "--keep", "Orders"), "must be TOPIC=DAYS"),
        ((lake, "--keep", "Orders=0d"), "must be TOPIC=DAYS"),
    )

    for arguments, words in cases:
        said = call("spark", "lake", "expire", *arguments)
        assert said.returncode == 2
        assert words in said.stderr
    done = call("spark", "lake", "expire", lake, "--keep", "*=99999", "--output", "json")

    assert json.loads(done.stdout)["commit"] == 2
    assert lake_rows(lake, "parquet", "Orders") == log_rows(store, "Orders")


@pytest.mark.feature("P18")
def test_small_files_of_delta_become_few_and_exports_go_on(store: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    for seed in range(4):
        export_here(store, lake, format="delta")
        append(store, 10, ("Orders",), seed=seed)

    done = call("spark", "lake", "compact", lake, "--output", "json")
    export_here(store, lake, format="delta")
    again = export_here(store, lake, format="delta")

    assert json.loads(done.stdout)["Orders"] == {"removed": 3, "added": 1}
    assert lake_rows(lake, "delta", "Orders") == log_rows(store, "Orders")
    assert again.rows == 0


@pytest.mark.feature("P16")
@pytest.mark.parametrize("format_", ["parquet", "iceberg"])
def test_files_that_cannot_be_exchanged_in_one_step_stay(
    format_: str, store: Path, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    export_here(store, lake, format=format_)

    said = call("spark", "lake", "compact", lake)

    assert said.returncode == 2
    assert "a lake in Delta can be compacted" in said.stderr
    assert lake_rows(lake, format_, "Orders") == log_rows(store, "Orders")
