"""The broker's timers: over a socket, with recall; progress follows the disk; nothing is lost by a stop."""

import asyncio
import base64
import json
import time
from pathlib import Path

import pytest

from async_run import until
from conf_store import wires
from live_broker import LiveClient, live_broker, records_of, run_live
from orbitmq.broker.broker import Broker
from orbitmq.broker.config import BrokerConfig
from orbitmq.errors import StoreError
from orbitmq.format.timer_checkpoint import decode
from orbitmq.store.config import FlushMode
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.headers.recall import RecallHandle

HERE = "brokerIP1=127.0.0.1\nbindAddress=127.0.0.1\nlistenPort=0\n"
QUICK = {"timer_precision_ms": 100, "timer_flush_interval_ms": 20}


def timed(key: str, **given: int) -> str:
    names = {"delay_ms": "TIMER_DELAY_MS", "deliver_ms": "TIMER_DELIVER_MS"}
    texts = [f"{names[name]}\x01{value}\x02" for name, value in given.items()]
    return f"UNIQ_KEY\x01{key}\x02{''.join(texts)}"


def quick_broker(root: Path, **given: object) -> Broker:
    store = {**QUICK, **given.pop("store", {})}  # type: ignore[dict-item]
    return live_broker(root, store=store, recall=True, **given)


async def recall(client: LiveClient, handle: str, topic: str = "Orders") -> object:
    fields = {"topic": topic, "recallHandle": handle, "producerGroup": "PG"}
    return await client.ask(RequestCode.RECALL_MESSAGE, fields)


@pytest.mark.parametrize("flush_mode", [FlushMode.ASYNC, FlushMode.SYNC])
def test_sent_recalled_and_delivered_over_a_socket(tmp_path: Path, flush_mode: FlushMode) -> None:
    async def main() -> None:
        async with quick_broker(tmp_path, store={"flush_mode": flush_mode}) as broker:
            client = LiveClient(broker.address)
            now = time.time_ns() // 1_000_000
            due = {"a": now + 700, "b": now + 700, "c": now + 900}
            handles = {}
            for key, deliver_ms in due.items():
                answer = await client.send(
                    "Orders", key.encode(), properties=timed(key, deliver_ms=deliver_ms)
                )
                assert answer.code == 0, answer.remark
                handles[key] = answer.fields["recallHandle"]
                words = base64.urlsafe_b64decode(handles[key]).decode().split(" ")
                slot_ms = (deliver_ms - 1) // 100 * 100
                assert words == ["v1", "Orders", "broker-a", str(slot_ms + 1), key]
            answer = await recall(client, handles["b"])
            assert (answer.code, answer.fields["msgId"]) == (0, "b")
            store = broker.context.store
            await until(lambda: store.max_offset("Orders", 0) == 2, seconds=5)
            await client.heartbeat("G", "Orders")
            records = records_of(await client.pull("G", "Orders", 0))
            assert [record.body for record in records] == [b"a", b"c"]
            for record in records:
                late_ms = record.store_ms - due[record.unique_key]
                assert 0 <= late_ms < 400
            answer = await recall(client, handles["a"])
            assert answer.code == ResponseCode.ILLEGAL_OPERATION
            assert answer.remark == "recall failed, timestamp invalid"

    run_live(main)


def test_recall_says_what_is_wrong(tmp_path: Path) -> None:
    far = str(time.time_ns() // 1_000_000 + 60_000)

    async def main() -> None:
        async with quick_broker(tmp_path) as broker:
            client = LiveClient(broker.address)
            await client.send("Orders", b"x")
            expected = {
                "none": (604, "recall handle is invalid"),
                "": (604, "recall handle is invalid"),
                RecallHandle("Other", "broker-a", far, "k").encode(): (
                    604,
                    "recall failed, topic not match",
                ),
                RecallHandle("Orders", "broker-b", far, "k").encode(): (
                    604,
                    "recall failed, broker service not available",
                ),
                RecallHandle("Orders", "broker-a", "soon", "k").encode(): (
                    604,
                    "recall failed, timestamp invalid",
                ),
                RecallHandle("Orders", "broker-a", far + "0", "k").encode(): (
                    604,
                    "recall failed, timestamp invalid",
                ),
            }
            for handle, (code, remark) in expected.items():
                answer = await recall(client, handle)
                assert (answer.code, answer.remark) == (code, remark)
                assert answer.fields["MSG_REGION"] == "DefaultRegion"
            good = RecallHandle("Nowhere", "broker-a", far, "k").encode()
            answer = await recall(client, good, "Nowhere")
            assert answer.code == ResponseCode.TOPIC_NOT_EXIST
            broker.config.recall = False
            answer = await recall(client, good)
            assert answer.code == ResponseCode.NO_PERMISSION

    run_live(main)


def _told_offset(file: Path) -> int:
    """Return the queue offset that a checkpoint file tells; a file that was just made is empty."""
    page = file.read_bytes() if file.exists() else b""
    return decode(page).queue_offset if page else 0


def test_checkpoint_and_counts_are_told(tmp_path: Path) -> None:
    async def main() -> None:
        async with quick_broker(tmp_path) as broker:
            client = LiveClient(broker.address)
            for number in range(5):
                await client.send("Orders", b"x", properties=timed(str(number), delay_ms=60_000))
            timers = broker.context.timers
            await until(lambda: timers.store.queue_offset == 5)
            answer = await client.ask(RequestCode.GET_TIMER_CHECK_POINT)
            told = decode(answer.body)
            assert len(answer.body) == 56
            assert (told.queue_offset, told.timer_log_end) == (5, 5 * 52)
            file = tmp_path / "config" / "timercheck"
            await until(lambda: _told_offset(file) == 5)
            answer = await client.ask(RequestCode.GET_TIMER_METRICS)
            counts = json.loads(answer.body)["timingCount"]
            assert counts["Orders"]["count"] == 5
            answer = await client.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
            table = json.loads(answer.body)["table"]
            assert (table["timerCongestNum"], table["timerOffsetBehind"]) == ("5", "0")
            assert float(table["timerEnqueueTps"]) >= 0
        counts = json.loads((tmp_path / "config" / "timermetrics").read_bytes())["timingCount"]
        assert counts["Orders"]["count"] == 5

    run_live(main)


def test_without_a_wheel_both_are_refused(tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path, timer_wheel=False) as broker:
            client = LiveClient(broker.address)
            for code in (RequestCode.GET_TIMER_CHECK_POINT, RequestCode.GET_TIMER_METRICS):
                assert (await client.ask(code)).code == ResponseCode.SYSTEM_ERROR

    run_live(main)


def test_a_stop_and_a_start_keep_what_waits(tmp_path: Path) -> None:
    async def main() -> None:
        async with quick_broker(tmp_path) as broker:
            client = LiveClient(broker.address)
            for number in range(100):
                text = timed(str(number), delay_ms=600 + 10 * number)
                await client.send("Orders", b"%d" % number, properties=text)
            await asyncio.sleep(0.8)  # sleep: some are delivered by then, some are not
        async with quick_broker(tmp_path) as broker:
            store = broker.context.store
            await until(lambda: store.max_offset("Orders", 0) >= 100, seconds=10)
            client = LiveClient(broker.address)
            records = []
            await client.heartbeat("G", "Orders")
            while len(records) < 100:
                records += records_of(await client.pull("G", "Orders", len(records)))
            assert sorted(int(record.body) for record in records) == list(range(100))

    run_live(main)


def test_a_disk_that_fails_once_is_written_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with quick_broker(tmp_path) as broker:
            timers = broker.context.timers
            whole = timers.store.flush
            failed = []

            def flush(plan: object) -> None:
                if not failed:
                    failed.append(plan)
                    raise StoreError(tmp_path, "the disk is full", "Make room.")
                whole(plan)

            monkeypatch.setattr(timers.store, "flush", flush)
            client = LiveClient(broker.address)
            await client.send("Orders", b"x", properties=timed("k", delay_ms=60_000))
            file = tmp_path / "config" / "timercheck"
            await until(lambda: file.exists() and decode(file.read_bytes()).queue_offset == 1)
            assert (tmp_path / "timerwheel").exists()
            assert "the disk is full" in caplog.text

    run_live(main)


def test_many_that_are_due_at_once_leave_room_for_others(tmp_path: Path) -> None:
    """While thousands are delivered, a request is answered within a few turns."""

    async def main() -> None:
        big = {"segment_bytes": 16 * 1024 * 1024}
        async with quick_broker(tmp_path, store=big) as broker:
            client, store = LiveClient(broker.address), broker.context.store
            due = time.time_ns() // 1_000_000 + 3_000
            sends = [
                client.send("Orders", b"x", properties=timed(str(number), deliver_ms=due))
                for number in range(3_000)
            ]
            await asyncio.gather(*sends)
            await until(lambda: store.max_offset("Orders", 0) > 0, seconds=10)
            slowest = 0.0
            while store.max_offset("Orders", 0) < 3_000:
                before = time.monotonic()
                await client.ask(RequestCode.GET_TIMER_CHECK_POINT)
                slowest = max(slowest, time.monotonic() - before)
            assert slowest < 0.5

    run_live(main)


@wires("timerFlushIntervalMs")
@pytest.mark.parametrize(("line", "interval_ms"), [("", 1_000), ("timerFlushIntervalMs=50", 50)])
def test_progress_is_saved_so_often(
    tmp_path: Path, line: str, interval_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(f"{HERE}mappedFileSizeCommitLog=262144\nflushIntervalCommitLog=5\n{line}\n")

    async def main() -> list[float]:
        config = BrokerConfig.load(conf, {"storePathRootDir": tmp_path / "store"})
        async with Broker(config) as broker:
            planned: list[float] = []
            monkeypatch.setattr(
                broker.context.timers.store,
                "plan_flush",
                lambda: planned.append(time.monotonic()),  # None: nothing to write
            )
            client = LiveClient(broker.address)
            for number in range(10):
                await client.send("Orders", b"x", properties=timed(str(number), delay_ms=60_000))
                broker.context.timers.tick()
                await asyncio.sleep(0.06)  # sleep: longer than the short interval
            return planned

    planned = run_live(main)
    assert (len(planned) >= 6) is (interval_ms == 50)
