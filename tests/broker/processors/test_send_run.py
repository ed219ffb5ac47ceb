"""Sends that go from frame to record by kernels: the same bytes and answers as those that go one by one."""

import dataclasses
import itertools
import os
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from drawn_sends import KEY, NEW, NOW_MS, SOON_MS, TIMES, batch, frame, sends
from golden_frames import good_frames
from message_replay import MessageWorld, send_command
from orbitmq.broker.router import BrokerHandler
from orbitmq.format.message_id import MEMORY_LOG_OFFSET
from orbitmq.format.record import Record
from orbitmq.message import AppendStatus
from orbitmq.net.config import NetConfig
from orbitmq.net.connection import Connection
from orbitmq.store.config import FlushMode
from orbitmq.store.timer.timer_store import TimerStore
from orbitmq.units import KiB
from orbitmq.wire.bodies.topic_config import TopicConfig
from orbitmq.wire.command import ONEWAY_FLAG, Command, Encoding
from orbitmq.wire.fast import kernels as send_kernels
from orbitmq.wire.frame import FrameDecoder

TOPICS = ("Orders", "Paid", NEW)
DAY_MS = 86_400_000
EXAMPLES = int(os.environ.get("ORBITMQ_SEND_EXAMPLES", "150"))
"""How many drawn conversations the comparison has; it passed with 100 000."""


class Transport:
    """The socket of a connection: keeps what is written."""

    def __init__(self) -> None:
        self.written = b""

    def get_extra_info(self, name: str) -> Any:
        return None if name == "socket" else ("127.0.0.1", 50_001)

    def set_write_buffer_limits(self, high: int) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: bytes) -> None:
        self.written += data

    def close(self) -> None: ...


class Producer:
    """A producer's connection to a broker that takes sends by kernels, or that does not."""

    def __init__(self, root: Path, *, by_kernels: bool, timers: bool = True, **given: Any) -> None:
        self.world = MessageWorld(root, **given)
        assert self.world.clock.now_ms() == NOW_MS
        self.timers = TimerStore.open(self.world.store, self.world.clock) if timers else None
        self.taken = 0
        self.answers: list[Command] = []  # to what a `Pair` compared last
        if by_kernels:
            self.world.sends.fast_way.use(send_kernels.compiled())
        numbers = itertools.count()  # ids that the broker makes are chance otherwise
        self.world.sends._rules._ids.next_id = lambda: f"{next(numbers):032X}"  # type: ignore[method-assign]
        take = self.world.sends.take

        def counting(connection: Connection, data: bytes) -> int:
            count = take(connection, data)
            self.taken += count
            return count

        self.world.sends.take = counting  # type: ignore[method-assign]
        self.transport, self.connection = self.connect()

    def connect(self) -> tuple[Transport, Connection]:
        """Go on as another producer."""
        handler = BrokerHandler(self.world.router, self.world.sends)
        self.transport, self.connection = Transport(), Connection(handler, self.world.config.net)
        return self.transport, self.connection

    def send(self, chunks: Sequence[bytes]) -> bytes:
        """Send these bytes, each chunk as one read; return the answers."""

        async def run() -> None:
            if self.connection._transport is None:
                self.connection.connection_made(cast(Any, self.transport))
            for chunk in chunks:
                self.connection.data_received(chunk)

        self.world.loop.run_until_complete(run())
        self.world.turn()
        written, self.transport.written = self.transport.written, b""
        return written

    def log(self) -> bytes:
        """Return all bytes of the commit log, and close the store."""
        root = self.world.config.store.root
        self.world.__exit__(None, None, None)
        return b"".join(path.read_bytes() for path in sorted((root / "commitlog").iterdir()))

    def log_from(self, start: int) -> bytes:
        """Return the bytes of the commit log behind an offset."""
        size = self.world.config.store.segment_bytes
        found = b""
        while start < self.world.store.max_log_offset:
            base = start - start % size
            path = self.world.config.store.root / "commitlog" / f"{base:020}"
            found += path.read_bytes()[start - base :]
            start = base + size
        return found


class Pair:
    """Two brokers, one with kernels, that are sent the same and must do the same."""

    def __init__(self, root: Path, **given: Any) -> None:
        self.ordinary = Producer(root / "ordinary", by_kernels=False, **given)
        self.quick = Producer(root / "quick", by_kernels=True, **given)

    @property
    def both(self) -> tuple[Producer, Producer]:
        return self.ordinary, self.quick

    def compare(self, chunks: Sequence[bytes]) -> None:
        """Send these bytes to both, from new connections, and compare everything."""
        for producer in self.both:
            producer.connect()
            producer.world.context.topics.delete(NEW)  # it comes into being by its first message
        start = self.ordinary.world.store.max_log_offset
        told = [producer.send(chunks) for producer in self.both]
        self.quick.answers = FrameDecoder().receive(told[1])
        # A refusal does not wait for what came before it in the same read.
        assert sorted(frames_in(told[0])) == sorted(frames_in(told[1]))
        for name in ("closed", "language", "version", "encoding"):
            first, second = (getattr(producer.connection, name) for producer in self.both)
            assert first == second, name
        figures = [p.world.context.statistics.put_totals() for p in self.both]
        assert figures[0] == figures[1]
        assert self.ordinary.log_from(start) == self.quick.log_from(start)
        assert self.ordinary.taken == 0

    def close(self) -> None:
        for producer in self.both:
            producer.log()


def both_ways(chunks: Sequence[bytes], first: Sequence[bytes] = (), **given: Any) -> Producer:
    """Send the same to two brokers, compare everything, and return the one with kernels."""
    with TemporaryDirectory() as root:
        pair = Pair(Path(root), **given)
        pair.compare([*first, *chunks])
        logs = [producer.log() for producer in pair.both]
        assert logs[0] == logs[1]
        return pair.quick


def frames_in(data: bytes) -> list[bytes]:
    found = []
    while data:
        end = 4 + int.from_bytes(data[:4])
        found.append(data[:end])
        data = data[end:]
    return found


FIRST = [frame(send_command(topic, queue_id=queue)) for topic in TOPICS[:2] for queue in range(4)]
"""They make topics and queues known."""
FIRST += [frame(send_command(topic, properties=KEY + TIMES[0])) for topic in TOPICS[:2]]


# --- single cases ---


def test_ordinary_sends_are_taken_and_answered(tmp_path: Path) -> None:
    sends = [
        frame(send_command("Orders", b"x" * size, queue_id=size % 4, g=1_700_000_000_000 + size))
        for size in range(1, 40)
    ]
    quick = both_ways([b"".join(sends)], FIRST)
    assert quick.taken == sum(map(len, sends))


def test_a_client_batch_is_taken() -> None:
    body = batch(b"one", b"two" * 500, b"", properties=b"KEYS\x01a b\x02TAGS\x01T")
    send = frame(send_command("Orders", body, code=320, properties="WAIT\x01true\x02", m="true"))
    quick = both_ways([send * 3], FIRST)
    assert quick.taken == 3 * len(send)


def test_sends_that_wait_for_a_time_are_taken_and_told_their_handle() -> None:
    sends = [
        frame(send_command("Orders", b"x", queue_id=queue, properties=KEY + text))
        for text in (*TIMES, "", f"TIMER_DELIVER_MS\x01{SOON_MS + 900}\x02")
        for queue in (0, 3)
    ]
    quick = both_ways([b"".join(sends)] * 2, FIRST)
    assert quick.taken == 2 * sum(map(len, sends))
    handles = [(answer.fields or {}).get("recallHandle") for answer in quick.answers]
    assert handles.count(None) == 2 * 2 + 8  # and the first ones


def test_a_time_for_a_topic_that_none_has_waited_for_goes_the_ordinary_way_once() -> None:
    send = frame(send_command(properties=KEY + TIMES[0]))
    quick = both_ways([send, send, send], [*FIRST[:8], FIRST[9]])
    assert quick.taken == 2 * len(send)


@pytest.mark.parametrize(
    "time",
    [
        "TIMER_DELAY_SEC\x010\x02",
        f"TIMER_DELIVER_MS\x01{NOW_MS}\x02",
        f"TIMER_DELAY_MS\x01{3 * DAY_MS + 1}\x02",
    ],
)
def test_what_is_due_or_too_far_away_goes_the_ordinary_way_with_its_neighbours(time: str) -> None:
    send = frame(send_command(properties=KEY + time))
    near = frame(send_command(properties=f"{KEY}TIMER_DELAY_MS\x01{3 * DAY_MS}\x02"))
    soon = frame(send_command(properties=f"{KEY}TIMER_DELIVER_MS\x01{NOW_MS + 1}\x02"))
    assert both_ways([near + soon + send], FIRST).taken == 0
    assert both_ways([near + soon], FIRST).taken == len(near + soon)


def test_without_a_timer_wheel_times_are_refused_on_both_ways() -> None:
    send = frame(send_command(properties=KEY + TIMES[0]))
    quick = both_ways([send * 2], FIRST, timers=False)
    assert quick.taken == 0
    assert {answer.code for answer in quick.answers[-2:]} == {1}


def test_a_slot_that_has_as_many_as_it_may_have_is_looked_at_one_by_one(tmp_path: Path) -> None:
    quick = Producer(tmp_path, by_kernels=True, store={"timer_slot_count_max": 3})
    quick.send(FIRST)
    send = frame(send_command(properties=KEY + TIMES[0]))
    assert quick.timers is not None
    for expected in (2, 2, 2):
        quick.taken = 0
        quick.send([send * 2])
        quick.world.settle()
        quick.timers.turn(100, 0)
        assert quick.taken in (0, expected * len(send))
    assert quick.taken == 0
    quick.log()


@pytest.mark.feature("F31")
def test_a_batch_to_a_batch_topic_is_not_taken_but_kept_as_one_record(tmp_path: Path) -> None:
    quick = Producer(tmp_path, by_kernels=True)
    attributes = {"queue.type": "BatchCQ"}
    quick.world.context.topics.put(TopicConfig(topic_name="B", attributes=attributes))
    send = frame(send_command("B", batch(b"one", b"two"), code=320, m="true"))

    answers = FrameDecoder().receive(quick.send([send, send, send]))

    assert [(answer.fields or {})["batchUniqId"] for answer in answers] == ["K1"] * 3
    assert [record.queue_offset for record in quick.world.records("B")] == [0, 2, 4]
    assert quick.taken == 0
    quick.log()


def test_oneway_sends_are_taken_and_not_answered(tmp_path: Path) -> None:
    quick = Producer(tmp_path, by_kernels=True)
    quick.send(FIRST)
    send = frame(send_command(flag=ONEWAY_FLAG))
    assert quick.send([send * 2]) == b""
    assert quick.taken == 2 * len(send)
    assert len(quick.world.records("Orders")) == 3
    quick.log()


@pytest.mark.parametrize(
    "properties",
    [
        "KEYS\x01a\x02",  # no unique key: the broker makes one
        "UNIQ_KEY\x01\x02",
        "XUNIQ_KEY\x01A\x02",
        "UNIQ_KEY\x01A B\x02",
        "UNIQ_KEY\x01A",
        "UNIQ_KEY\x01A\x02DELAY\x013\x02",
        "UNIQ_KEY\x01A\x02TIMER_DELAY_SEC\x013\x02TIMER_DELAY_MS\x013\x02",
        "UNIQ_KEY\x01A\x02TIMER_DELAY_SEC\x013\x02TIMER_DEL_UNIQKEY\x01Orders+K\x02",
        "UNIQ_KEY\x01A\x02TIMER_DELAY_SEC\x013\x02REAL_TOPIC\x01X\x02",
        "UNIQ_KEY\x01A\x02INNER_NUM\x013\x02",
        "UNIQ_KEY\x01A\x02TRAN_MSG\x01true\x02",
        "UNIQ_KEY\x01A\x02POP_CK\x01x\x02",
        "UNIQ_KEY\x01A\x02MSG_REGION\x01x\x02",
        "UNIQ_KEY\x01A\x02WAIT\x01false\x02",
        "UNIQ_KEY\x01A\x02NAME\x01Käse\x02",
        'UNIQ_KEY\x01A\x02NAME\x01"\\\x02',
        "UNIQ_KEY\x01A\x02NAME\x01\x00\x02",
        "UNIQ_KEY\x01A\x02N\x01" + "x" * 33_000 + "\x02",
        "",
    ],
)
def test_what_needs_care_goes_the_ordinary_way(properties: str) -> None:
    send = frame(send_command(properties=properties))
    ordinary = frame(send_command(properties="UNIQ_KEY\x01B\x02A_B\x01C_D\x02"))
    given = {"store": {"segment_bytes": 512 * KiB}}
    quick = both_ways([ordinary + send + ordinary], FIRST, **given)
    assert quick.taken == len(ordinary)


@pytest.mark.parametrize(
    "send",
    [
        send_command(queue_id=4),
        send_command(queue_id=99),
        send_command("Unknown"),
        send_command("Orders", b""),
        send_command(f="4"),
        send_command(f="16"),
        send_command(h="-1"),
        send_command(e="x"),
        send_command(code=10),  # with letters
        Command(310, {"topic": "Orders"}, b"x"),
        send_command(flag=1),
        Command(34, {}, b"", 8),
    ],
    ids=repr,
)
def test_what_is_no_plain_send_goes_the_ordinary_way(send: Command) -> None:
    ordinary = frame(send_command())
    quick = both_ways([ordinary, frame(send) + ordinary], FIRST)
    # What stands behind it in the same read goes with it.
    assert quick.taken == len(ordinary)


def test_a_binary_header_goes_the_ordinary_way() -> None:
    send = send_command()
    send.encoding = Encoding.BINARY
    assert both_ways([frame(send) * 2], FIRST).taken == 0


def test_a_segment_that_is_full_is_followed_by_the_next() -> None:
    sends = b"".join(frame(send_command(body=b"x" * 3000, queue_id=n % 4)) for n in range(60))
    quick = both_ways([sends[:50_000], sends[50_000:]], FIRST, store={"segment_bytes": 64 * KiB})
    assert 0 < quick.taken < len(sends)


def test_bytes_that_are_no_frame_close_the_connection() -> None:
    quick = both_ways([frame(send_command()) + struct.pack(">ii", 2**30, 5) + b"x" * 20], FIRST)
    assert quick.connection.closed


# --- lengths that a producer says ---


def batch_of(body_length: int, properties_length: int) -> bytes:
    """Return a batch of one message with these lengths, five bytes of a body and four of properties."""
    head = struct.pack(">iiiii", 0, 0, 0, 0, body_length)
    return head + b"hello" + struct.pack(">h", properties_length) + b"A\x01b\x02"


@pytest.mark.parametrize(
    ("body_length", "properties_length"),
    [
        (-1, 4),
        (6, 4),
        (100, 4),
        (2**31 - 1, 4),
        (-(2**31), 4),
        (5, -1),
        (5, -31),
        (5, 5),
        (5, 32767),
    ],
)
def test_a_batch_whose_lengths_leave_it_is_refused(
    body_length: int, properties_length: int
) -> None:
    good = frame(send_command(body=batch_of(5, 4), m="true"))
    bad = frame(send_command(body=batch_of(body_length, properties_length), m="true"))

    quick = both_ways([good + bad], FIRST)

    assert quick.taken == len(good)
    assert len(quick.answers) == len(FIRST) + 2
    assert quick.answers[-1].code == 13


def test_a_body_may_have_the_largest_size_and_not_a_byte_more() -> None:
    sends = [frame(send_command(body=bytes(size))) for size in (1000, 1001)]

    quick = both_ways(sends, FIRST, store={"message_bytes_max": 1000})

    assert quick.taken == len(sends[0])
    assert [answer.code for answer in quick.answers[-2:]] == [0, 13]


def test_a_frame_over_the_limit_closes_the_connection() -> None:
    allowed, longer = (frame(send_command(body=bytes(size))) for size in (2000, 2001))
    net = NetConfig(frame_bytes_max=len(allowed))

    assert not both_ways([allowed], FIRST, net=net).connection.closed
    assert both_ways([longer], FIRST, net=net).connection.closed


@pytest.mark.parametrize("more", [1, 5, 1 << 20, 1 << 23])
def test_a_header_longer_than_its_frame_closes_the_connection(more: int) -> None:
    send = bytearray(frame(send_command(body=b"}")))
    header_length = len(send) - 8 + more
    send[4:8] = header_length.to_bytes(4)

    quick = both_ways([bytes(send) + frame(send_command()) * 3], FIRST)

    assert quick.connection.closed
    assert quick.taken == 0


# --- when nothing may be taken ---


@pytest.mark.parametrize("by_kernels", [False, True], ids=["ordinary", "kernels"])
def test_nothing_is_taken_before_its_time_nor_by_a_broker_that_may_not_write(
    tmp_path: Path, by_kernels: bool
) -> None:
    producer = Producer(tmp_path, by_kernels=by_kernels)
    world, send = producer.world, frame(send_command())
    producer.send([*FIRST, send])
    config = world.context.topics.get("Orders")
    assert config is not None
    world.context.topics.put(replace(config, order=True))
    producer.send([send])
    end = world.store.max_log_offset

    world.config.accept_sends_from_ms = world.clock.now_ms() + 1000
    (early,) = FrameDecoder().receive(producer.send([send]))
    world.config.accept_sends_from_ms = 0
    producer.send([send])
    end_before = world.store.max_log_offset
    world.config.permission = 4
    (forbidden,) = FrameDecoder().receive(producer.send([send]))

    assert (early.code, forbidden.code) == (1, 16)
    assert end < end_before == world.store.max_log_offset
    producer.log()


def test_a_queue_that_its_topic_lost_takes_no_more(tmp_path: Path) -> None:
    quick = Producer(tmp_path, by_kernels=True)
    quick.send(FIRST)
    config = quick.world.context.topics.get("Orders")
    assert config is not None
    fewer = replace(config, read_queue_nums=2, write_queue_nums=2)
    quick.world.context.topics.put(fewer)
    quick.send([frame(send_command(queue_id=1))])  # the new config is known

    sends = [frame(send_command(queue_id=queue)) for queue in (1, 2)]
    answers = FrameDecoder().receive(quick.send(sends))

    assert [answer.code for answer in answers] == [0, 29]
    assert quick.taken == len(sends[0])
    quick.log()


def test_what_is_no_send_behind_an_earlier_send_is_left_alone(tmp_path: Path) -> None:
    """Nothing of the send before may be taken for a part of it."""
    quick = Producer(tmp_path, by_kernels=True)
    quick.send([*FIRST, frame(send_command())])
    quick.send([frame(Command(34, {}, b"\xff" * 600))])
    assert not quick.connection.closed
    quick.log()


def test_settings_that_stand_in_messages_and_answers_take_effect_at_once(tmp_path: Path) -> None:
    quick = Producer(tmp_path, by_kernels=True)
    send = frame(send_command())
    quick.send([*FIRST, send])
    quick.world.config.region = "Elsewhere"
    (answer,) = FrameDecoder().receive(quick.send([send]))
    assert quick.taken == 2 * len(send)
    assert (answer.fields or {})["MSG_REGION"] == "Elsewhere"
    assert quick.world.records("Orders")[-1].property_map["MSG_REGION"] == "Elsewhere"
    quick.log()


def test_a_topic_that_is_made_read_only_is_not_written_to(tmp_path: Path) -> None:
    quick = Producer(tmp_path, by_kernels=True)
    send = frame(send_command())
    quick.send([*FIRST, send])
    topics = quick.world.context.topics
    config = topics.get("Orders")
    assert config is not None
    topics.put(replace(config, perm=4))
    (answer,) = FrameDecoder().receive(quick.send([send]))
    assert answer.code == 16
    quick.log()


# --- sync flush ---


def test_with_sync_flush_the_answer_comes_when_it_is_on_disk() -> None:
    sends = b"".join(frame(send_command(queue_id=n % 4)) for n in range(9))
    quick = both_ways([sends, sends], FIRST, store={"flush_mode": FlushMode.SYNC})
    assert quick.taken == 2 * len(sends)


def test_with_sync_flush_nothing_is_answered_before_the_disk_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = Producer(tmp_path, by_kernels=True, store={"flush_mode": FlushMode.SYNC})
    quick.send(FIRST)
    sync, synced = quick.world.store.flush_log, []

    def watched() -> None:
        assert quick.transport.written == b""
        sync()
        synced.append(quick.world.store.flushed_offset)

    monkeypatch.setattr(quick.world.store, "flush_log", watched)
    send = frame(send_command())

    answers = FrameDecoder().receive(quick.send([send * 3]))

    assert quick.taken == 3 * len(send)
    assert [answer.code for answer in answers] == [0, 0, 0]
    assert synced == [quick.world.store.max_log_offset]
    quick.log()


def test_a_disk_that_does_not_sync_in_time_is_told(tmp_path: Path) -> None:
    quick = Producer(tmp_path, by_kernels=True, store={"flush_mode": FlushMode.SYNC})
    quick.send(FIRST)
    told: list[Any] = []
    quick.world.sends.flush_wait.add = lambda _, done: told.append(done)  # type: ignore[method-assign]
    assert quick.send([frame(send_command()) * 2]) == b""
    told[0](AppendStatus.FLUSH_DISK_TIMEOUT)
    quick.world.turn()
    answers = FrameDecoder().receive(quick.transport.written)
    assert [answer.code for answer in answers] == [10, 10]
    assert all("syncFlushTimeout" in (answer.remark or "") for answer in answers)
    quick.log()


# --- what RocketMQ 5.3.3 stores of odd properties, as its broker did with these ---

REWRITTEN = {
    KEY + "KEYS\x01a\x02KEYS\x01b\x02": {"KEYS\x01b"},
    KEY + "KEYS\x01k\x02KEYS\x01\x02": {"KEYS\x01k"},
    KEY + "KEYS\x01\x02TAGS\x01T\x02": {"TAGS\x01T"},
    KEY + "KEYS\x02TAGS\x01T\x02": {"TAGS\x01T"},
    KEY + "KEYS\x01x": {"KEYS\x01x"},
    KEY + "\x01x\x02KEYS\x01k\x02": {"KEYS\x01k"},
    KEY + "\x02\x02KEYS\x01k\x02": {"KEYS\x01k"},
    KEY + "KEYS\x01a\x01b\x02": {"KEYS\x01a\x01b"},
    KEY + "A\x01\x02B\x011\x02": {"B\x011"},
    KEY + "CLUSTER\x01mine\x02": set(),
    KEY + "TRACE_ON\x01mine\x02": set(),
    KEY + "MSG_REGION\x01mine\x02": set(),
    KEY + "POP_CK\x01x\x02MYPOP_CK\x01y\x02POP_CK2\x01z\x02": {"MYPOP_CK\x01y", "POP_CK2\x01z"},
    KEY + "N\x01a\x00b\x02": {"N\x01a\x00b"},
    KEY + "N\x01\x03\x1f\x7f\x85\x02": {"N\x01\x03\x1f\x7f\x85"},
    KEY + "Ü\x01ä€😀\x02": {"Ü\x01ä€😀"},
    KEY + " KEYS \x01 k \x02": {" KEYS \x01 k "},
    "UNIQ_KEY\x01K0\x02" + KEY: set(),
}
ADDED = {"MSG_REGION\x01DefaultRegion", "TRACE_ON\x01true", "CLUSTER\x01DefaultCluster"}


@pytest.mark.parametrize("by_kernels", [False, True], ids=["ordinary", "kernels"])
@pytest.mark.parametrize("properties", REWRITTEN)
def test_properties_are_stored_as_rocketmq_writes_them_anew(
    tmp_path: Path, properties: str, by_kernels: bool
) -> None:
    wanted = sorted(REWRITTEN[properties] | ADDED | {"UNIQ_KEY\x01K1"})
    single = frame(send_command(properties=properties))
    in_batch = frame(send_command(body=batch(b"x"), properties=properties, m="true"))
    quick = Producer(tmp_path, by_kernels=by_kernels)

    quick.send([single, single, in_batch, frame(send_command(body=b"plain")) + single + in_batch])

    records = [record for record in quick.world.records("Orders") if record.body != b"plain"]
    quick.log()
    assert [record.body for record in records] == [b"hello", b"hello", b"x", b"hello", b"x"]
    for record in records:
        text = record.properties.decode()
        if record.body == b"x":  # the message's own come first, as they were sent
            assert text.startswith("KEYS\x01k\x02")
            text = text.removeprefix("KEYS\x01k\x02")
        assert sorted(text.removesuffix("\x02").split("\x02")) == wanted


# --- anything ---


class Pairs:
    """A pair of brokers for each flush mode. Kept from example to example: to make one takes long."""

    def __init__(self, root: Path) -> None:
        self._root, self._made = root, itertools.count()
        self._kept: dict[FlushMode, Pair] = {}
        self._used: dict[FlushMode, int] = {}

    def compare(self, chunks: Sequence[bytes], flush_mode: FlushMode) -> None:
        pair = self._kept.get(flush_mode)
        if pair is None or self._used[flush_mode] >= 200:
            pair = self._renew(flush_mode)
        self._used[flush_mode] += 1
        try:
            pair.compare(chunks)
        except BaseException:
            self._drop(flush_mode)  # the next one starts with two that are equal
            raise

    def _renew(self, flush_mode: FlushMode) -> Pair:
        self._drop(flush_mode)
        pair = Pair(self._root / str(next(self._made)), store={"flush_mode": flush_mode})
        pair.compare(FIRST)
        self._kept[flush_mode], self._used[flush_mode] = pair, 0
        return pair

    def _drop(self, flush_mode: FlushMode) -> None:
        pair = self._kept.pop(flush_mode, None)
        if pair is not None:
            pair.close()

    def close(self) -> None:
        for flush_mode in FlushMode:
            self._drop(flush_mode)


@pytest.fixture(scope="module")
def pairs() -> Iterator[Pairs]:
    with TemporaryDirectory() as root:
        kept = Pairs(Path(root))
        yield kept
        kept.close()


KEYS_TWICE = KEY + "KEYS\x011\x02KEYS\x01a b\x02"


@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(sends, min_size=1, max_size=8),
    st.lists(st.integers(0, 6000), max_size=3),
    st.sampled_from([FlushMode.ASYNC, FlushMode.SYNC]),
)
@example(
    [frame(send_command(body=batch(b"x"), properties=KEYS_TWICE, m="true"))], [], FlushMode.ASYNC
)
@example([frame(send_command(properties=KEYS_TWICE))], [], FlushMode.ASYNC)
@example([frame(send_command(properties=KEY + "TRACE_ON\x01x\x02"))], [], FlushMode.ASYNC)
@example([frame(send_command(properties=KEY + "A\x01\x02"))], [], FlushMode.ASYNC)
@example([frame(send_command(body=batch(b"x"), m="TRUE"))], [], FlushMode.ASYNC)
@example([frame(send_command(d="x"))], [], FlushMode.ASYNC)
def test_whatever_is_sent_both_ways_store_and_answer_the_same(
    pairs: Pairs, frames: list[bytes], cuts: list[int], flush_mode: FlushMode
) -> None:
    data = b"".join(frames)
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    chunks = [data[start:end] for start, end in itertools.pairwise(places) if end > start]
    pairs.compare(chunks, flush_mode)


@settings(max_examples=EXAMPLES)
@given(st.data())
def test_bytes_that_were_changed_are_treated_alike(pairs: Pairs, data: st.DataObject) -> None:
    raw = bytearray(b"".join(frame(send_command(queue_id=n)) for n in range(4)))
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    pairs.compare([bytes(raw)], FlushMode.ASYNC)


@pytest.mark.parametrize("name", ["java-json/producer", "go/basic", "node/basic", "cpp/basic"])
def test_recorded_sends_are_treated_alike(name: str) -> None:
    frames = [
        one.raw
        for one in good_frames(name)
        if one.role == "broker" and one.to_server and one.command.code in (10, 310, 320)
    ]
    assert len(frames) > 3
    quick = both_ways([*frames, *frames])
    # Node sends no unique keys, C++ blanks and numbers.
    assert (quick.taken > 0) == (name in ("java-json/producer", "go/basic"))


# --- topics in memory ---

MEMORY = {"memory.topic": "true"}


def memory_producer(root: Path, *, by_kernels: bool, **given: Any) -> Producer:
    """Return a producer to a broker with topics M and N in memory, to whose queues it has sent."""
    producer = Producer(root, by_kernels=by_kernels, memory_topics=True, **given)
    for topic in "MN":
        producer.world.context.topics.put(TopicConfig(topic_name=topic, attributes=MEMORY))
    producer.send(
        [frame(send_command(topic, queue_id=queue)) for topic in "MN" for queue in range(3)]
    )
    producer.taken = 0
    return producer


def memory_records(producer: Producer) -> list[Record]:
    """Return everything in memory, but for where it lies."""
    return [
        dataclasses.replace(record, log_offset=0)
        for topic in "MN"
        for queue_id in range(3)
        for record in producer.world.records(topic, queue_id)
    ]


@pytest.mark.feature("F104")
def test_sends_to_a_topic_in_memory_are_taken_by_kernels_and_never_reach_the_log(
    tmp_path: Path,
) -> None:
    body = batch(b"one", b"two" * 500, b"", properties=b"KEYS\x01a b\x02TAGS\x01T")
    singles = [
        frame(
            send_command(
                "M",
                b"x" * n,
                queue_id=n % 3,
                properties=f"UNIQ_KEY\x01K{n}\x02TAGS\x01T{n % 5}\x02",
            )
        )
        for n in range(1, 60)
    ]
    read = b"".join(
        [
            *singles,
            frame(send_command("M", body, code=320, properties="WAIT\x01true\x02", m="true")),
        ]
    )
    ways = [memory_producer(tmp_path / f"{way}", by_kernels=way) for way in (False, True)]

    told = [FrameDecoder().receive(producer.send([read])) for producer in ways]

    assert ways[1].taken == len(read)
    assert [producer.world.store.max_log_offset for producer in ways] == [0, 0]
    assert memory_records(ways[0]) == memory_records(ways[1])
    answers = [[(one.code, (one.fields or {})["queueOffset"]) for one in each] for each in told]
    assert answers[0] == answers[1]
    units = [
        [unit.tag_hash for unit in producer.world.store.units("M", 0, 0, 99)] for producer in ways
    ]
    assert units[0] == units[1]
    for producer in ways:
        producer.world.__exit__(None, None, None)


@pytest.mark.feature("F104")
@pytest.mark.parametrize("by_kernels", [False, True])
def test_sends_of_one_read_go_each_where_its_topic_is_kept(
    tmp_path: Path, by_kernels: bool
) -> None:
    producer = memory_producer(tmp_path, by_kernels=by_kernels)
    producer.send(FIRST)
    topics = ["M", "Orders", "N", "M", "Orders"]
    read = b"".join(frame(send_command(topic, topic.encode())) for topic in topics)

    answers = FrameDecoder().receive(producer.send([read]))

    offsets = [int((one.fields or {})["msgId"][-16:], 16) for one in answers]
    assert [offset >= MEMORY_LOG_OFFSET for offset in offsets] == [t in "MN" for t in topics]
    assert [len(producer.world.records(topic)) for topic in ("M", "N", "Orders")] == [3, 2, 3]
    producer.world.__exit__(None, None, None)


@pytest.mark.feature("F104")
@pytest.mark.parametrize("by_kernels", [False, True])
def test_with_sync_flush_a_send_to_memory_is_answered_although_no_disk_has_it(
    tmp_path: Path, by_kernels: bool
) -> None:
    producer = memory_producer(
        tmp_path, by_kernels=by_kernels, store={"flush_mode": FlushMode.SYNC}
    )

    answers = FrameDecoder().receive(producer.send([frame(send_command("M")) * 3]))

    assert [answer.code for answer in answers] == [0, 0, 0]
    assert producer.taken == (3 * len(frame(send_command("M"))) if by_kernels else 0)
    producer.world.__exit__(None, None, None)


def test_a_time_for_a_topic_in_memory_is_refused_on_both_ways(tmp_path: Path) -> None:
    told = []
    for way in (False, True):
        producer = memory_producer(tmp_path / f"{way}", by_kernels=way)
        read = [send_command("M"), send_command("M", properties=KEY + TIMES[0]), send_command("M")]
        answers = FrameDecoder().receive(producer.send([b"".join(map(frame, read))]))
        told.append([(answer.code, answer.remark) for answer in answers])
        assert len(producer.world.records("M")) == 3
        producer.world.__exit__(None, None, None)
    assert told[0] == told[1]
    assert [code == 0 for code, _ in told[0]] == [True, False, True]
