"""Stores at a distance, on a real S3 server: the rows and the findings are those of the same store here."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from command import call
from golden_stores import damage, settings, unpack
from orbitmq.errors import ConfigError, CorruptRecordError, NotAStoreError, OrbitError, StoreError
from orbitmq.format.properties import encode_properties
from orbitmq.log_read import plan_log
from orbitmq.message import AppendRequest
from orbitmq.spark.jobs.verify.job import verify
from orbitmq.spark.remote import objects
from orbitmq.spark.remote.address import Address
from orbitmq.spark.remote.fetched import fetched_bytes
from orbitmq.spark.remote.segment import BLOCK_BYTES, open_remote
from orbitmq.spark.source.metrics import read_metrics
from orbitmq.spark.source.schemas import MESSAGE_SCHEMA
from orbitmq.spark.source.source import OrbitmqSource
from orbitmq.store.config import StoreConfig
from orbitmq.store.store import MessageStore
from orbitmq.store.verify.check import check_store
from orbitmq.units import KiB, MiB
from spark.reading_world import read_rows
from spark.s3_world import BUCKET, KEYS, S3Server
from spark.table_world import table_rows

pytestmark = pytest.mark.spark

FAULTS = ("flip-early", "flip-late-clean", "tail-size-only", "cq-zero-unit", "index-chain-self")
SECRET = KEYS["AWS_SECRET_ACCESS_KEY"]
LONG = {"mappedFileSizeCommitLog": str(16 * MiB)}


class Pair:
    """A store here and its copy at a distance."""

    def __init__(self, root: Path, url: str, conf: Path) -> None:
        self.root, self.url, self.conf = root, url, conf

    def rows(self, **options: object) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Return the rows of both."""
        here = read_rows(self.root, config=self.conf, **options)
        there = read_rows(self.url, config=self.conf, **options)
        address = self.url.partition("?")[0]
        for row in there:
            row["error"] = row["error"] and row["error"].replace(address, str(self.root))
        return here, there


def conf_of(path: Path, given: dict[str, str]) -> Path:
    path.write_text("".join(f"{name}={value}\n" for name, value in given.items()))
    return path


@pytest.fixture(scope="module")
def mixed(s3: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """A store of a real broker, with queues and index."""
    directory = tmp_path_factory.mktemp("mixed")
    root = unpack("mixed", directory)
    conf = conf_of(directory / "broker.conf", settings("mixed"))
    return Pair(root, s3.upload(root, "mixed/store"), conf)


@pytest.fixture(scope="module")
def long_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store whose one segment is longer than what a split needs of it."""
    root = tmp_path_factory.mktemp("long") / "store"
    config = StoreConfig(root=root, segment_bytes=16 * MiB, index_enabled=False)
    with MessageStore.open(config, background=False) as store:
        for number in range(150):
            body = bytes([number % 251]) * (number * 1_500 % (150 * KiB))
            store.append(AppendRequest(f"T{number % 3}", number % 2, body))
    return root


@pytest.mark.feature("P19")
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"splitBytes": "50k"},
        {"badRecords": "keep"},
        {"startTime": "2020-01-01", "endTime": "now"},
        {"queueId": "1", "startQueueOffset": "2", "endQueueOffset": "9"},
    ],
    ids=str,
)
def test_a_store_at_a_distance_has_the_rows_of_the_same_store_here(
    mixed: Pair, options: dict[str, str]
) -> None:
    here, there = mixed.rows(**options)

    assert here
    assert there == here


@pytest.mark.feature("P19")
def test_a_key_is_looked_up_in_the_index_and_not_by_fetching_the_log(
    mixed: Pair, tmp_path: Path
) -> None:
    everything, _ = mixed.rows()
    wanted = next(row for row in reversed(everything) if row["keys"])
    chosen = {"topics": wanted["topic"], "keys": wanted["keys"][0]}

    here, there = mixed.rows(**chosen, metricsPath=tmp_path)

    assert wanted in here
    assert there == here
    assert plan_log(mixed.root, settings("mixed")).log_bytes > 4 * BLOCK_BYTES
    assert 0 < read_metrics(str(tmp_path)).fetched_bytes <= 2 * BLOCK_BYTES * len(here)


@pytest.mark.feature("P19")
def test_entries_of_an_index_are_brought_here_for_a_look_up(s3: S3Server, tmp_path: Path) -> None:
    root, figures = tmp_path / "store", tmp_path / "figures"
    slots = 20_000  # they alone are more than a block
    config = StoreConfig(root=root, segment_bytes=16 * MiB, index_slots=slots, index_items=1_000)
    with MessageStore.open(config, background=False) as store:
        for number in range(120):
            keys = encode_properties({"KEYS": f"k{number}"})
            store.append(AppendRequest("Orders", 0, b"b" * 100_000, keys))
    sizes = {"maxHashSlotNum": str(slots), "maxIndexNum": "1000"}
    conf = conf_of(tmp_path / "broker.conf", LONG | sizes)
    pair = Pair(root, s3.upload(root, "indexed/store"), conf)

    here, there = pair.rows(topics="Orders", keys="k10", metricsPath=figures)

    assert [row["queue_offset"] for row in here] == [10]
    assert there == here
    # Of 12 MB: what lies behind the last entry, for which reading begins before it, and one record.
    assert read_metrics(str(figures)).fetched_bytes < 6 * MiB


@pytest.mark.feature("P19")
def test_queue_offsets_are_looked_up_in_queues_that_are_short_enough(
    s3: S3Server, tmp_path: Path
) -> None:
    root, figures = tmp_path / "store", tmp_path / "figures"
    config = StoreConfig(root=root, segment_bytes=MiB, cq_file_bytes=2000, index_enabled=False)
    with MessageStore.open(config, background=False) as store:
        for number in range(120):
            store.append(AppendRequest(f"T{number % 3}", number % 2, b"b" * 20_000))
    conf = conf_of(tmp_path / "broker.conf", {"mappedFileSizeCommitLog": str(MiB)})
    pair = Pair(root, s3.upload(root, "queues/store"), conf)
    chosen = {"topics": "T1", "queueId": "1", "startQueueOffset": "3", "endQueueOffset": "5"}

    here, there = pair.rows(**chosen, metricsPath=figures)

    assert [row["queue_offset"] for row in here] == [3, 4]
    assert there == here
    found = read_metrics(str(figures))
    assert found.lookup_bytes > 0
    assert found.records < 20  # of both
    assert found.fetched_bytes <= 3 * BLOCK_BYTES


@pytest.mark.feature("P19")
@pytest.mark.parametrize("bad", [(), (3 * MiB, 40 * KiB), (2 * MiB, 6 * MiB)], ids=str)
def test_a_split_fetches_what_it_needs_and_goes_on_behind_damage_as_it_does_here(
    bad: tuple[int, int], s3: S3Server, long_root: Path, tmp_path: Path
) -> None:
    segment = long_root / "commitlog" / f"{0:020}"
    whole = segment.read_bytes()
    conf = conf_of(tmp_path / "broker.conf", LONG)
    try:
        if bad:
            start, length = bad
            with segment.open("r+b") as file:
                file.seek(start)
                file.write(b"\x5a" * length)
        pair = Pair(
            long_root, s3.upload(long_root, f"long/{bad or 'whole'}".replace(" ", "")), conf
        )
        before = fetched_bytes()

        here, there = pair.rows(badRecords="keep", splitBytes="1m")

        assert len(here) > 60
        assert any(row["error"] for row in here) == bool(bad)
        assert there == here
        fetched = fetched_bytes() - before
        read = plan_log(long_root, LONG).log_bytes
        # To find a split's first record some megabytes before it are read, here as there.
        assert read < fetched < 9 * read
    finally:
        segment.write_bytes(whole)


@pytest.mark.feature("P19")
def test_only_the_blocks_that_are_read_come_and_those_left_behind_go(
    s3: S3Server, long_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"commitlog/{0:020}"
    bytes_here = (long_root / name).read_bytes()
    address = Address.of(s3.upload(long_root, "blocks")).below(name)
    monkeypatch.setattr("orbitmq.spark.remote.segment.KEPT_BYTES", 2 * BLOCK_BYTES)
    segment = open_remote(address, 0, sliding=True)
    before = fetched_bytes()

    near = segment.near(10 * BLOCK_BYTES + 5, 12 * BLOCK_BYTES)
    first = fetched_bytes() - before
    more = segment.near(near, 12 * BLOCK_BYTES)
    segment.near(40 * BLOCK_BYTES, 41 * BLOCK_BYTES)

    assert (near, more) == (11 * BLOCK_BYTES, 12 * BLOCK_BYTES)
    assert first == BLOCK_BYTES
    assert not segment.data[: 38 * BLOCK_BYTES].any()
    assert (
        segment.data[40 * BLOCK_BYTES : 41 * BLOCK_BYTES].tobytes()
        == (bytes_here[40 * BLOCK_BYTES : 41 * BLOCK_BYTES])
    )
    again = segment.bring(10 * BLOCK_BYTES, 13 * BLOCK_BYTES)
    wanted = bytes_here[10 * BLOCK_BYTES : 13 * BLOCK_BYTES]
    assert again[10 * BLOCK_BYTES : 13 * BLOCK_BYTES].tobytes() == wanted


@pytest.mark.feature("P19")
@pytest.mark.parametrize("reader", ["auto", "rows"])
def test_spark_reads_a_store_at_a_distance(
    reader: str, interpreted: SparkSession, mixed: Pair
) -> None:
    found = {}
    for path in (mixed.root, mixed.url):
        table = interpreted.read.format("orbitmq").options(
            config=str(mixed.conf), reader=reader, splitBytes="100k"
        )
        frame = table.load(str(path)).where("queue_id = 1 and size > 200")
        found[path] = sorted(frame.select("topic", "log_offset", "tags", "body").collect())

    assert found[mixed.root]
    assert found[mixed.url] == found[mixed.root]


@pytest.mark.feature("P19")
def test_a_damaged_store_has_the_findings_of_a_check_here(
    spark: SparkSession, s3: S3Server, tmp_path: Path
) -> None:
    root = unpack("crashed", tmp_path)
    for variant in FAULTS:
        damage(root, variant)
    wanted = check_store(root, settings("crashed"))
    url = s3.upload(root, "crashed/store")

    report = verify(spark, url, settings("crashed"), split_bytes=30_000)

    assert len(wanted.findings) >= len(FAULTS)
    told = [
        str(finding).replace(f"s3://{BUCKET}/crashed/store", str(root))
        for finding in report.findings
    ]
    assert told == [str(finding) for finding in wanted.findings]
    assert all(str(finding.path).startswith("s3://") for finding in report.findings)
    assert (report.records, report.log_end) == (wanted.records, wanted.log_end)
    with pytest.raises(CorruptRecordError, match="s3://orbitmq-tests/crashed/store/commitlog/0"):
        table_rows(path=url, config=conf_of(tmp_path / "broker.conf", settings("crashed")))


@pytest.mark.feature("P19", "P16")
def test_a_gap_is_told_by_its_address(s3: S3Server, mixed: Pair) -> None:
    url = s3.upload(mixed.root, "gap/store")
    objects = s3.objects("gap/store")
    segments = [one.name for one in objects.list("commitlog")]
    objects.delete([segments[1]])

    with pytest.raises(
        NotAStoreError, match=rf"s3://orbitmq-tests/gap/store/{segments[0]}: the log"
    ):
        table_rows(path=url, config=mixed.conf)
    objects.put("commitlog/5", b"5")
    with pytest.raises(StoreError, match="s3://orbitmq-tests/gap/store/commitlog/5:"):
        table_rows(path=url, config=mixed.conf)


def refusals(s3: S3Server) -> Iterator[tuple[str, str]]:
    """Yield addresses that cannot be read, and words of the sentence that says so."""
    yield s3.url("nothing/here"), "is no message store"
    yield f"s3://no-such-bucket/store?endpoint={s3.endpoint}", "NoSuchBucket"
    yield (
        "s3://orbitmq-tests/store?endpoint=http://127.0.0.1:1",
        "http://127.0.0.1:1 does not answer",
    )
    yield f"s3://key:{SECRET}@orbitmq-tests/store", "set AWS_ACCESS_KEY_ID"
    yield "s3://orbitmq-tests/store?endpont=x", "takes endpoint and region"
    yield "s3://orbitmq-tests/../store", "must be s3://bucket/prefix"
    yield "s3://orbitmq-tests/store?endpoint=minio:9000", "must be http"


@pytest.mark.feature("P19", "P16")
def test_what_cannot_be_reached_is_said_in_one_sentence_without_keys(
    s3: S3Server, mixed: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    for url, words in refusals(s3):
        with pytest.raises(OrbitError) as raised:
            table_rows(path=url)
        assert words in str(raised.value)
        assert SECRET not in str(raised.value)
        assert "\n" not in str(raised.value)

    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    objects._objects_at.cache_clear()
    try:
        with pytest.raises(StoreError, match="SignatureDoesNotMatch") as refused:
            table_rows(path=mixed.url)
    finally:
        objects._objects_at.cache_clear()
    assert "another" not in str(refused.value)
    assert KEYS["AWS_ACCESS_KEY_ID"] not in str(refused.value)


@pytest.mark.feature("P19", "P16")
def test_what_changes_or_follows_a_store_needs_a_directory(mixed: Pair, tmp_path: Path) -> None:
    for words in (
        ("store", "check"),
        ("store", "repair"),
        ("spark", "rebuild"),
        ("spark", "dispatch"),
    ):
        said = call(*words, mixed.url)
        assert said.returncode == 2
        assert "copy it to a directory" in said.stderr
    said = call("spark", "export", "--from", mixed.url, "--to", tmp_path / "lake", "--follow")
    assert said.returncode == 2
    assert "does not grow" in said.stderr
    (tmp_path / "rows.json").write_text('{"topic": "T"}')
    said = call("spark", "load", tmp_path / "rows.json", "--to", "s3://orbitmq-tests/new")
    assert said.returncode == 2
    assert "s3://orbitmq-tests/new': a store is made in a directory" in said.stderr
    source = OrbitmqSource(options={"path": mixed.url})
    with pytest.raises(ConfigError, match="does not grow"):
        source.streamReader(MESSAGE_SCHEMA)


@pytest.mark.feature("P19", "P16")
def test_a_command_says_before_spark_starts_that_there_is_no_store(s3: S3Server) -> None:
    for words in (("verify",), ("export", "--to", "lake", "--from")):
        said = call("spark", *words, s3.url("nothing"))

        assert said.returncode == NotAStoreError.exit_code
        assert "s3://orbitmq-tests/nothing: is no message store" in said.stderr
        assert not Path("lake").exists()
