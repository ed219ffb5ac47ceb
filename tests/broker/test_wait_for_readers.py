"""Segments that wait for their readers: a broker from a broker.conf, real groups, real segments."""

import json
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from async_run import until
from conf_store import wires
from live_broker import LOOPBACK, LiveClient, run_live
from orbitmq.broker.broker import Broker
from orbitmq.broker.config import BrokerConfig
from orbitmq.errors import ConfigError
from orbitmq.wire.codes import RequestCode, ResponseCode

CONF = f"""brokerIP1={LOOPBACK}
bindAddress={LOOPBACK}
listenPort=0
mappedFileSizeCommitLog=65536
mappedFileSizeConsumeQueue=400
maxHashSlotNum=64
maxIndexNum=256
flushDiskType=SYNC_FLUSH
fileReservedTime=0
deleteCommitLogFilesInterval=0
deleteConsumeQueueFilesInterval=0
"""  # everything has expired at once
BODY = bytes(30_000)  # two in a segment
COUNT = 10

pytestmark = pytest.mark.feature("F110")

Talk = Callable[[Broker, LiveClient], Awaitable[None]]


def talk(folder: Path, conversation: Talk, *lines: str) -> None:
    file = folder / "broker.conf"
    file.write_text(CONF + "".join(f"{line}\n" for line in lines))

    async def main() -> None:
        config = BrokerConfig.load(file, {"storePathRootDir": folder / "store"})
        async with Broker(config) as broker:
            client = LiveClient(broker.address)
            for _ in range(COUNT):
                assert (await client.send("T", BODY)).code == 0
            assert broker.context.store.wait_dispatched()
            await conversation(broker, client)

    run_live(main)


async def clean(broker: Broker, client: LiveClient) -> int:
    """Have what has expired deleted, as an operator does; return the first message that is left."""
    rounds = _Rounds(broker)
    await client.ask(RequestCode.DELETE_EXPIRED_COMMITLOG)
    await until(lambda: rounds.done)
    return broker.context.store.min_offset("T", 0)


class _Rounds:
    """Sees that a round of cleaning is over."""

    def __init__(self, broker: Broker) -> None:
        self.done, cleaner = False, broker.context.store._parts.cleaner
        run = type(cleaner).run_round.__get__(cleaner)

        def seen() -> int:
            deleted: int = run()
            self.done = True
            return deleted

        cleaner.run_round = seen  # type: ignore[method-assign]


async def commit(client: LiveClient, group: str, offset: int) -> None:
    """Say as a consumer how far its group has read."""
    assert (await client.heartbeat(group, "T")).code == 0
    assert (await client.commit(group, "T", offset)).code == 0


async def figures(client: LiveClient) -> dict[str, str]:
    answer = await client.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
    table: dict[str, str] = json.loads(answer.body)["table"]
    return table


@wires("waitForReaders")
def test_by_default_nobody_is_waited_for(tmp_path):
    async def conversation(broker: Broker, client: LiveClient) -> None:
        await commit(client, "G", 0)

        assert await clean(broker, client) == COUNT - 2  # only the last segment stays
        assert "segmentsWaitFor" not in await figures(client)

    talk(tmp_path, conversation)


@wires("waitForReaders")
def test_an_expired_segment_goes_when_the_group_has_passed_it(tmp_path, caplog):
    async def conversation(broker: Broker, client: LiveClient) -> None:
        await commit(client, "G", 0)
        await commit(client, "Fast", COUNT)
        reader = "group G at offset 0 of queue 0 of topic T"

        assert await clean(broker, client) == 0
        assert (await figures(client))["segmentsWaitFor"] == reader
        assert f"waits for {reader}" in caplog.text
        await commit(client, "G", 5)
        assert await clean(broker, client) == 4  # messages 4 and 5 lie in one segment
        await commit(client, "G", COUNT)
        assert await clean(broker, client) == COUNT - 2
        assert "segmentsWaitFor" not in await figures(client)
        assert (await client.pull("G", "T", 5)).code == ResponseCode.PULL_OFFSET_MOVED

    talk(tmp_path, conversation, "waitForReaders=groups")


def test_groups_that_never_committed_and_deleted_groups_hold_nothing(tmp_path):
    async def conversation(broker: Broker, client: LiveClient) -> None:
        await client.heartbeat("Idle", "T")
        await commit(client, "Gone", 0)
        assert await clean(broker, client) == 0
        fields = {"groupName": "Gone", "cleanOffset": "true"}
        assert (await client.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, fields)).code == 0

        assert await clean(broker, client) == COUNT - 2

    talk(tmp_path, conversation, "waitForReaders=groups")


def test_a_full_disk_refuses_sends_instead_and_says_for_whom_it_waits(tmp_path):
    async def conversation(broker: Broker, client: LiveClient) -> None:
        await commit(client, "Slow", 3)
        cleaner = broker.context.store._parts.cleaner
        cleaner._ratio = lambda _: 0.99
        left = await clean(broker, client)
        refused = await client.send("T", b"more")
        await commit(client, "Slow", COUNT)
        cleaner._ratio = lambda _: 0.5

        assert left == 2
        assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert refused.remark is not None
        assert "group Slow at offset 3 of queue 0 of topic T" in refused.remark
        assert await clean(broker, client) == COUNT - 2
        assert (await client.send("T", b"more")).code == 0

    talk(tmp_path, conversation, "waitForReaders=groups")


def test_delayed_messages_that_are_not_delivered_are_waited_for(tmp_path):
    async def conversation(broker: Broker, client: LiveClient) -> None:
        delayed = await client.send("T", b"later", properties="DELAY\x0118\x02")
        assert delayed.code == 0
        for _ in range(4):
            await client.send("T", BODY)
        assert broker.context.store.wait_dispatched()

        await clean(broker, client)

        waits = (await figures(client))["segmentsWaitFor"]
        assert waits == "delayed messages of level 18 from offset 0 on"

    talk(tmp_path, conversation, "waitForReaders=groups")


def test_messages_in_the_timer_wheel_are_waited_for(tmp_path):
    async def conversation(broker: Broker, client: LiveClient) -> None:
        timed = await client.send("T", b"later", properties="TIMER_DELAY_SEC\x01900\x02")
        assert timed.code == 0
        for _ in range(4):
            await client.send("T", BODY)
        assert broker.context.store.wait_dispatched()
        await until(lambda: broker.context.timers.store.queue_offset == 1)

        await clean(broker, client)

        assert (await figures(client))["segmentsWaitFor"] == "a message in the timer wheel"

    talk(tmp_path, conversation, "waitForReaders=groups", "mappedFileSizeTimerLog=5216")


@wires("waitForReaders")
def test_a_segment_goes_when_the_queue_file_that_leads_to_it_has_expired(tmp_path):
    async def conversation(broker: Broker, client: LiveClient) -> None:
        broker.context.store.flush()
        for path in (tmp_path / "store" / "commitlog").iterdir():
            os.utime(path, (0, 0))
        assert await clean(broker, client) == 0
        assert (await figures(client))["segmentsWaitFor"] == "queue 0 of topic T"
        for path in (tmp_path / "store" / "consumequeue").rglob("0*"):
            os.utime(path, (0, 0))

        assert await clean(broker, client) == COUNT - 2

    talk(tmp_path, conversation, "waitForReaders=queues", "fileReservedTime=1")


def test_another_word_is_refused_at_the_start(tmp_path):
    file = tmp_path / "broker.conf"
    file.write_text(CONF + "waitForReaders=everybody\n")
    with pytest.raises(ConfigError, match="waitForReaders"):
        BrokerConfig.load(file, {"storePathRootDir": tmp_path / "store"})
