"""`orbitmq spark lake`: each topic is kept as long as it is to be, and many small files become few."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from command import call
from orbitmq.message import AppendRequest
from orbitmq.spark.jobs.compact import rewrite
from orbitmq.spark.jobs.compact.job import compact
from orbitmq.spark.jobs.export import iceberg
from orbitmq.spark.jobs.export.care import expire
from orbitmq.spark.jobs.export.iceberg import NAMESPACE, open_catalog
from orbitmq.spark.jobs.query.lake import read_lake
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
from spark.query_world import offsets_of
from spark.test_export_kills import TABLES, DyingDisk, KilledError

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


def small_files(root: Path, lake: Path, format_: str, rounds: int = 4) -> None:
    """Make a lake with many files of a day, from messages whose keys do not follow the log."""
    for number in range(rounds):
        export_here(root, lake, format=format_)
        append(root, 10, ("Orders", "Payments"), seed=number)
    export_here(root, lake, format=format_)


def key_ranges(lake: Path) -> list[tuple[str, str]]:
    """Return the first and last key of each row group of today's file of Orders, by its statistics."""
    names = [part.path for part in read_lake(lake).files if part.topic == "Orders" and part.order]
    assert len(names) == DAYS + 1
    footer = pq.read_metadata(max(names))
    at = {footer.schema.column(at).path: at for at in range(footer.num_columns)}[
        "keys.list.element"
    ]
    groups = [footer.row_group(number).column(at) for number in range(footer.num_row_groups)]
    return [(group.statistics.min, group.statistics.max) for group in groups]


@pytest.mark.feature("P18")
@pytest.mark.parametrize("format_", FORMATS)
def test_small_files_become_few_and_exports_go_on(
    format_: str, store: Path, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    small_files(store, lake, format_)
    rows = log_rows(store, "Orders")
    words = ("spark", "lake", "compact", lake, "--exclusive", "--output", "json")

    dry = json.loads(call(*words, "--dry-run", "--topic", "Orders").stdout)
    done = call(*words, "--topic", "Orders")
    again = json.loads(call(*words, "--topic", "Orders").stdout)
    compacted = lake_rows(lake, format_, "Orders")
    append(store, 4, ("Orders",), seed=9)
    export_here(store, lake, format=format_)

    table = json.loads(done.stdout)["tables"]["Orders"]
    assert {name: table[name] for name in ("days", "removed", "added", "rows")} == {
        "days": 1,
        "removed": 4,
        "added": 1,
        "rows": 20,
    }
    assert dry["tables"]["Orders"]["removed"] == 4
    assert '"stage":"compact"' in done.stderr
    assert again["tables"] == {}
    assert compacted == rows
    assert lake_rows(lake, format_, "Orders") == log_rows(store, "Orders")
    assert export_here(store, lake, format=format_).rows == 0
    assert not leftovers(lake)


@pytest.mark.feature("P18")
@pytest.mark.parametrize("format_", FORMATS)
def test_rows_of_a_day_are_sorted_by_key_and_only_once(
    format_: str, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rewrite, "SORTED_GROUP_BYTES", 1_000)
    lake = tmp_path / "lake"
    small_files(store, lake, format_)

    done = compact(lake, cluster_by=["keys"], exclusive=True)
    again = compact(lake, cluster_by=["keys"], exclusive=True)

    ranges = key_ranges(lake)
    assert len(ranges) > 3
    assert [low for low, _ in ranges] == sorted(low for low, _ in ranges)
    assert done.tables["Orders"].rows == len(log_rows(store, "Orders"))
    assert again.tables == {}
    for topic in ("Orders", "Payments"):
        assert lake_rows(lake, format_, topic) == log_rows(store, topic)


@pytest.mark.feature("P18")
def test_rows_that_are_too_many_to_be_sorted_at_once_are_sorted_all_the_same(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rewrite, "SORT_BYTES", 2_000)
    lake = tmp_path / "lake"
    small_files(store, lake, "parquet")

    compact(lake, cluster_by=["tags", "keys"], exclusive=True, topics=["Orders"])

    parts = [part for part in read_lake(lake).files if part.topic == "Orders" and part.order]
    today = max(Path(part.path).parent for part in parts)
    files = sorted(Path(part.path) for part in parts if Path(part.path).parent == today)
    found = [sorted_columns(path) for path in files]
    assert len(files) > 3
    assert all(rows == sorted(rows) for rows in found)
    least = min(rows[0][0] for rows in found)
    assert len({rows[0][0] for rows in found}) > 2
    without_tag = [rows for rows in found if rows[-1][0] == "~"]
    assert without_tag
    assert all(rows[0][0] > least for rows in without_tag)  # they are behind all others
    assert lake_rows(lake, "parquet", "Orders") == log_rows(store, "Orders")


def test_rows_without_a_value_are_of_the_last_range() -> None:
    values = pa.array(["a", None, "c", "b"])
    assert rewrite._range_of(values, ["b", "c"]).tolist() == [0, 2, 2, 1]


def sorted_columns(path: Path) -> list[tuple[str, str, int]]:
    """Return what rows are sorted by; a tag that is missing comes last."""
    columns = pq.read_table(path, columns=["tags", "keys", "log_offset"]).to_pylist()
    return [(row["tags"] or "~", *row["keys"][:1], row["log_offset"]) for row in columns]


@pytest.mark.feature("P10", "P18")
@pytest.mark.parametrize("format_", FORMATS)
def test_a_compaction_that_dies_at_any_step_leaves_no_gap_and_no_double(
    format_: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, replace, steps, finished = tmp_path / "log", TABLES[format_].replace, 0, False
    append(root, 12, ("Orders",))
    wanted = log_rows(root, "Orders")
    while not finished:
        lake, disk = tmp_path / f"lake{steps}", DyingDisk(steps)
        for offset in (wanted[6][0], 0):
            export_here(root, lake, format=format_, topics=["Orders"], from_offset=offset)

        def dying(*given: Any, disk: DyingDisk = disk) -> None:
            disk.step()
            replace(*given)
            disk.step()

        with monkeypatch.context() as patched:
            patched.setattr(TABLES[format_], "replace", dying)
            try:
                compact(lake, cluster_by=["keys"], exclusive=True, disk=disk)
                finished = True
            except KilledError:
                pass

        in_view = sorted(row for part in read_lake(lake).files for row in offsets_of(part.path))
        assert in_view == [row[0] for row in wanted], f"after {steps} steps"
        again = compact(lake, cluster_by=["keys"], exclusive=True)
        assert lake_rows(lake, format_, "Orders") == wanted, f"after {steps} steps"
        assert not finished or again.tables == {}
        assert export_here(root, lake, format=format_).rows == 0
        assert not leftovers(lake), f"after {steps} steps"
        steps += 1
    assert steps > 6


@pytest.mark.feature("P18")
def test_what_another_writer_adds_to_a_table_meanwhile_stays(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = tmp_path / "lake"
    small_files(store, lake, "iceberg")
    opened = open_catalog(lake).load_table((NAMESPACE, "Orders"))
    extra = opened.scan().to_arrow().slice(0, 1)
    made, added = iceberg._parquet_files_to_data_files, []

    def added_meanwhile(*given: Any, **more: Any) -> Any:
        if not added:
            added.append(1)
            open_catalog(lake).load_table((NAMESPACE, "Orders")).append(extra)
        return made(*given, **more)

    monkeypatch.setattr(iceberg, "_parquet_files_to_data_files", added_meanwhile)
    compact(lake, topics=["Orders"])

    rows = log_rows(store, "Orders")
    twice = next(row for row in rows if row[0] == extra["log_offset"][0].as_py())
    assert lake_rows(lake, "iceberg", "Orders") == sorted([*rows, twice])
    assert added


@pytest.mark.feature("P16")
def test_a_compaction_that_cannot_be_is_refused_in_one_sentence(
    store: Path, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    export_here(store, lake)
    cases = (
        ((lake,), "say --exclusive when nobody reads it meanwhile"),
        ((lake, "--topic", "Ordrs"), "no table of this topic"),
        ((lake, "--cluster-by", "body"), "must be of topic, queue_id"),
        ((lake, "--cluster-by", "colour"), "must be of topic, queue_id"),
        ((tmp_path,), "is no directory that"),
    )

    for arguments, words in cases:
        said = call("spark", "lake", "compact", *arguments)
        assert (said.returncode, words in said.stderr) == (2, True), said.stderr
    assert lake_rows(lake, "parquet", "Orders") == log_rows(store, "Orders")
