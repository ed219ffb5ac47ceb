"""`orbitmq demo`: the life of a store, of a live broker and of its log on Spark, every figure checked.

The store's part is here: write, read in five ways, have a second process write on and kill it, recover,
check. The broker's part is in `demo/live.py`, that of Spark in `demo/pipeline.py`.
"""

import logging
import random
import shutil
import subprocess
import sys
import tempfile
import time
from bisect import bisect_left
from collections.abc import Callable
from pathlib import Path

from orbitmq.cli.demo import load
from orbitmq.cli.demo.live import LiveDemo
from orbitmq.cli.demo.pipeline import PipelineDemo
from orbitmq.cli.demo.report import Report, Timer
from orbitmq.cli.output import bytes_text
from orbitmq.format.record import decode_record
from orbitmq.message import Boundary, GetStatus
from orbitmq.store.store import MessageStore

READ_COUNT = 32
RANDOM_READS = 10_000
KEY_QUERIES = 1_000
TIME_SEARCHES = 1_000
LIVE_SHARE = 5  # the broker's part has so many times fewer messages than the store's


def run_demo(messages: int, *, keep: bool = False) -> bool:
    """Run all steps; return whether every figure was ok."""
    logging.getLogger("orbitmq").setLevel(logging.CRITICAL)  # what we kill ourselves is no news
    root = Path(tempfile.mkdtemp(prefix="orbitmq-demo-"))
    report = Report()
    try:
        StoreDemo(report, root / "store", messages).run()
        live = LiveDemo(report, root / "live", messages // LIVE_SHARE)
        live.run()
        PipelineDemo(report, live.root / "store", live.stored).run()
        report.doctor("doctor", str(live.root / "store"))
        report.verdict()
    finally:
        if keep:
            report.console.print(f"\nThe stores are in {root}", soft_wrap=True)
        else:
            shutil.rmtree(root)
    return report.all_ok


class StoreDemo:
    """The steps of the store. `messages` grows when the second process has written."""

    def __init__(self, report: Report, root: Path, messages: int) -> None:
        self.line, self.remark = report.line, report.remark
        self.report, self.root, self.messages = report, root, messages
        self._store_ms: list[int] = []  # of each message that this process wrote
        self._random = random.Random(20_240_229)

    def run(self) -> None:
        topics, queues = len(load.TOPICS), load.QUEUES
        self.report.heading(f"A throw-away store, {topics} topics with {queues} queues each.")
        with self.open() as store:
            self.write(store)
            self.read_in_order(store)
            self.read_at_random(store)
            self.read_by_tag(store)
            self.query_by_key(store)
            self.search_by_time(store)
        acknowledged = self.kill_a_writer()
        self.recover(acknowledged)
        self.check()

    def open(self) -> MessageStore:
        with Timer() as timer:
            store = MessageStore.open(load.demo_config(self.root))
            store.wait_kernels()  # the first start on a machine compiles them, which takes a while
        self.line("open", "an empty store, kernels loaded", timer, ok=True)
        return store

    def write(self, store: MessageStore) -> None:
        with Timer() as timer:
            for results in load.append_all(store, 0, self.messages):
                self._store_ms += [result.store_ms for result in results]
            store.wait_dispatched()
        in_queues = sum(_queue_lengths(store))
        self.line(
            "write", f"{in_queues:,} messages", timer, in_queues, ok=in_queues == self.messages
        )
        log_bytes = store.max_log_offset - store.min_log_offset
        segments = len(list((self.root / "commitlog").iterdir()))
        index_files = len(list((self.root / "index").iterdir()))
        self.remark(f"{bytes_text(log_bytes)} in {segments} segments, {index_files} index files")

    def read_in_order(self, store: MessageStore) -> None:
        seen = 0
        with Timer() as timer:
            for lane in range(load.LANES):
                where, n = load.place(lane), lane
                while True:
                    offset = n // load.LANES
                    found = store.get(where.topic, where.queue_id, offset, READ_COUNT)
                    if found.status is not GetStatus.FOUND:
                        break
                    for raw in found.records:
                        seen += decode_record(raw).body == load.body(n)
                        n += load.LANES
        self.line("read", f"{seen:,} in order, by queue", timer, seen, ok=seen == self.messages)

    def read_at_random(self, store: MessageStore) -> None:
        def is_found(n: int) -> bool:
            found = store.get(*load.place(n), 1)
            return decode_record(found.records[0]).body == load.body(n)

        self._try_some("at random, by offset", RANDOM_READS, is_found)

    def _try_some(self, what: str, count: int, is_found: Callable[[int], bool]) -> None:
        """Look for so many messages, any of them."""
        with Timer() as timer:
            good = sum(is_found(self._random.randrange(self.messages)) for _ in range(count))
        self.line("", f"{good:,} {what}", timer, good, ok=good == count)

    def read_by_tag(self, store: MessageStore) -> None:
        wanted, seen = load.TAGS[1], 0
        with Timer() as timer:
            for lane in range(load.LANES):
                where, offset = load.place(lane), 0
                while True:
                    found = store.get(
                        where.topic, where.queue_id, offset, READ_COUNT, subscription=wanted
                    )
                    if found.next_offset <= offset:
                        break
                    seen += sum(decode_record(raw).tags == wanted for raw in found.records)
                    offset = found.next_offset
        expected = sum(load.tag(n) == wanted for n in range(self.messages))
        self.line("", f"{seen:,} by tag {wanted!r}", timer, seen, ok=seen == expected)

    def query_by_key(self, store: MessageStore) -> None:
        def is_found(n: int) -> bool:
            hits = store.query(load.place(n).topic, load.key(n), exact=True)
            return [decode_record(raw).body for raw in hits] == [load.body(n)]

        self._try_some("by key", KEY_QUERIES, is_found)

    def search_by_time(self, store: MessageStore) -> None:
        lanes = [self._store_ms[lane :: load.LANES] for lane in range(load.LANES)]

        def is_found(n: int) -> bool:
            where, moment = load.place(n), self._store_ms[n]
            offset = store.offset_by_time(where.topic, where.queue_id, moment, Boundary.LOWER)
            return offset == bisect_left(lanes[n % load.LANES], moment)

        self._try_some("searches by time", TIME_SEARCHES, is_found)

    def kill_a_writer(self) -> int:
        """Return how many messages were acknowledged when the writer was killed."""
        command = [
            sys.executable,
            "-m",
            "orbitmq.cli.demo.load",
            str(self.root),
            str(self.messages),
        ]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            acknowledged = int(writer.stdout.readline())
            kill_at = time.monotonic() + self._random.uniform(*load.KILL_AFTER_SECONDS)
            while time.monotonic() < kill_at:
                acknowledged = int(writer.stdout.readline())
            writer.kill()
            # What it managed to print before it died was acknowledged too; the last line may be torn.
            for line in writer.stdout:
                acknowledged = int(line) if line.endswith("\n") else acknowledged
        more = acknowledged - self.messages
        killed = more > 0 and writer.returncode < 0
        self.line("kill", f"a writer; {more:,} more acknowledged", ok=killed)
        return acknowledged

    def recover(self, acknowledged: int) -> None:
        with Timer() as timer, MessageStore.open(load.demo_config(self.root)) as store:
            timer.stop()
            store.wait_dispatched()
            self.messages = sum(_queue_lengths(store))
            lost = max(0, acknowledged - self.messages)
            whole = _queue_lengths(store) == [
                load.lane_length(self.messages, lane) for lane in range(load.LANES)
            ]
            text = f"{self.messages:,} messages, {lost} acknowledged lost"
            self.line("recover", text, timer, ok=whole and lost == 0)
            report = store.recovery_report
            read = report.end_offset - report.start_offset
            self.remark(f"{bytes_text(read)} of log read again, {report.stale_units} units cut")
            self.read_in_order(store)
            self.query_by_key(store)

    def check(self) -> None:
        from orbitmq.store.verify.check import check_store

        self.report.findings("check", lambda: check_store(self.root, load.SETTINGS).findings)


def _queue_lengths(store: MessageStore) -> list[int]:
    places = [load.place(lane) for lane in range(load.LANES)]
    return [store.max_offset(where.topic, where.queue_id) for where in places]
