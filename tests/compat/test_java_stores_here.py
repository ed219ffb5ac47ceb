"""Stores that RocketMQ's broker wrote, opened by our broker: what a client gets is what was in them.

No Java is needed: `tests/golden` has the stores, and what RocketMQ itself says about each.
"""

import asyncio
from collections import defaultdict
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from golden_stores import Row, rows, settings, unpack
from live_broker import LOOPBACK, LiveClient, records_of, run_live
from orbitmq.broker.broker import Broker
from orbitmq.broker.config import BrokerConfig
from orbitmq.files.state_file import read_state
from orbitmq.message import SCHEDULE_TOPIC
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command

# All but "timer", whose wheel nobody here turns.
STORES = ("mixed", "crashed", "cleaned", "ext", "batchcq", "propcrc", "indexroll")
GROUP = "reader"
WAIT_SECONDS = 20


def broker_on(root: Path, name: str) -> Broker:
    given = settings(name) | {
        "storePathRootDir": str(root),
        "brokerIP1": LOOPBACK,
        "bindAddress": LOOPBACK,
        "listenPort": "0",
        "fileReservedTime": "1000000",
    }
    return Broker(BrokerConfig.from_settings(given))


async def read_queue(client: LiveClient, topic: str, queue_id: int, start: int) -> list[bytes]:
    """Return the records of a queue as they came, from an offset to its end."""
    found: list[bytes] = []
    while True:
        answer = await client.pull(GROUP, topic, start, queue_id=queue_id)
        if answer.code != 0:
            return found
        found += raw_records(answer)
        start = int(answer.fields["nextBeginOffset"])


def raw_records(answer: Command) -> list[bytes]:
    records, body = [], answer.body
    while body:
        size = int.from_bytes(body[:4], "big")
        records.append(bytes(body[:size]))
        body = body[size:]
    return records


@pytest.mark.feature("X2.java-to-ours")
@pytest.mark.parametrize("name", STORES)
def test_every_message_of_every_queue_comes_byte_by_byte(name: str, tmp_path: Path) -> None:
    root = unpack(name, tmp_path)
    digests = {row["phyOffset"]: row["recordSha256"] for row in rows(name, "record")}

    async def main() -> dict[tuple[str, int], list[str]]:
        async with broker_on(root, name) as broker:
            client = LiveClient(broker.address)
            await client.heartbeat(GROUP, *{queue["topic"] for queue in rows(name, "queue")})
            return {
                (queue["topic"], queue["queueId"]): [
                    sha256(record).hexdigest()
                    for record in await read_queue(
                        client, queue["topic"], queue["queueId"], queue["minOffset"]
                    )
                ]
                for queue in rows(name, "queue")
            }

    found = run_live(main)

    for queue in rows(name, "queue"):
        wanted = [digests[unit[0]] for unit in queue["units"]]
        # What was waiting for its time when the store was closed may have followed.
        assert found[queue["topic"], queue["queueId"]][: len(wanted)] == wanted, queue["topic"]


@pytest.mark.feature("X2.java-to-ours")
@pytest.mark.parametrize("name", ["mixed", "cleaned", "ext", "indexroll"])
def test_every_key_is_found(name: str, tmp_path: Path) -> None:
    root = unpack(name, tmp_path)
    end = rows(name, "opened")[0]["maxPhyOffset"]
    records = {row["phyOffset"]: row for row in rows(name, "record")}
    # A full answer may have been cut: what was delivered since pushes others out of it.
    queries = [row for row in rows(name, "keyQuery") if len(row["phyOffsets"]) < row["maxNum"]]

    async def main() -> list[list[int]]:
        async with broker_on(root, name) as broker:
            client = LiveClient(broker.address)
            return [await query(client, row) for row in queries]

    found = run_live(main)

    assert sum(map(len, found)) > 50
    for row, offsets in zip(queries, found, strict=True):
        # RocketMQ's store compares hashes only, and leaves it to clients to sort out the rest.
        wanted = [offset for offset in row["phyOffsets"] if has_key(records[offset], row)]
        assert [offset for offset in offsets if offset < end] == wanted, row


def has_key(record: Row, row: Row) -> bool:
    properties = record["properties"]
    keys = [properties.get("UNIQ_KEY"), *properties.get("KEYS", "").split(" ")]
    return record["topic"] == row["topic"] and row["key"] in keys


async def query(client: LiveClient, row: Row) -> list[int]:
    fields = {
        "topic": row["topic"],
        "key": row["key"],
        "maxNum": str(row["maxNum"]),
        "beginTimestamp": str(row["begin"]),
        "endTimestamp": str(row["end"]),
    }
    answer = await client.ask(RequestCode.QUERY_MESSAGE, fields)
    return [record.log_offset for record in records_of(answer)]


@pytest.mark.feature("X2.java-to-ours")
def test_groups_go_on_where_they_were_and_delayed_messages_still_come(tmp_path: Path) -> None:
    root = unpack("mixed", tmp_path)
    offsets = read_state(root / "config" / "consumerOffset.json")["offsetTable"]
    delivered = read_state(root / "config" / "delayOffset.json")["offsetTable"]
    waiting = waiting_records(delivered)

    async def main() -> None:
        async with broker_on(root, "mixed") as broker:
            client = LiveClient(broker.address)
            for topic_and_group, queues in offsets.items():
                topic, group = topic_and_group.split("@")
                for queue_id, offset in queues.items():
                    answer = await client.offset(group, topic, int(queue_id))
                    assert answer.fields["offset"] == str(offset), topic_and_group
            await await_delivered(client, waiting)

    run_live(main, seconds=WAIT_SECONDS + 10)


def waiting_records(delivered: dict[str, int]) -> dict[tuple[str, int], set[str]]:
    """Return the unique keys of delayed messages that were not delivered, by where they belong."""
    records = {row["phyOffset"]: row for row in rows("mixed", "record")}
    waiting: dict[tuple[str, int], set[str]] = defaultdict(set)
    for queue in rows("mixed", "queue"):
        if queue["topic"] == SCHEDULE_TOPIC:
            for unit in queue["units"][delivered[str(queue["queueId"] + 1)] :]:
                properties: dict[str, Any] = records[unit[0]]["properties"]
                place = properties["REAL_TOPIC"], int(properties["REAL_QID"])
                waiting[place].add(properties["UNIQ_KEY"])
    assert sum(map(len, waiting.values())) == 15
    return waiting


async def await_delivered(client: LiveClient, waiting: dict[tuple[str, int], set[str]]) -> None:
    ends = {(row["topic"], row["queueId"]): row["maxOffset"] for row in rows("mixed", "queue")}
    await client.heartbeat(GROUP, *{topic for topic, _ in waiting})
    async with asyncio.timeout(WAIT_SECONDS):
        for (topic, queue_id), keys in waiting.items():
            while (got := await new_keys(client, topic, queue_id, ends)) != sorted(keys):
                assert set(got) <= keys, "something else was delivered, or twice"
                await asyncio.sleep(0.05)


async def new_keys(
    client: LiveClient, topic: str, queue_id: int, ends: dict[tuple[str, int], int]
) -> list[str]:
    answer = await client.pull(GROUP, topic, ends.get((topic, queue_id), 0), queue_id=queue_id)
    found = records_of(answer) if answer.code == 0 else []
    return sorted(record.unique_key or "" for record in found)
