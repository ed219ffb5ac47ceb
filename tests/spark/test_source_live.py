"""Reading beside a writer: every query sees a prefix of the log, whole records only."""

import threading
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from orbitmq.store.config import StoreConfig
from orbitmq.store.store import MessageStore
from orbitmq.testing.builders import make_request
from spark.reading_world import read_rows, table

pytestmark = [
    pytest.mark.spark,
    pytest.mark.feature("P1"),
    pytest.mark.usefixtures("interpreted"),
]

SEGMENT = 64 * 1024
MESSAGES_MAX = 10_000  # rolls every 120 messages
WAIT_SECONDS = 120.0


class Writer:
    """Appends to a store in a thread until it is told to stop."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.offsets: list[int] = []

    def __enter__(self) -> "Writer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.is_set() and len(self.offsets) < MESSAGES_MAX:
            request = make_request(len(self.offsets), body_bytes=300)
            self.offsets.append(self._store.append(request).log_offset)


def test_a_read_sees_a_prefix_of_a_growing_log(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with MessageStore.open(StoreConfig(root=root, segment_bytes=SEGMENT)) as store:
        store.append(make_request(0, body_bytes=300))
        with Writer(store) as writer:
            reads = []
            deadline = time.monotonic() + WAIT_SECONDS
            while len(reads) < 5 or len(reads[-1][1]) < 3000:
                assert time.monotonic() < deadline
                before = len(writer.offsets)
                rows = read_rows(root, splitBytes=20_000)
                reads.append((before, rows))

    written = [0, *writer.offsets]
    for before, rows in reads:
        found = [row["log_offset"] for row in rows]
        assert found == written[: len(found)]
        assert len(found) >= before
        assert all(row["properties"] and row["message_id"] for row in rows)
    assert len({len(rows) for _, rows in reads}) > 1


def test_what_is_appended_after_planning_is_not_read(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with MessageStore.open(StoreConfig(root=root, segment_bytes=SEGMENT)) as store:
        for number in range(100):
            store.append(make_request(number, body_bytes=300))
        planned = table(root, splitBytes=10_000)
        partitions = planned.partitions()
        for number in range(2000):
            store.append(make_request(100 + number, body_bytes=300))

        found = sum(batch.num_rows for task in partitions for batch in planned.read(task))

    assert found == 100


def test_spark_reads_beside_a_writer(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "store"
    with MessageStore.open(StoreConfig(root=root, segment_bytes=SEGMENT)) as store:
        store.append(make_request(0, body_bytes=300))
        with Writer(store) as writer:
            deadline = time.monotonic() + WAIT_SECONDS
            while len(writer.offsets) < 500:
                assert time.monotonic() < deadline
                time.sleep(0.001)
            before = len(writer.offsets)
            frame = spark.read.format("orbitmq").load(str(root))
            found = sorted(row["log_offset"] for row in frame.select("log_offset").collect())

    assert found == [0, *writer.offsets][: len(found)]
    assert len(found) >= before
