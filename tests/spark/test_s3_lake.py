"""Lakes at a distance, on a real S3 server: their rows, kills before every step, one export at a time."""

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from command import call, run
from orbitmq.errors import ConfigError, JobFailedError, PipelineError, StoreLockedError
from orbitmq.spark import query
from orbitmq.spark.jobs.compact.job import compact
from orbitmq.spark.jobs.export.care import expire
from orbitmq.spark.jobs.export.delta import DeltaTables, storage_options
from orbitmq.spark.jobs.export.iceberg import NAMESPACE, IcebergTables, open_catalog
from orbitmq.spark.jobs.export.lakes.remote import LOCK, RemoteLake, RemotePlainTables
from orbitmq.spark.jobs.export.notes import Manifest
from orbitmq.spark.remote import lease
from orbitmq.spark.remote.address import Address
from orbitmq.spark.remote.lease import Lease
from orbitmq.spark.remote.objects import Objects
from spark.export_world import (
    COLUMNS,
    FORMATS,
    Row,
    append,
    export_here,
    lake_rows,
    log_rows,
    write_conf,
)
from spark.s3_world import S3Server

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

TABLES: dict[str, Any] = {
    "parquet": RemotePlainTables,
    "delta": DeltaTables,
    "iceberg": IcebergTables,
}
VISIBLE = ("Orders", "Payments")
STEPS = ("put", "create", "put_file", "copy", "delete")
KILLED_FORMATS = FORMATS if os.environ.get("ORBITMQ_S3_KILLS") == "whole" else ("parquet", "delta")


class KilledError(BaseException):
    """Stands for the end of the process."""


class Lakes:
    """Lakes on the server, by name."""

    def __init__(self, s3: S3Server, directory: Path) -> None:
        self._s3, self._catalog = s3, f"sqlite:///{directory}/catalog.db"

    def given(self, name: str, format_: str) -> dict[str, Any]:
        """Return the arguments of an export."""
        catalog = {"catalog": self._catalog} if format_ == "iceberg" else {}
        return {"lake": self._s3.url(name), "format": format_, **catalog}

    def names(self, name: str) -> list[str]:
        return [found.name for found in self._s3.objects(name).list()]

    def rows(self, name: str, format_: str, topic: str) -> list[Row]:
        """Return the rows of a topic as readers of the format see them, by the server where they can."""
        place = Address.of(self._s3.url(name))
        if not any(one.startswith(f"{topic}/") for one in self.names(name)):
            return []
        match format_:
            case "delta":
                options = storage_options(place)
                table = pa.table(
                    DeltaTable(f"{place}/{topic}", storage_options=options).to_pyarrow_table()
                )
            case "iceberg":
                catalog = open_catalog(place, self._catalog)
                table = catalog.load_table((NAMESPACE, topic)).scan().to_arrow()
                catalog.close()
            case _:
                return lake_rows(self._s3.files / name, format_, topic)
        return sorted(tuple(row[column] for column in COLUMNS) for row in table.to_pylist())


@pytest.fixture
def lakes(s3: S3Server, tmp_path: Path) -> Lakes:
    return Lakes(s3, tmp_path)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("of-the-lake") / "store"
    append(root, 60)
    return root


@pytest.fixture
def short_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever comes after a kill watches the lock for as long as this."""
    monkeypatch.setattr(lease, "LEASE_SECONDS", 2.0)


def leftovers(names: list[str]) -> list[str]:
    return [name for name in names if "attempts" in name or "pending" in name or name == LOCK]


@pytest.mark.feature("P19", "P18")
@pytest.mark.parametrize("format_", FORMATS)
def test_a_store_at_a_distance_becomes_a_lake_at_a_distance_and_again_brings_what_is_new(
    format_: str, s3: S3Server, lakes: Lakes, tmp_path: Path
) -> None:
    root, name = tmp_path / "store", f"lakes/{format_}"
    append(root, 60)
    given = lakes.given(name, format_)

    first = export_here(s3.upload(root, f"{name}-store"), **given)
    again = export_here(f"{s3.url(f'{name}-store')}", **given)
    append(root, 30, seed=8)
    more = export_here(s3.upload(root, f"{name}-more"), **given)

    assert (first.rows, again.rows, more.rows) == (40, 0, 20)
    assert str(first.to) == f"s3://orbitmq-tests/{name}"
    for topic in VISIBLE:
        assert lakes.rows(name, format_, topic) == log_rows(root, topic)
    assert not leftovers(lakes.names(name))


class DyingObjects:
    """Ends the process before one of the requests that change something; none gets through after."""

    def __init__(self, steps: int, patched: pytest.MonkeyPatch, tables: Any) -> None:
        self.steps_left = steps
        for name in STEPS:
            patched.setattr(Objects, name, self._dying(getattr(Objects, name)))
        commit = tables.commit

        def dying_commit(*given: Any) -> None:
            self.step()
            commit(*given)
            self.step()

        patched.setattr(tables, "commit", dying_commit)

    def step(self) -> None:
        if self.steps_left <= 0:
            raise KilledError
        self.steps_left -= 1

    def _dying(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def step_first(*given: Any, **named: Any) -> Any:
            if threading.current_thread().name == "orbitmq-lease":
                return None  # whoever is dead renews nothing
            self.step()
            return call(*given, **named)

        return step_first


@pytest.mark.crash
@pytest.mark.feature("P19", "P10")
@pytest.mark.parametrize("format_", KILLED_FORMATS)
def test_a_driver_that_dies_before_any_step_leaves_no_gap_and_no_double(
    format_: str, store: Path, lakes: Lakes, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = {topic: log_rows(store, topic) for topic in VISIBLE}
    steps, finished = 0, False
    while not finished:
        name = f"kills/{format_}-{steps}"
        given = lakes.given(name, format_)
        with monkeypatch.context() as patched:
            DyingObjects(steps, patched, TABLES[format_])
            try:
                export_here(store, **given)
                finished = True
            except KilledError:
                pass
        before = {one for one in lakes.names(name) if "/day=" in one}
        s3.objects(name).delete([LOCK])  # as if its time was over

        export_here(store, **given)

        assert {topic: lakes.rows(name, format_, topic) for topic in VISIBLE} == wanted, steps
        after = set(lakes.names(name))
        assert before <= after, f"after {steps} steps: what a reader may have seen is gone"
        assert not leftovers(sorted(after)), f"after {steps} steps"
        steps += 1
    assert steps > 10


def killed_export(store: Path, given: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Export, and die when the commit has begun."""
    with monkeypatch.context() as patched:
        DyingObjects(5, patched, RemotePlainTables)
        with pytest.raises(KilledError):
            export_here(store, **given)


@pytest.mark.feature("P19", "P10")
@pytest.mark.usefixtures("short_lease")
def test_what_a_killed_run_had_uploaded_is_taken_over_and_not_read_again(
    store: Path, lakes: Lakes, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = lakes.given("taken-over", "parquet")
    killed_export(store, given, monkeypatch)
    assert any("_orbitmq/pending/" in name for name in lakes.names("taken-over"))

    report = export_here(store, **given)

    assert (report.finished, report.read_bytes) == (2, 0)
    assert lakes.rows("taken-over", "parquet", "Orders") == log_rows(store, "Orders")


@pytest.mark.feature("P19", "P16")
@pytest.mark.usefixtures("short_lease")
def test_a_commit_whose_files_are_gone_says_so(
    store: Path, lakes: Lakes, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = lakes.given("gone", "parquet")
    killed_export(store, given, monkeypatch)
    objects = s3.objects("gone")
    objects.delete([one for one in lakes.names("gone") if "/attempts/" in one or "day=" in one])

    with pytest.raises(
        JobFailedError, match=r"s3://orbitmq-tests/gone/_orbitmq/attempts/.* is gone"
    ):
        export_here(store, **given)


@pytest.mark.feature("P19")
def test_one_export_at_a_time_has_a_lake(store: Path, lakes: Lakes, s3: S3Server) -> None:
    given = lakes.given("locked", "parquet")
    objects = s3.objects("locked")
    with Lease(objects, LOCK, seconds=0.5) as held:
        before = objects.read_tagged(LOCK)
        with pytest.raises(StoreLockedError, match=f"process {os.getpid()} on "):
            export_here(store, **given)
        held.require_held()
    assert before is not None
    assert objects.read(LOCK) is None

    assert export_here(store, **given).rows == 40


@pytest.mark.feature("P19")
def test_a_lock_whose_owner_is_gone_is_taken_by_one_and_its_owner_is_told(s3: S3Server) -> None:
    objects = s3.objects("asleep")
    sleeper = Lease(objects, LOCK, seconds=0.2)
    objects.create(LOCK, b'{"process": 7, "host": "elsewhere"}')

    with Lease(objects, LOCK, seconds=0.2) as taken:
        taken.require_held()
        with pytest.raises(PipelineError, match="slept for too long"):
            sleeper.require_held()
    assert objects.read(LOCK) is None


def manifest(number: int, job: str) -> Manifest:
    return Manifest(
        number=number,
        job=job,
        format="parquet",
        source="log",
        committed_ms=0,
        covered={},
        end_offset=0,
        files=[],
    )


@pytest.mark.feature("P19", "P10")
def test_of_two_who_make_the_same_commit_one_does_whoever_slept(s3: S3Server) -> None:
    notes = RemoteLake(Address.of(s3.url("outrun")), "").notes
    notes.begin(manifest(1, "first"))
    with pytest.raises(PipelineError, match="another export has made commit 1"):
        notes.begin(manifest(1, "second"))
    notes.end(manifest(1, "first"))
    notes.end(manifest(1, "first"))  # once more, by whoever found it
    with pytest.raises(PipelineError, match="another export has made commit 1"):
        notes.begin(manifest(1, "second"))
    with pytest.raises(PipelineError, match="another export has made commit 1"):
        notes.end(manifest(1, "second"))

    s3.objects("outrun").put(
        "_orbitmq/pending/00000001.json", msgspec.json.encode(manifest(1, "killed"))
    )
    assert notes.pending() is None
    last = notes.last()
    assert last is not None
    assert last.job == "first"
    assert [one.name for one in s3.objects("outrun").list()] == ["_orbitmq/commits/00000001.json"]


@pytest.mark.feature("P19", "P10")
@pytest.mark.parametrize("format_", ["parquet", "delta"])
def test_days_are_removed_and_small_files_become_few_at_a_distance(
    format_: str, lakes: Lakes, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    append(store, 60)
    given = lakes.given(f"care/{format_}", format_)
    export_here(store, **given)
    later = 4_000_000_000_000

    append(store, 6, ("Orders", "Payments"), seed=5)
    export_here(store, **given)
    small = compact(given["lake"], exclusive=True, cluster_by=["keys"]).tables["Payments"]
    done = expire(given["lake"], {"Orders": 3}, now_ms=later)

    assert list(done.expired) == ["Orders"]
    assert small.removed > small.added == 1
    assert lakes.rows(f"care/{format_}", format_, "Orders") == []
    assert lakes.rows(f"care/{format_}", format_, "Payments") == log_rows(store, "Payments")
    assert export_here(store, **given).rows == 0


@pytest.mark.feature("P19", "P11")
@pytest.mark.parametrize("format_", FORMATS)
def test_a_lake_at_a_distance_is_searched_with_its_log_as_one_table(
    format_: str, interpreted: SparkSession, lakes: Lakes, tmp_path: Path
) -> None:
    root, given = tmp_path / "store", lakes.given(f"search/{format_}", format_)
    append(root, 30, VISIBLE)
    export_here(root, **given)
    append(root, 10, VISIBLE, seed=8)
    conf = write_conf(tmp_path / "broker.conf")
    catalog = given.get("catalog", "")

    def asked(**more: Any) -> list[int]:
        frame = query(interpreted, lake=given["lake"], catalog=catalog, **more)
        return sorted(row.log_offset for row in frame.collect())

    rows = {topic: log_rows(root, topic) for topic in VISIBLE}
    everything = sorted(row[0] for topic in VISIBLE for row in rows[topic])
    assert asked(store=root, config=conf) == everything
    assert asked() == everything[:30]
    assert asked(store=root, config=conf, keys=["a4"]) == [rows["Orders"][at][0] for at in (2, 17)]
    assert asked(ids=[rows["Payments"][3][4]], topics=["Payments"]) == [rows["Payments"][3][0]]
    if catalog:
        with pytest.raises(ConfigError, match="need a database for their catalog"):
            query(interpreted, lake=given["lake"])


@pytest.mark.feature("P19", "P16")
def test_a_catalog_is_asked_for_where_one_is_needed(
    store: Path, lakes: Lakes, tmp_path: Path
) -> None:
    given = lakes.given("refused", "iceberg")
    del given["catalog"]
    with pytest.raises(ConfigError, match="need a database for their catalog"):
        export_here(store, **given)
    with pytest.raises(ConfigError, match=r"//\.\.\.@db/x.*beside it"):
        export_here(store, tmp_path / "lake", format="iceberg", catalog="postgresql://me:word@db/x")
    said = call("spark", "lake", "expire", given["lake"], "--keep", "*=1d")
    assert said.returncode == 2
    assert "is no directory that" in said.stderr
    assert lakes.names("refused") == []


@pytest.mark.feature("P19", "P16")
def test_the_commands_work_with_addresses(
    s3: S3Server, lakes: Lakes, store: Path, tmp_path: Path
) -> None:
    source = s3.upload(store, "commands/store")
    words = ("--config", write_conf(tmp_path / "broker.conf"), "--master", "local[1]")
    exported = run(
        *("spark", "export", "--from", "s3://orbitmq-tests/commands/store"),
        *("--to", "s3://orbitmq-tests/commands/lake", *words, "--output", "json"),
        AWS_ENDPOINT_URL=s3.endpoint,
    )
    verified = run("spark", "verify", source, *words)

    assert exported.returncode == 0, exported.stderr
    assert json.loads(exported.stdout)["to"] == "s3://orbitmq-tests/commands/lake"
    for topic in VISIBLE:
        assert lakes.rows("commands/lake", "parquet", topic) == log_rows(store, topic)
    assert verified.returncode == 1, verified.stderr  # it was made without an index
    assert "there are no index files" in verified.stdout
    assert "1 finding; 60 records" in verified.stdout
    assert "/tmp" not in verified.stdout
