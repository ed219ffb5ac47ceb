"""Offsets in memory, with the broker, and in RocketMQ's own file."""

import asyncio
import errno
import json
from pathlib import Path

import pytest

from async_run import run_async
from orbitmq.client.consumer.offset_store import (
    NO_OFFSET,
    LocalOffsets,
    RemoteOffsets,
    format_offsets,
    parse_offsets,
)
from orbitmq.errors import FieldError, ResponseError, StateFileError, UnreachableError
from orbitmq.testing.fake_disk import FaultyDisk
from orbitmq.wire.bodies.message_queue import MessageQueue

ONE, TWO = MessageQueue("Orders", "broker-a", 0), MessageQueue("Orders", "broker-a", 1)

# What Java's client 5.3.3 (fastjson, pretty printed) writes.
JAVA_FILE = (
    '{\n\t"offsetTable":{{\n\t\t\t"brokerName":"broker-a",\n\t\t\t"queueId":0,\n\t\t\t"topic":"Orders"'
    '\n\t\t}:17,{\n\t\t\t"brokerName":"broker-a",\n\t\t\t"queueId":1,\n\t\t\t"topic":"Orders"\n\t\t}:3\n\t}\n}'
)


class FakeBrokers:
    """Keeps offsets like a broker; `error` is raised the next `failures` times."""

    def __init__(self) -> None:
        self.offsets: dict[MessageQueue, int] = {}
        self.calls = 0
        self.error: Exception | None = None
        self.failures = 0

    async def consumer_offset(self, address, group, queue, **more):
        return self.offsets.get(queue, -1)

    async def update_consumer_offset(self, address, group, queue, offset):
        self.calls += 1
        if self.failures:
            self.failures -= 1
            raise self.error
        self.offsets[queue] = offset


class FakeRoutes:
    async def find_address(self, broker_name, topic):
        if broker_name != "broker-a":
            raise UnreachableError(broker_name, "no address of this broker is known")
        return "127.0.0.1:1"


def remote() -> tuple[RemoteOffsets, FakeBrokers]:
    brokers = FakeBrokers()
    return RemoteOffsets("demo", brokers, FakeRoutes()), brokers


def test_offsets_in_memory_go_forward_only_unless_told_otherwise():
    offsets, _ = remote()

    offsets.update(ONE, 10)
    offsets.update(ONE, 7)
    kept = offsets.get(ONE)
    offsets.update(ONE, 7, forward_only=False)

    assert (kept, offsets.get(ONE), offsets.get(TWO)) == (10, 7, None)


def test_only_what_changed_is_told_to_the_broker():
    async def main():
        offsets, brokers = remote()
        offsets.update(ONE, 10)
        offsets.update(TWO, 5)
        await offsets.persist()
        await offsets.persist()
        offsets.update(TWO, 6)
        await offsets.persist()
        return brokers.offsets, brokers.calls

    assert run_async(main) == ({ONE: 10, TWO: 6}, 3)


def test_what_did_not_reach_the_broker_is_told_again():
    async def main():
        offsets, brokers = remote()
        brokers.error, brokers.failures = UnreachableError("a:1", "gone"), 1
        offsets.update(ONE, 10)
        await offsets.persist()
        missing = dict(brokers.offsets)
        await offsets.persist()
        return missing, brokers.offsets

    assert run_async(main) == ({}, {ONE: 10})


def test_an_offset_that_moved_on_while_it_was_told_is_told_again():
    async def main():
        offsets, brokers = remote()
        tell = brokers.update_consumer_offset

        async def slow(*given, **more):
            await tell(*given, **more)
            offsets.update(ONE, 11)

        brokers.update_consumer_offset = slow
        offsets.update(ONE, 10)
        await offsets.persist()
        first = dict(brokers.offsets)
        await offsets.persist()
        await offsets.persist()
        return first, brokers.offsets, brokers.calls

    assert run_async(main) == ({ONE: 10}, {ONE: 11}, 2)


def test_the_last_persist_tries_twice():
    async def main():
        offsets, brokers = remote()
        brokers.error, brokers.failures = UnreachableError("a:1", "gone"), 1
        offsets.update(ONE, 10)
        await offsets.persist([ONE], retry=True)
        return brokers.offsets

    assert run_async(main) == {ONE: 10}


def test_offsets_of_a_topic_that_is_gone_are_given_up():
    async def main():
        offsets, brokers = remote()
        brokers.error, brokers.failures = ResponseError(17, "no such topic"), 1
        offsets.update(ONE, 10)
        await offsets.persist()
        await offsets.persist()
        return brokers.calls

    assert run_async(main) == 1


def test_a_queue_of_an_unknown_broker_is_an_error():
    async def main():
        offsets, _ = remote()
        await offsets.read(MessageQueue("Orders", "broker-z", 0))

    with pytest.raises(UnreachableError, match="broker-z"):
        run_async(main)


def test_a_remote_offset_that_is_not_there_is_none():
    async def main():
        offsets, _ = remote()
        return await offsets.read(ONE)

    assert run_async(main) == NO_OFFSET


def test_the_file_is_written_as_java_writes_it():
    assert format_offsets({TWO: 3, ONE: 17}) == JAVA_FILE


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(JAVA_FILE, id="Java, pretty"),
        pytest.param(JAVA_FILE.replace("\n", "").replace("\t", ""), id="compact"),
        pytest.param(
            json.dumps(
                {
                    "offsetTable": {
                        '{"brokerName":"broker-a","queueId":0,"topic":"Orders"}': 17,
                        '{"brokerName":"broker-a","queueId":1,"topic":"Orders"}': 3,
                    }
                }
            ),
            id="keys in quotes",
        ),
    ],
)
def test_files_of_every_form_are_read(text):
    assert parse_offsets(text.encode()) == {ONE: 17, TWO: 3}


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"offsetTable":{"x":1}}', "{ torn"])
def test_what_is_no_table_is_refused(text):
    with pytest.raises(FieldError):
        parse_offsets(text.encode())


def test_local_offsets_survive_a_restart(tmp_path: Path):
    async def main():
        first = LocalOffsets(tmp_path, "10.0.0.1@DEFAULT", "demo")
        await first.load()
        first.update(ONE, 17)
        await first.persist()
        first.update(TWO, 3)
        await asyncio.gather(first.persist(), first.persist([TWO]))

        second = LocalOffsets(tmp_path, "10.0.0.1@DEFAULT", "demo")
        await second.load()
        return await second.read(ONE), await second.read(TWO), second.path

    one, two, path = run_async(main)

    assert (one, two) == (17, 3)
    assert path == tmp_path / "10.0.0.1@DEFAULT" / "demo" / "offsets.json"
    assert path.read_text() == JAVA_FILE
    assert parse_offsets(path.with_name("offsets.json.bak").read_bytes()) == {ONE: 17}


def test_a_queue_that_is_forgotten_stays_in_the_file(tmp_path: Path):
    async def main():
        offsets = LocalOffsets(tmp_path, "c", "demo")
        offsets.update(ONE, 17)
        await offsets.persist()
        offsets.forget(ONE)
        offsets.update(TWO, 3)
        await offsets.persist()
        return parse_offsets(offsets.path.read_bytes()), await offsets.read(ONE)

    assert run_async(main) == ({ONE: 17, TWO: 3}, 17)


def test_a_broken_file_is_replaced_by_the_one_before(tmp_path: Path):
    async def main():
        offsets = LocalOffsets(tmp_path, "c", "demo")
        for offset in (1, 2):
            offsets.update(ONE, offset)
            await offsets.persist()
        offsets.path.write_text("{ torn")
        again = LocalOffsets(tmp_path, "c", "demo")
        await again.load()
        return await again.read(ONE)

    assert run_async(main) == 1


def test_a_full_disk_is_survived_and_the_offsets_are_stored_later(tmp_path: Path):
    async def main():
        disk = FaultyDisk()
        disk.fail("write_at", errno=errno.ENOSPC)
        offsets = LocalOffsets(tmp_path, "c", "demo", disk)
        offsets.update(ONE, 5)
        await offsets.persist()
        missing = offsets.path.exists()
        await offsets.persist()
        return missing, parse_offsets(offsets.path.read_bytes())

    assert run_async(main) == (False, {ONE: 5})


def test_two_broken_files_are_an_error(tmp_path: Path):
    async def main():
        offsets = LocalOffsets(tmp_path, "c", "demo")
        offsets.path.parent.mkdir(parents=True)
        for name in ("offsets.json", "offsets.json.bak"):
            offsets.path.with_name(name).write_text("{ torn")
        await offsets.load()

    with pytest.raises(StateFileError, match="Move it"):
        run_async(main)


def test_offsets_of_one_topic_can_be_asked_for():
    offsets, _ = remote()
    other = MessageQueue("Bills", "broker-a", 0)
    offsets.update(ONE, 1)
    offsets.update(other, 2)

    assert offsets.of_topic("Bills") == {other: 2}
    assert offsets.of_topic() == {ONE: 1, other: 2}
