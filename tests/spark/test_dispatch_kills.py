"""Kill the dispatch job again and again under load, and the broker too: nothing lost, every byte right."""

import itertools
import os
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from compat.our_cluster import SMALL_BROKER, our_broker, our_namesrv
from dispatch_job import filled_files, live_files_of_log
from orbitmq.client import Admin, Consumer, Message, Producer, ReceivedMessage
from orbitmq.errors import ClientError, WireError
from orbitmq.store.config import DispatchMode, StoreConfig
from orbitmq.store.spark_dispatch.handover import Handover
from orbitmq.store.store import MessageStore
from spark.dispatch_process import job_process

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.timeout(3600)]

KILLS = int(os.environ.get("ORBITMQ_DISPATCH_KILLS", "1"))
SEED = int(os.environ.get("ORBITMQ_DISPATCH_SEED", str(random.randrange(2**32))))
SETTINGS = {**SMALL_BROKER, "mappedFileSizeCommitLog": str(1 << 20), "dispatch": "spark"}
CATCH_UP_SECONDS = 300.0
BURST, PAUSE_SECONDS = 10, 0.2  # some batches are never far, and it does not take a core to send


@dataclass
class Load:
    """Sends messages with keys until it is told to end; knows which were acknowledged."""

    namesrv: str
    acknowledged: list[int] = field(default_factory=list)
    stopping: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        chance = random.Random(SEED)
        with Producer(self.namesrv, "load") as producer:
            for number in itertools.count():
                if self.stopping.is_set():
                    return
                body = b"%d " % number * chance.randrange(1, 400)
                message = Message("Orders", body, tag=f"T{number % 3}", keys=[f"key{number}"])
                try:
                    producer.send(message)
                except (ClientError, WireError):
                    continue  # the broker is down: this one may be there or not
                self.acknowledged.append(number)
                if number % BURST == 0:
                    time.sleep(PAUSE_SECONDS)


@contextmanager
def sending(namesrv: str) -> Iterator[Load]:
    load = Load(namesrv)
    thread = threading.Thread(target=load.run, name="load")
    thread.start()
    try:
        yield load
    finally:
        load.stopping.set()
        thread.join()


def wait_until_it_moves(root: Path) -> None:
    """Wait until this life of the job has dispatched something."""
    handover, deadline = Handover(root), time.monotonic() + CATCH_UP_SECONDS
    before = handover.dispatched_offset()
    while handover.dispatched_offset() == before:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def consume_all(namesrv: str, wanted: set[int]) -> set[int]:
    got: set[int] = set()

    def handle(message: ReceivedMessage) -> None:
        got.add(int(message.body.split()[0]))

    with Consumer(namesrv, "readers", "Orders", handle, start_from="first"):
        deadline = time.monotonic() + CATCH_UP_SECONDS
        while not wanted <= got:
            assert time.monotonic() < deadline, sorted(wanted - got)[:10]
            time.sleep(0.05)
    return got


@pytest.mark.feature("P7")
def test_kills_of_the_job_and_of_the_broker_lose_nothing_and_change_no_byte(tmp_path: Path) -> None:
    print(f"ORBITMQ_DISPATCH_SEED={SEED} repeats the times of the kills")  # noqa: T201
    chance = random.Random(SEED)
    with (
        our_namesrv(tmp_path) as namesrv,
        our_broker(tmp_path, namesrv=namesrv.address, settings=SETTINGS) as broker,
    ):
        root = broker.root / "store"
        with job_process(root, tmp_path) as job, sending(namesrv.address) as load:
            for kill in range(KILLS):
                wait_until_it_moves(root)
                time.sleep(chance.uniform(0.0, 1.5))  # sleep: any moment will do
                before = job.lines
                job.kill(jvm_too=chance.random() < 0.5)
                if kill % 3 == 1:
                    broker.kill()
                    broker.start()
                job.start()
                job.wait_line(before)
            broker.kill()  # while a job is at work
            broker.start()
            wait_until_it_moves(root)
            load.stopping.set()
            wanted = set(load.acknowledged)
            assert len(wanted) > 100
            assert wanted <= consume_all(namesrv.address, wanted)
            with Admin(namesrv.address) as admin:
                last = max(wanted)
                assert admin.messages_by_key("Orders", f"key{last}")
                assert admin.broker_runtime(broker.address)["dispatchBehindBytes"] == "0"
            told = job.stop()
            assert told["behind_bytes"] == 0
        broker.stop()
        config = _config(root)
        assert filled_files(root) == live_files_of_log(config, tmp_path / "live")
        _live_takes_over(config)
        broker.start()


def _config(root: Path) -> StoreConfig:
    return StoreConfig.from_settings(root, SETTINGS)


def _live_takes_over(config: StoreConfig) -> None:
    before = filled_files(config.root)
    live = StoreConfig.from_settings(config.root, SETTINGS, dispatch=DispatchMode.LIVE)
    with MessageStore.open(live, background=False) as store:
        assert not store.recovery_report.adopted
        assert store.recovery_report.records == 0
    assert filled_files(config.root) == before
