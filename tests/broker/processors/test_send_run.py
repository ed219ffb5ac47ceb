"""Sends that go from frame to record by kernels: the same bytes and answers as those that go one by one."""

import itertools
import json
import struct
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from golden_frames import good_frames
from message_replay import MessageWorld, send_command
from orbitmq.broker.router import BrokerHandler
from orbitmq.format import kernels
from orbitmq.format.client_batch import ClientMessage, encode_client_batch
from orbitmq.message import AppendStatus
from orbitmq.net.config import NetConfig
from orbitmq.net.connection import Connection
from orbitmq.store.config import FlushMode
from orbitmq.units import KiB
from orbitmq.wire.command import ONEWAY_FLAG, Command, Encoding, encode_command
from orbitmq.wire.frame import FrameDecoder

NAMES = {
    "b": "topic",
    "e": "queueId",
    "f": "sysFlag",
    "g": "bornTimestamp",
    "h": "flag",
    "i": "properties",
    "j": "reconsumeTimes",
    "m": "batch",
    "a": "producerGroup",
    "c": "defaultTopic",
    "d": "defaultTopicQueueNums",
}
TOPICS = ("Orders", "Paid", "New")  # the last one comes into being by its first message


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

    def __init__(self, root: Path, *, by_kernels: bool, **given: Any) -> None:
        self.world = MessageWorld(root, **given)
        self.taken = 0
        if by_kernels:
            self.world.store._parts.kernels = kernels.compiled()
        numbers = itertools.count()  # ids that the broker makes are chance otherwise
        self.world.sends._rules._ids.next_id = lambda: f"{next(numbers):032X}"  # type: ignore[method-assign]
        take = self.world.sends.take

        def counting(connection: Connection, data: bytes) -> int:
            count = take(connection, data)
            self.taken += count
            return count

        self.world.sends.take = counting  # type: ignore[method-assign]
        handler = BrokerHandler(self.world.router, self.world.sends)
        self.transport = Transport()
        self.connection = Connection(handler, NetConfig())

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


def both_ways(chunks: Sequence[bytes], first: Sequence[bytes] = (), **given: Any) -> Producer:
    """Send the same to two brokers, compare everything, and return the one with kernels."""
    with TemporaryDirectory() as root:
        ordinary = Producer(Path(root, "ordinary"), by_kernels=False, **given)
        quick = Producer(Path(root, "quick"), by_kernels=True, **given)
        told = [producer.send([*first, *chunks]) for producer in (ordinary, quick)]
        # A refusal does not wait for what came before it in the same read.
        assert sorted(frames_in(told[0])) == sorted(frames_in(told[1]))
        assert ordinary.connection.closed == quick.connection.closed
        for name in ("language", "version", "encoding"):
            assert getattr(ordinary.connection, name) == getattr(quick.connection, name)
        figures = [p.world.context.statistics.put_totals() for p in (ordinary, quick)]
        assert figures[0] == figures[1]
        assert ordinary.log() == quick.log()
        assert ordinary.taken == 0
        return quick


def frames_in(data: bytes) -> list[bytes]:
    found = []
    while data:
        end = 4 + int.from_bytes(data[:4])
        found.append(data[:end])
        data = data[end:]
    return found


def frame(command: Command) -> bytes:
    return encode_command(command)


FIRST = [frame(send_command(topic, queue_id=queue)) for topic in TOPICS[:2] for queue in range(4)]
"""They make topics and queues known."""


def batch(*bodies: bytes, properties: bytes = b"KEYS\x01k\x02") -> bytes:
    return encode_client_batch(
        ClientMessage(body, properties, flag) for flag, body in enumerate(bodies)
    )


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
        "UNIQ_KEY\x01A\x02TIMER_DELAY_SEC\x013\x02",
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
    quick = both_ways([ordinary + frame(send) + ordinary], FIRST)
    assert quick.taken in (0, len(ordinary))  # a run whose topic is not known is not taken at all


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


# --- anything ---

names = st.sampled_from(
    ["KEYS", "TAGS", "WAIT", "UNIQ_KEY", "A_B", "DELAY", "TIMER_DELIVER_MS", "MSG_REGION", "Ü", ""]
)
values = st.sampled_from(["1", "true", "a b", "ABC123", "", "Käse", '"', "x" * 600])
pairs = st.lists(st.tuples(names, values), max_size=4)
properties = st.builds(
    lambda found, end: "UNIQ_KEY\x01K1\x02" + "".join(f"{n}\x01{v}\x02" for n, v in found) + end,
    pairs,
    st.sampled_from(["", "", "", "X", "\x01", "\x00"]),
)
bodies = st.binary(min_size=0, max_size=300)
batches = st.builds(
    lambda messages, cut: encode_client_batch(messages)[: cut or None],
    st.lists(
        st.builds(
            ClientMessage,
            bodies,
            st.sampled_from([b"", b"KEYS\x01k\x02", b"TAGS\x01T", b"A\x01\x00"]),
            st.integers(-(2**31), 2**31 - 1),
        ),
        min_size=1,
        max_size=5,
    ),
    st.sampled_from([0, 0, 0, -1]),
)


@st.composite
def sends(draw: st.DrawFn) -> bytes:
    """Return the frame of a send, ordinary or not."""
    is_batch = draw(st.booleans())
    command = send_command(
        draw(st.sampled_from(TOPICS)),
        draw(batches if is_batch else bodies),
        queue_id=draw(st.integers(0, 5)),
        properties=draw(properties),
        code=draw(st.sampled_from([310, 310, 320])),
        flag=draw(st.sampled_from([0, 0, 0, 2])),
        m="true" if is_batch else "false",
        f=draw(st.sampled_from(["0", "0", "1", "8", "256"])),
        h=draw(st.sampled_from(["0", "7", "-1", "2147483648", "08"])),
        j=draw(st.sampled_from(["0", "3"])),
    )
    command.opaque = draw(st.integers(-5, 2**31 - 1))
    if draw(st.booleans()):
        command.code, fields = 10, command.fields or {}
        command.fields = {NAMES.get(letter, letter): text for letter, text in fields.items()}
    form = draw(st.sampled_from(["ours", "ours", "binary", "blanks", "shuffled"]))
    if form == "binary":
        command.encoding = Encoding.BINARY
    if form in ("ours", "binary"):
        return frame(command)
    members = {
        "code": command.code,
        "language": "GO",
        "flag": command.flag,
        "opaque": command.opaque,
        "version": 317,
        "extFields": command.fields,
    }
    order = draw(st.permutations(list(members)))
    separators = (", ", ": ") if form == "blanks" else (",", ":")
    text = json.dumps({name: members[name] for name in order}, separators=separators).encode()
    return struct.pack(">ii", 4 + len(text) + len(command.body), len(text)) + text + command.body


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(sends(), min_size=1, max_size=8),
    st.lists(st.integers(0, 6000), max_size=3),
    st.sampled_from([FlushMode.ASYNC, FlushMode.SYNC]),
)
def test_whatever_is_sent_both_ways_store_and_answer_the_same(
    frames: list[bytes], cuts: list[int], flush_mode: FlushMode
) -> None:
    data = b"".join(frames)
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    chunks = [data[start:end] for start, end in itertools.pairwise(places) if end > start]
    both_ways(chunks, FIRST, store={"flush_mode": flush_mode})


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_bytes_that_were_changed_are_treated_alike(data: st.DataObject) -> None:
    raw = bytearray(b"".join(frame(send_command(queue_id=n)) for n in range(4)))
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    both_ways([bytes(raw)], FIRST)


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
