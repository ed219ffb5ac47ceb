"""The stream over a store directory without Spark around it: golden stores and a store that is written."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

import golden_stores
from orbitmq.errors import ConfigError, NotAStoreError, PipelineError
from orbitmq.store.config import StoreConfig
from orbitmq.store.store import MessageStore
from orbitmq.testing.builders import make_request
from spark.stream_world import Batches, open_reader, rows_between, through_json

SEGMENT = 16 * 1024


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with MessageStore.open(StoreConfig(root=tmp_path / "store", segment_bytes=SEGMENT)) as opened:
        append(opened, 0, 40)
        yield opened


@pytest.fixture
def root(store: MessageStore, tmp_path: Path) -> str:
    return str(tmp_path / "store")


def append(store: MessageStore, start: int, end: int) -> list[int]:
    """Append messages; return their log offsets."""
    found = [store.append(make_request(number, body_bytes=400)) for number in range(start, end)]
    return [result.log_offset for result in found]


def offsets(rows) -> list[int]:
    return sorted(row["log_offset"] for row in rows)


@pytest.mark.feature("P8")
@pytest.mark.parametrize("name", ["mixed", "crashed", "cleaned"])
def test_stream_over_a_golden_store_has_the_rows_of_its_manifest(name: str, tmp_path: Path) -> None:
    root = golden_stores.unpack(name, tmp_path)
    config = tmp_path / "broker.conf"
    lines = [f"{key}={value}" for key, value in golden_stores.settings(name).items()]
    config.write_text("\n".join(lines))
    expected = sorted(row["phyOffset"] for row in golden_stores.rows(name, "record"))

    with open_reader(path=str(root), config=str(config), maxRowsPerTrigger="37") as reader:
        stream = Batches(reader)
        found, sizes = [], []
        while stream.at != stream.before or not sizes:
            batch = stream.next()
            found += batch
            sizes.append(len(batch))

    assert offsets(found) == expected
    assert max(sizes) <= 37


@pytest.mark.feature("P8")
def test_latest_starts_where_the_first_batch_was_planned_also_when_that_batch_is_repeated(
    store, root
) -> None:
    with open_reader(path=root, startingOffsets="latest") as reader:
        stream = Batches(reader)
        assert stream.next() == []
        first = stream.at
        new = append(store, 40, 50)
        assert offsets(stream.next()) == new
        second = stream.at
    more = append(store, 50, 60)

    with open_reader(path=root, startingOffsets="latest") as reader:
        initial = through_json(reader.initialOffset())
        assert rows_between(reader, initial, first) == []
        assert offsets(rows_between(reader, first, second)) == new
        assert offsets(Batches(reader, second).next()) == more


@pytest.mark.feature("P8")
def test_timestamp_starts_with_the_first_record_stored_then_or_later(store, root) -> None:
    with open_reader(path=root) as reader:
        rows = Batches(reader).next()
    middle = rows[20]["store_time"]
    expected = [row["log_offset"] for row in rows if row["store_time"] >= middle]

    start = f"timestamp:{round(middle.timestamp() * 1000)}"
    with open_reader(path=root, startingOffsets=start) as reader:
        assert offsets(Batches(reader).next()) == expected


@pytest.mark.feature("P8")
@pytest.mark.parametrize("limit", [1, 600, 2_000, 50_000])
def test_limit_by_bytes_is_kept_but_for_a_record_that_is_larger(store, root, limit: int) -> None:
    with open_reader(path=root, maxBytesPerTrigger=str(limit)) as reader:
        stream = Batches(reader)
        found = []
        while len(found) < 40:
            batch = stream.next()
            assert len(batch) == 1 or sum(row["size"] for row in batch) <= limit
            found += batch

    assert len(set(offsets(found))) == 40


def test_both_limits_hold(store, root) -> None:
    options = {"maxRowsPerTrigger": "3", "maxBytesPerTrigger": "100m"}
    with open_reader(path=root, **options) as reader:
        assert len(Batches(reader).next()) == 3
    options = {"maxRowsPerTrigger": "30", "maxBytesPerTrigger": "2000"}
    with open_reader(path=root, **options) as reader:
        assert len(Batches(reader).next()) == 3


def test_small_splits_give_the_same_rows(store, root) -> None:
    with open_reader(path=root, splitBytes="700") as reader:
        stream = Batches(reader)
        found = stream.next()
        tasks = reader.partitions(stream.before, stream.at)

    assert len(found) == 40
    assert len(set(offsets(found))) == 40
    assert len(tasks) > 20


def test_available_now_ends_with_what_was_there_when_it_began(store, root) -> None:
    with open_reader(path=root, maxRowsPerTrigger="7") as reader:
        reader.prepareForTriggerAvailableNow()
        append(store, 40, 60)

        assert len(Batches(reader).all()) == 40
        assert reader.reportLatestOffset() == {"log": store.max_log_offset}


def test_only_the_topics_that_are_asked_for_are_read(store, root) -> None:
    store.append(make_request(100, topic="OtherTopic"))
    with open_reader(path=root, topics="OtherTopic") as reader:
        (row,) = Batches(reader).next()

    assert row["topic"] == "OtherTopic"


def test_segments_deleted_before_they_were_read_are_an_error_that_says_what_to_set(
    store, root
) -> None:
    with open_reader(path=root, maxRowsPerTrigger="5") as reader:
        stream = Batches(reader)
        stream.next()
        read = stream.at
    Path(root, "commitlog", f"{0:020d}").unlink()

    with (
        open_reader(path=root) as reader,
        pytest.raises(PipelineError, match=r"from \d+ to 16384 is not there.*badRecords to skip"),
    ):
        Batches(reader, read).next()
    with open_reader(path=root, badRecords="skip") as reader:
        found = Batches(reader, read).next()
    assert min(offsets(found)) == SEGMENT
    assert len(found) < 35


def test_segment_deleted_between_plan_and_task_follows_the_same_rule(store, root) -> None:
    for mode, expected in (("fail", PipelineError), ("skip", None)):
        with open_reader(path=root, badRecords=mode) as reader:
            end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
            first, *_ = reader.partitions(reader.initialOffset(), end)
            path = Path(root, "commitlog", f"{0:020d}")
            path.rename(path.with_suffix(".away"))
            try:
                if expected is None:
                    assert list(reader.read(first)) == []
                else:
                    with pytest.raises(expected, match="badRecords"):
                        list(reader.read(first))
            finally:
                path.with_suffix(".away").rename(path)


def test_log_that_is_shorter_than_the_checkpoint_is_an_error(store, root) -> None:
    with open_reader(path=root) as reader:
        for call in (
            lambda: reader.latestOffset({"log": 10**9}, ReadAllAvailable()),
            lambda: reader.partitions({"log": 0}, {"log": 10**9}),
        ):
            with pytest.raises(PipelineError, match="the stream has read it up to 1000000000"):
                call()


@pytest.mark.parametrize("value", [{}, {"log": -2}, {"log": "7"}, {"queues": {}, "from": {}}])
def test_checkpoint_of_another_kind_of_stream_is_refused(store, root, value) -> None:
    with open_reader(path=root) as reader, pytest.raises(PipelineError, match="checkpointLocation"):
        reader.latestOffset(value, ReadAllAvailable())


def test_offsets_per_queue_are_for_a_cluster_only(store, root) -> None:
    start = json.dumps({"T": {"b": {"0": 1}}})
    with (
        pytest.raises(ConfigError, match="queue offsets are for a cluster"),
        open_reader(path=root, startingOffsets=start),
    ):
        pass


def test_directory_without_a_store_is_named(tmp_path: Path) -> None:
    with (
        open_reader(path=str(tmp_path / "nowhere")) as reader,
        pytest.raises(NotAStoreError, match="nowhere"),
    ):
        Batches(reader).next()


def test_nothing_is_opened_before_it_is_needed_so_that_a_reader_can_be_sent_to_tasks(
    store, root
) -> None:
    import pickle

    with open_reader(path=root) as reader:
        copy = pickle.loads(pickle.dumps(reader))
        stream = Batches(reader)
        stream.next()
        (task,) = reader.partitions(stream.before, stream.at)[:1]

        assert sum(batch.num_rows for batch in copy.read(pickle.loads(pickle.dumps(task)))) > 0
