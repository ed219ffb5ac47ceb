"""RocketMQ 5.3.3's own store classes open what we wrote: every message, every queue, every key."""

import itertools
import random
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from compat.java_store import Row, needs_java, read_store
from compat.message_kinds import single_messages
from compat.our_store import (
    Written,
    append_every_kind,
    require_consistent,
    require_everything_written,
    small_config,
    write_topics,
)
from crash.checker import History, broker_settings
from crash.fork_server import ForkServer
from crash.lives import live_and_die
from crash.workload import NUMBER, request
from crash.writer import ENDLESS
from crash.writer import config as writer_config
from golden_stores import damage, settings, torn_variant, unpack
from orbitmq.format.properties import decode_properties
from orbitmq.store.config import StoreConfig
from orbitmq.store.store import MessageStore
from orbitmq.testing.fake_clock import FakeClock

pytestmark = [pytest.mark.compat, needs_java]

COUNT = 1500  # about 40 segments of 64 KiB


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    server = ForkServer(tmp_path_factory.mktemp("fork_server") / "errors.txt")
    yield server
    server.close()


def _write(config: StoreConfig, written: Written, count: int = COUNT, seed: int = 5) -> None:
    write_topics(config.root)
    with MessageStore.open(config) as store:
        append_every_kind(store, config, count, seed, written)


@pytest.mark.feature("F16", "X2.ours-to-java")
def test_java_reads_every_kind_of_message_of_a_store_that_we_closed(tmp_path: Path) -> None:
    config, written = small_config(tmp_path / "store"), Written()
    _write(config, written)
    assert len(list((config.root / "commitlog").iterdir())) > 20
    assert len(list((config.root / "index").iterdir())) > 5

    view = read_store(config.root, broker_settings(config))

    require_everything_written(view, written)
    require_consistent(view)
    assert view.closed


@pytest.mark.feature("X2.ours-to-java")
def test_java_and_we_go_on_with_each_others_store_in_turn(tmp_path: Path) -> None:
    config, written = small_config(tmp_path / "store"), Written()
    _write(config, written, 200, seed=1)
    read_store(config.root, broker_settings(config))
    _write(config, written, 200, seed=2)

    view = read_store(config.root, broker_settings(config), shutdown=False)

    require_everything_written(view, written)
    require_consistent(view)


@pytest.mark.feature("X2.ours-to-java")
def test_java_reads_a_store_whose_queues_and_index_we_rebuilt(tmp_path: Path) -> None:
    config, written = small_config(tmp_path / "store"), Written()
    _write(config, written, 600)
    for name in ("consumequeue", "batchconsumequeue", "index"):
        shutil.rmtree(config.root / name)
    with MessageStore.open(config) as store:
        store.wait_dispatched(timeout=30)

    view = read_store(config.root, broker_settings(config), shutdown=False)

    require_everything_written(view, written)
    require_consistent(view)


@pytest.mark.feature("X2.ours-to-java")
@pytest.mark.parametrize("mode", ["async", "sync"])
def test_java_recovers_a_store_of_ours_whose_writer_was_killed(
    mode: str, server: ForkServer, tmp_path: Path
) -> None:
    history = History(seed=77)
    root = tmp_path / "store"
    # The writer's clock runs fast: RocketMQ goes back three seconds before what the checkpoint says,
    # which would hide a checkpoint that claims too much from a store that is younger than that.
    options = {"mode": mode, "hurry": 200}
    _live_until_enough(server, root, history, **options)
    config = writer_config(root, mode)

    view = read_store(root, broker_settings(config), shutdown=False)

    require_consistent(view, index_may_repeat=True)
    _require_acknowledged(view.records, history)


@pytest.mark.feature("X2.ours-to-java")
def test_java_finds_the_keys_of_an_index_file_that_was_not_full_at_the_kill(tmp_path: Path) -> None:
    config, written, clock = small_config(tmp_path / "store"), Written(), FakeClock()
    with MessageStore.open(config, clock=clock, background=False) as store:
        for request_ in single_messages(400, seed=3):
            clock.advance(1000)  # RocketMQ goes back three seconds before what the checkpoint says
            written.add(config, request_, store.append(request_))
            store.tick()
        store.flush()
        killed = shutil.copytree(config.root, tmp_path / "killed")
    assert (killed / "abort").exists()
    assert len(list((killed / "index").iterdir())) > 1

    view = read_store(killed, broker_settings(config), shutdown=False)

    require_everything_written(view, written)
    require_consistent(view, index_may_repeat=True)


@pytest.mark.feature("X2.ours-to-java")
def test_java_reads_a_store_that_we_recovered_after_a_kill(
    server: ForkServer, tmp_path: Path
) -> None:
    history = History(seed=78)
    root = tmp_path / "store"
    _live_until_enough(server, root, history, mode="async")
    config = writer_config(root, "async")
    with MessageStore.open(config) as store:
        store.wait_dispatched(timeout=30)

    view = read_store(root, broker_settings(config), shutdown=False)

    require_consistent(view)
    _require_acknowledged(view.records, history)


@pytest.mark.feature("X2.ours-to-java")
def test_java_reads_a_store_whose_oldest_segments_we_deleted(
    server: ForkServer, tmp_path: Path
) -> None:
    history = History(seed=79)
    root = tmp_path / "store"
    _live_until_enough(server, root, history, mode="async", clean=True)
    config = writer_config(root, "async", clean=True)
    with MessageStore.open(config) as store:
        first = store.min_log_offset  # its lives deleted segments too
        for number in range(100):  # there may be no other segment left than the last
            store.append(request(history.seed, ENDLESS * 1000 + number))
        time.sleep(0.1)  # sleep: all that was written so far is older than the retention
        store.delete_expired_now()
        _wait_until(lambda: store.min_log_offset > first)

    view = read_store(root, broker_settings(config), shutdown=False)

    start = view.opened["min_log_offset"]
    assert start == min(int(path.name) for path in (root / "commitlog").iterdir()) > 0
    require_consistent(view, some_deleted=True)
    _require_acknowledged(view.records, history, start)


def test_java_reads_to_the_end_of_a_log_whose_damaged_record_we_replaced(tmp_path: Path) -> None:
    root = damage(unpack("crashed", tmp_path), "flip-late")
    config = StoreConfig.from_settings(root, settings("crashed"))
    with MessageStore.open(config) as store:
        end = store.max_log_offset

    view = read_store(root, settings("crashed"), shutdown=False)

    assert view.opened["max_log_offset"] == end == 1_706_772
    assert view.scan["record_count"] == 1653
    bad_place = torn_variant("flip-late")["record"]
    fillers = [r["log_offset"] for r in view.records if "ORBITMQ_FILLER" in r["properties"]]
    assert fillers == [bad_place]
    require_consistent(view)


def _live_until_enough(server: ForkServer, root: Path, history: History, **options: Any) -> None:
    chance = random.Random(history.seed)
    for life in itertools.count():
        live_and_die(server, root, chance, history, life, **options)
        if len(history.acked) >= 400:
            return


def _wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _require_acknowledged(records: list[Row], history: History, start: int = 0) -> None:
    by_offset = {record["log_offset"]: record for record in records}
    for number, ack in history.acked.items():
        if ack.log_offset < start:
            continue
        made = request(history.seed, number)
        record = by_offset[ack.log_offset]
        assert record["properties"] == decode_properties(made.properties)
        assert record["properties"][NUMBER] == str(number)
        assert (record["topic"], record["queue_id"]) == (made.topic, made.queue_id)
