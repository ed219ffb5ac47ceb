"""Every way in which a broker refuses a request, or is slow with one, leads to a line with who and why."""

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from async_run import until
from live_broker import LiveClient, letters, live_broker, run_live, send_header
from orbitmq.broker.broker import Broker
from orbitmq.logs.config import LogConfig
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command

Lines = list[dict[str, Any]]


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Iterator[Lines]:
    """The fields of all lines of the log of requests, as they come."""
    found: Lines = []

    class Collect(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append({"event": record.getMessage(), **vars(record)})

    caplog.set_level(logging.INFO, "orbitmq.net.request_log")
    logger = logging.getLogger("orbitmq.net.request_log")
    handler = Collect()
    logger.addHandler(handler)
    yield found
    logger.removeHandler(handler)


def told(lines: Lines, *names: str) -> list[tuple[Any, ...]]:
    return [tuple(line.get(name) for name in names) for line in lines]


def test_a_send_that_the_store_refuses(tmp_path: Path, lines: Lines) -> None:
    async def main() -> None:
        async with live_broker(tmp_path, store={"message_bytes_max": 100}) as broker:
            client = LiveClient(broker.address)
            await client.send("T", b"x" * 101)
            oneway = Command(RequestCode.SEND_MESSAGE_V2, letters(send_header("U")), b"x" * 101)
            await client.channels.oneway(broker.address, oneway)
            await client.send("T", b"x")

    run_live(main)

    assert told(lines, "event", "request", "code", "topic", "group", "count") == [
        ("request refused", "SEND_MESSAGE_V2", "MESSAGE_ILLEGAL", topic, "PG", 1) for topic in "TU"
    ]
    assert "body length limit 100B" in lines[0]["reason"]


def test_a_change_of_settings_that_is_answered_later(tmp_path: Path, lines: Lines) -> None:
    async def main() -> None:
        async with live_broker(tmp_path) as broker:
            await LiveClient(broker.address).ask(25, body=b"brokerId=7\nsocksProxyConfig=pass\n")

    run_live(main)

    assert told(lines, "request", "code") == [("UPDATE_BROKER_CONFIG", "NO_PERMISSION")]
    assert "brokerId" in lines[0]["reason"]
    assert "pass" not in str(lines)


def test_a_pull_that_was_parked_when_its_topic_went(tmp_path: Path, lines: Lines) -> None:
    async def main() -> None:
        async with live_broker(tmp_path) as broker:
            client, other = LiveClient(broker.address), LiveClient(broker.address, "client-2")
            await client.send("T", b"x")
            await client.heartbeat("G", "T")
            pull = asyncio.ensure_future(client.pull("G", "T", 1, suspend_ms=20_000))
            await until(lambda: broker.context.long_poll.count == 1)
            await other.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
            await pull

    run_live(main)

    assert told(lines, "request", "code", "topic", "group") == [
        ("PULL_MESSAGE", "TOPIC_NOT_EXIST", "T", "G")
    ]


async def until_kernels_take_sends(broker: Broker, client: LiveClient) -> None:
    assert broker._sends is not None
    async with asyncio.timeout(20):
        while broker._sends.fast_way._run is None:
            await client.send("T", b"x")


def test_sends_are_slow_from_the_limit_on_whichever_way_they_go(
    tmp_path: Path, lines: Lines
) -> None:
    async def main() -> None:
        logs = LogConfig(slow_request_ms=0)
        async with live_broker(tmp_path, store={"plain_records": 0}, logs=logs) as broker:
            client = LiveClient(broker.address)
            await client.send("T", b"the general way")
            assert told(lines, "event", "request", "topic") == [
                ("request slow", "SEND_MESSAGE_V2", "T")
            ]
            assert (await client.ask(25, body=b"slowRequestMillis=60000\n")).code == 0
            lines.clear()
            broker.context.store.wait_kernels()
            await until_kernels_take_sends(broker, client)
            await client.send("T", b"by kernels")
            assert told(lines, "event", "request") == []
            assert (await client.ask(25, body=b"slowRequestMillis=0\n")).code == 0
            lines.clear()
            await client.send("T", b"by kernels")
            # They do not tell the topic.
            assert told(lines, "event", "request", "topic") == [
                ("request slow", "SEND_MESSAGE_V2", None)
            ]

    run_live(main)
