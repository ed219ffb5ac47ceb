"""Many connections, many parked pulls, many topics: what they cost a broker."""

import asyncio
import resource
import time
from pathlib import Path

import pytest

from async_run import run_async
from orbitmq.net.channels import SilentHandler, parse_address
from orbitmq.net.config import NetConfig
from orbitmq.net.connection import Connection
from orbitmq.units import MiB
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from up_process import Up, up_process

CONNECTIONS = 10_000
PULLS = 5_000
TOPICS = 10_000
MEMORY_MAX = 400 * MiB


@pytest.mark.slow
@pytest.mark.skipif(
    resource.getrlimit(resource.RLIMIT_NOFILE)[1] < CONNECTIONS + 1000,
    reason="this machine allows a process fewer than 11 000 open files",
)
def test_ten_thousand_connections_and_topics_and_five_thousand_parked_pulls(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        with up_process(tmp_path) as up:
            run_async(lambda: _crowd(up), seconds=200)
            assert up.stop() == 0, up.errors.read_text()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def _crowd(up: Up) -> None:
    first = await _connect(up.broker)
    await _create_topics(first)
    crowd = await _connect_many(up.broker, CONNECTIONS - 1)
    parked = [_park(crowd[number % len(crowd)], number) for number in range(PULLS)]
    await _settled(crowd)
    assert not any(pull.done() for pull in parked)

    memory = up.memory_bytes()
    started = time.perf_counter()
    sent = await first.request(_send("Topic00017", 0), 5000)
    woken = await asyncio.wait_for(parked[17], 5)
    took_ms = (time.perf_counter() - started) * 1000

    assert (sent.code, woken.code) == (ResponseCode.SUCCESS, ResponseCode.SUCCESS)
    assert b"body" in woken.body
    assert sum(pull.done() for pull in parked) == 1  # nobody else was woken
    assert memory <= MEMORY_MAX, f"{memory / MiB:.0f} MiB"
    print(f"\n{memory / MiB:.0f} MiB, woken after {took_ms:.1f} ms")  # noqa: T201
    for connection in [first, *crowd]:
        connection.abort()
    await asyncio.gather(*parked, return_exceptions=True)


async def _connect(address: str) -> Connection:
    host, port = parse_address(address)
    loop = asyncio.get_running_loop()
    config = NetConfig()
    _, connection = await loop.create_connection(
        lambda: Connection(SilentHandler(), config), host, port
    )
    return connection


async def _connect_many(address: str, count: int) -> list[Connection]:
    made: list[Connection] = []
    while len(made) < count:
        step = min(200, count - len(made))
        made += await asyncio.gather(*(_connect(address) for _ in range(step)))
    return made


async def _create_topics(connection: Connection) -> None:
    for start in range(0, TOPICS, 250):
        answers = await asyncio.gather(
            *(connection.request(_create(number), 30_000) for number in range(start, start + 250))
        )
        assert {answer.code for answer in answers} == {ResponseCode.SUCCESS}


async def _settled(crowd: list[Connection]) -> None:
    """Wait until the broker has read everything that was sent to it before."""
    fields = {"topic": "Topic00000", "queueId": "0"}
    answers = await asyncio.gather(
        *(one.request(Command(RequestCode.GET_MAX_OFFSET, dict(fields)), 30_000) for one in crowd)
    )
    assert {answer.code for answer in answers} == {ResponseCode.SUCCESS}


def _create(number: int) -> Command:
    fields = {
        "topic": f"Topic{number:05d}",
        "defaultTopic": "TBW102",
        "readQueueNums": "1",
        "writeQueueNums": "1",
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "order": "false",
    }
    return Command(RequestCode.UPDATE_AND_CREATE_TOPIC, fields)


def _park(connection: Connection, number: int) -> "asyncio.Future[Command]":
    fields = {
        "consumerGroup": "Crowd",
        "topic": f"Topic{number:05d}",
        "queueId": "0",
        "queueOffset": "0",
        "maxMsgNums": "32",
        "sysFlag": "6",
        "commitOffset": "0",
        "suspendTimeoutMillis": "150000",
        "subscription": "*",
        "subVersion": "1",
    }
    return connection.request(Command(RequestCode.PULL_MESSAGE, fields), 180_000)


def _send(topic: str, queue_id: int) -> Command:
    fields = {
        "a": "Group",
        "b": topic,
        "c": "TBW102",
        "d": "1",
        "e": str(queue_id),
        "f": "0",
        "g": "1700000000000",
        "h": "0",
        "i": "WAIT\x01true\x02",
        "j": "0",
        "k": "false",
    }
    return Command(RequestCode.SEND_MESSAGE_V2, fields, b"body")
