"""Continuous dispatch on Spark: a broker whose queues and index only the job writes."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession

from command import run
from dispatch_job import filled_files, live_files_of_log
from orbitmq.client import Admin, Consumer, Message, Producer
from orbitmq.errors import JobFailedError, NotAStoreError, StoreError, StoreLockedError
from orbitmq.spark.jobs.dispatch.job import (
    RETRIES,
    DispatchJob,
    DispatchOptions,
    DispatchProgress,
)
from orbitmq.store.config import DispatchMode, StoreConfig
from orbitmq.store.spark_dispatch.handover import Handover
from orbitmq.store.store import MessageStore
from orbitmq.testing.broker import Broker
from orbitmq.testing.builders import make_request
from orbitmq.units import MiB

pytestmark = pytest.mark.spark

WAIT_SECONDS = 120.0
SIZES = {
    "segment_bytes": 4 * MiB,
    "cq_file_bytes": 4000,
    "index_slots": 500,
    "index_items": 2000,
}
SETTINGS = {
    "dispatch": "spark",
    "mappedFileSizeCommitLog": str(SIZES["segment_bytes"]),
    "mappedFileSizeConsumeQueue": str(SIZES["cq_file_bytes"]),
    "maxHashSlotNum": str(SIZES["index_slots"]),
    "maxIndexNum": str(SIZES["index_items"]),
}


def config_of(root: Path) -> StoreConfig:
    return StoreConfig(root=root, dispatch=DispatchMode.SPARK, **SIZES)


@contextmanager
def running_job(spark: SparkSession, root: Path) -> Iterator[DispatchJob]:
    """Run a job in a thread for the length of the body; its error is the test's."""
    failures: list[BaseException] = []
    job = DispatchJob(spark, root)

    def run_it() -> None:
        try:
            job.run()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run_it, name="job")
    thread.start()
    try:
        yield job
    finally:
        job.stop()
        thread.join()
    assert not failures, failures


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.feature("P7")
def test_clients_see_everything_through_a_broker_that_the_job_dispatches_for(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "store"
    got: Counter[bytes] = Counter()
    seen: dict[bytes, float] = {}
    sent: dict[bytes, float] = {}

    def handle(message: object) -> None:
        body = bytes(message.body)  # type: ignore[attr-defined]
        got[body] += 1
        seen.setdefault(body, time.monotonic())

    with (
        Broker(root, settings=SETTINGS) as broker,
        Producer(broker.namesrv, "producers") as producer,
        Admin(broker.namesrv) as admin,
        running_job(spark, root),
    ):
        producer.send(Message("Orders", b"first"))
        with Consumer(broker.namesrv, "group", "Orders", handle, start_from="first"):
            wait_until(lambda: bool(got))
            # From here on the consumer's pulls wait at the broker: each batch has to wake them.
            for number in range(100):
                body = b"%d" % number
                sent[body] = time.monotonic()
                producer.send(Message("Orders", body, tag="A", keys=[f"key{number}"]))
                time.sleep(0.02)  # sleep: messages for more than one batch
            producer.send(Message("Orders", b"delayed", delay_level=1))
            wait_until(lambda: len(got) == 102)
        assert set(got) == {b"first", b"delayed", *sent}
        assert set(got.values()) == {1}
        (found,) = admin.messages_by_key("Orders", "key31")
        assert found.body == b"31"
        info = admin.broker_runtime(broker.address)
        assert info["dispatchMode"] == "spark"
        assert int(info["dispatchBehindBytes"]) == 0
    taken_ms = np.array([seen[body] - sent[body] for body in sent]) * 1000
    with capsys.disabled():
        p50, p99 = np.percentile(taken_ms, [50, 99])
        print(f"\nsend to consumer through Spark: p50 {p50:.0f} ms, p99 {p99:.0f} ms")  # noqa: T201
    assert filled_files(root) == live_files_of_log(config_of(root), tmp_path / "live")
    assert not list((root / "orbitmq.dispatch").glob("checkpoint-*"))


@pytest.mark.feature("P7")
def test_once_dispatches_a_large_rest_in_several_tasks_and_batches(
    spark: SparkSession, tmp_path: Path
) -> None:
    config = config_of(tmp_path / "store")
    with MessageStore.open(config) as store:
        store.append_many(
            [make_request(n, f"T{n % 3}", keys=f"k{n}", body_bytes=8000) for n in range(4000)]
        )
        end = store.max_log_offset
        options = DispatchOptions(once=True, batch_bytes=20 * MiB)
        progress = DispatchJob(spark, config.root, options).run()

        assert progress[:4] == (end, 0, 4000, 2)
        assert store.wait_dispatched(timeout=20)
        assert store.max_offset("T0", 0) == 334
        assert store.query("T1", "k3001", exact=True)
        assert DispatchJob(spark, config.root, options).run()[:4] == (end, 0, 0, 0)
    assert filled_files(config.root) == live_files_of_log(config, tmp_path / "live")


def test_the_job_goes_on_after_the_store_was_opened_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    config = config_of(tmp_path / "store")
    MessageStore.open(config).close()
    with running_job(spark, config.root):
        for life in range(2):
            with MessageStore.open(config) as store:
                store.append_many([make_request(100 * life + n, keys=f"k{n}") for n in range(100)])
                assert store.wait_dispatched(timeout=WAIT_SECONDS)
                assert store.max_offset("TopicTest", 0) == 25 * (life + 1)
                if life:
                    store.delete_topic("TopicTest")
                    store.append(make_request(0))
                    assert store.wait_dispatched(timeout=WAIT_SECONDS)
                    assert store.max_offset("TopicTest", 0) == 1


def test_the_job_ends_with_a_sentence_when_the_broker_dispatches_itself(
    spark: SparkSession, tmp_path: Path
) -> None:
    config = config_of(tmp_path / "store")
    MessageStore.open(config).close()
    failure: list[Exception] = []
    shown: list[DispatchProgress] = []
    job = DispatchJob(spark, config.root, show=shown.append)

    def run_it() -> None:
        try:
            job.run()
        except StoreError as error:
            failure.append(error)

    thread = threading.Thread(target=run_it)
    thread.start()
    wait_until(lambda: bool(shown))
    with MessageStore.open(replace(config, dispatch=DispatchMode.LIVE)) as store:
        store.append(make_request(0))
        assert store.wait_dispatched(timeout=20)
        thread.join(WAIT_SECONDS)
    assert [str(error) for error in failure] == [
        f"{config.root}: the broker of this store dispatches itself, or never ran. "
        "Start it with `orbitmq broker run --dispatch spark`."
    ]


@pytest.mark.parametrize("failures", [1, 100], ids=["once", "always"])
def test_a_query_that_spark_ends_is_tried_again_a_few_times(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failures: int
) -> None:
    config = config_of(tmp_path / "store")
    calls = Counter[str]()
    real = DispatchJob._dispatch

    def failing(job: DispatchJob, writer: object, frame: object) -> None:
        calls["batch"] += 1
        if calls["batch"] <= failures:
            raise RuntimeError("a worker is gone")
        real(job, writer, frame)  # type: ignore[arg-type]

    monkeypatch.setattr(DispatchJob, "_dispatch", failing)
    with MessageStore.open(config) as store:
        store.append_many([make_request(n) for n in range(8)])
        job = DispatchJob(spark, config.root, DispatchOptions(once=True))
        if failures == 1:
            assert job.run().behind_bytes == 0
            assert store.wait_dispatched(timeout=20)
        else:
            with pytest.raises(JobFailedError, match="a worker is gone"):
                job.run()
            assert calls["batch"] == RETRIES + 1
            assert store.dispatched_offset == 0


def test_what_cannot_work_is_refused_in_a_sentence(spark: SparkSession, tmp_path: Path) -> None:
    config = config_of(tmp_path / "store")
    with MessageStore.open(config) as store:
        with Handover(config.root).only_job(), pytest.raises(StoreLockedError, match="another"):
            DispatchJob(spark, config.root).run()
        store.append(make_request(0))
        store.tick()
    shown = Handover(config.root).readable_offset()
    assert shown is not None
    Handover(config.root).publish(replace(shown, closed=False, told_ms=0))  # as after a kill
    with pytest.raises(StoreError, match="its broker was killed"):
        DispatchJob(spark, config.root, DispatchOptions(once=True)).run()
    with pytest.raises(NotAStoreError, match="--dispatch spark"):
        DispatchJob(spark, tmp_path).run()
    assert not (tmp_path / "orbitmq.dispatch").exists()


def test_the_command_refuses_before_spark_starts(tmp_path: Path) -> None:
    MessageStore.open(replace(config_of(tmp_path), dispatch=DispatchMode.LIVE)).close()

    ended = run("spark", "dispatch", tmp_path)

    assert ended.returncode == 4
    assert ended.stderr.splitlines()[-1].endswith(
        "the broker of this store dispatches itself, or never ran. "
        "Start it with `orbitmq broker run --dispatch spark`."
    )


def test_a_spark_without_the_quicker_checkpoint_dispatches_with_its_usual_one(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = {"spark.sql.streaming.checkpointFileManagerClass": "org.apache.spark.NoSuchManager"}
    monkeypatch.setattr("orbitmq.spark.jobs.dispatch.job.QUICK_NOTES", gone)
    config = config_of(tmp_path / "store")
    with MessageStore.open(config) as store:
        store.append_many([make_request(n) for n in range(8)])

        progress = DispatchJob(spark, config.root, DispatchOptions(once=True)).run()

        assert progress[:3] == (store.max_log_offset, 0, 8)
        assert store.wait_dispatched(timeout=20)
