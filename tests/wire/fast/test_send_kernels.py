"""The kernels of sends: compiled ones give what plain ones give, and both what the format module writes."""

import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from drawn_sends import KEY, SOON_MS, TIMES, batch, frame, sends
from golden_frames import decode_command, good_frames, names
from message_replay import send_command
from orbitmq.format.ordinary import SPECIAL_FLAGS, is_ordinary
from orbitmq.format.record import decode_record, encode_record
from orbitmq.message import TIMER_TOPIC, AppendRequest, Host
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command
from orbitmq.wire.fast.kernels import compiled, plain, twins
from orbitmq.wire.fast.layout import PARTS, SendKernels
from orbitmq.wire.fast.run import SENDS_MAX, SendRun
from orbitmq.wire.frame import FrameDecoder
from orbitmq.wire.headers.recall import RecallHandle
from orbitmq.wire.headers.send import BROKER_PROPERTIES, LETTERS, SendHeader
from rounds import rounds

MANY = settings(max_examples=rounds(400), deadline=None)
SUFFIX = b"MSG_REGION\x01R\x02"
ANSWER = [b'{"extFields":{"queueId":"', b'","transactionId":"', b'","msgId":"', b"ABCD"]
ANSWER += [b'","queueOffset":"', b'"},"opaque":', b"}"]
ANSWER += [b'","recallHandle":"', b'","queueOffset":"', b"v1 ", b" broker-a "]
BORN, STORE = Host(b"\x0a\x00\x00\x01", 5000), Host(b"\x0a\x00\x00\x02", 10911)
STORE_MS, LOG_OFFSET, POSITION = 1_700_000_000_123, 1 << 40, 13
FRAME_MAX, BODY_MAX = 40_000, 5_000
SLOT_MS = 1_700_000_008_000
assert len(ANSWER) == PARTS


class Outcome:
    """Everything that a set of kernels makes of bytes that came."""

    def __init__(self, kernels: SendKernels, data: bytes, start: int = 0) -> None:
        run = SendRun(kernels, frame_bytes_max=FRAME_MAX, body_bytes_max=BODY_MAX)
        run.use_texts(SUFFIX, ANSWER)
        self.count = run.find(data, start)
        self.end, self.queues, self.sender = run.end, run.queues, (run.language, run.version)
        self.rows: list[Any] = []
        self.unpublished = self.records = self.answers = b""
        if not self.count:
            return
        out = np.full(POSITION + run.record_bytes + 7, 0xEE, dtype=np.uint8)
        hosts = BORN.packed() + STORE.packed()
        next_offsets = [100 * number for number in range(len(run.queues))]
        self.waiting, self.times = run.waiting, [column.tolist() for column in run.times]
        run.waiting_offset = 7_000
        run.wait_in(SLOT_MS + 1_000 * np.arange(run.waiting))
        run.write(out, POSITION, LOG_OFFSET, STORE_MS, hosts, next_offsets)
        self.unpublished = out.tobytes()
        run.publish()
        self.records = out.tobytes()
        self.answers = run.answers()
        self.rows = run._rows[: self.count].tolist()
        run.release()


def both(data: bytes, start: int = 0) -> Outcome:
    """Compare what the twins make of these bytes; return it."""
    left, right = (Outcome(kernels, data, start) for kernels in twins())
    assert vars(left) == vars(right)
    return left


# --- the twins ---


@MANY
@given(st.lists(sends, min_size=1, max_size=6), st.integers(0, 400))
@example([frame(send_command(properties=KEY + "INNER_\x01x\x02"))], 0)
@example([frame(send_command(properties=KEY + "X\x01" + "x" * 32_800 + "\x02"))], 0)
@example([frame(send_command(properties=KEY + "\x02"))], 0)
def test_the_twins_are_equal_for_whatever_is_sent(frames: list[bytes], cut: int) -> None:
    data = b"".join(frames)
    both(data[: len(data) - cut] if cut < len(data) else data)
    both(data, len(frames[0]))


@MANY
@given(st.lists(sends, min_size=1, max_size=3), st.data())
def test_the_twins_are_equal_for_bytes_that_were_changed(
    frames: list[bytes], data: st.DataObject
) -> None:
    raw = bytearray(b"".join(frames))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(raw) - 1))
        change = data.draw(st.sampled_from(["set", "drop", "twice", "swap"]))
        if change == "set":
            raw[at] = data.draw(st.sampled_from(list(b'{}":,\\u0012 9\x00\x01\x02\x7f\x80\xff')))
        elif change == "drop":
            del raw[at : at + data.draw(st.integers(1, 4))]
        elif change == "twice":
            raw[at:at] = raw[at : at + data.draw(st.integers(1, 12))]
        else:
            end = data.draw(st.integers(0, len(raw)))
            raw[at:end] = raw[at:end][::-1]
    both(with_right_length(bytes(raw)))
    both(bytes(raw))


def with_right_length(raw: bytes) -> bytes:
    """Return a frame whose length words fit again, so that its header is looked at."""
    end = raw.find(b"}}", 8)
    header = raw[8 : end + 2 if end >= 0 else len(raw)]
    if len(raw) < 8:
        return raw
    return struct.pack(">ii", len(raw) - 4, len(header)) + raw[8:]


@MANY
@given(st.text('{}":,\\u012abefghijm ', max_size=60))
def test_the_twins_are_equal_for_headers_that_are_hardly_json(text: str) -> None:
    header = text.encode()
    both(struct.pack(">ii", 4 + len(header) + 1, len(header)) + header + b"x")


@pytest.mark.parametrize("name", names())
def test_the_twins_are_equal_for_recorded_frames(name: str) -> None:
    frames = [one.raw for one in good_frames(name) if one.to_server]
    for raw in frames:
        both(raw)
    both(b"".join(frames))


def test_times_are_found_and_written_alike() -> None:
    """One send with each, and two that go to the same queue without waiting, in between."""
    sends = [
        frame(send_command(properties=KEY + text, queue_id=3))
        for text in (TIMES[0], "", TIMES[1], "", TIMES[2])
    ]
    found = both(b"".join(sends))
    assert (found.count, found.waiting) == (5, 3)
    assert found.times == [[2, 3, 1], [5_000, 7, SOON_MS]]
    records = []
    at = POSITION
    while len(records) < 5:
        records.append(decode_record(found.records, at))
        at += records[-1].size
    assert [(one.topic, one.queue_id, one.queue_offset) for one in records] == [
        *((TIMER_TOPIC, 0, 7_000), ("Orders", 3, 0), (TIMER_TOPIC, 0, 7_001)),
        *(("Orders", 3, 1), (TIMER_TOPIC, 0, 7_002)),
    ]
    assert (
        records[2].properties
        == (
            f"{KEY}{TIMES[1]}MSG_REGION\x01R\x02TIMER_OUT_MS\x01{SLOT_MS + 1000}\x02"
            "REAL_TOPIC\x01Orders\x02REAL_QID\x013\x02"
        ).encode()
    )
    handles = [
        (answer.fields or {}).get("recallHandle")
        for answer in FrameDecoder().receive(found.answers)
    ]
    expected = RecallHandle("Orders", "broker-a", str(SLOT_MS + 2_001), "K1")
    assert handles[4] == expected.encode()
    assert (handles[1], handles[3]) == (None, None)


@MANY
@given(st.lists(st.tuples(st.text("aZ09", min_size=1), st.text("TU", min_size=1)), min_size=1))
def test_handles_of_all_lengths(names: list[tuple[str, str]]) -> None:
    found = both(
        b"".join(
            frame(send_command(topic, properties=f"UNIQ_KEY\x01{key}\x02{TIMES[0]}"))
            for key, topic in names[:8]
        )
    )
    assert found.count == len(names[:8])
    told = [(one.fields or {})["recallHandle"] for one in FrameDecoder().receive(found.answers)]
    slots = [str(SLOT_MS + 1_000 * number + 1) for number in range(len(told))]
    assert told == [
        RecallHandle(topic, "broker-a", slot, key).encode()
        for (key, topic), slot in zip(names, slots, strict=False)
    ]


# --- what they promise, asked of both ---


@pytest.fixture(scope="module", params=["plain", "compiled"])
def kernels(request: pytest.FixtureRequest) -> SendKernels:
    return plain() if request.param == "plain" else compiled()


def record_of(command: Command, queue_offset: int, log_offset: int) -> bytes:
    """Return the record that the format's own encoder makes of a send."""
    header = SendHeader.read_any(command.code, command.fields)
    request = AppendRequest(
        header.topic,
        header.queue_id,
        command.body,
        (header.properties or "").encode() + SUFFIX,
        header.flag,
        header.sys_flag,
        header.born_timestamp,
        BORN,
        reconsume_times=header.reconsume_times or 0,
    )
    place = {"log_offset": log_offset, "queue_offset": queue_offset, "store_ms": STORE_MS}
    return encode_record(request, store_host=STORE, **place)


@pytest.mark.parametrize("code", [310, 10])
def test_records_are_what_the_format_writes_and_answers_name_their_place(
    kernels: SendKernels, code: int
) -> None:
    commands = [
        send_command(
            body=b"x" * size, queue_id=size % 2, h=5, j=2, f=1, properties=f"{KEY}N\x01{size}\x02"
        )
        for size in (1, 2, 3, 900)
    ]
    if code == RequestCode.SEND_MESSAGE:
        whole = {letter: name for name, letter in LETTERS.items()}
        for command in commands:
            fields = command.fields or {}
            command.code = code
            command.fields = {whole[letter]: text for letter, text in fields.items()}

    outcome = Outcome(kernels, b"".join(map(frame, commands)))

    assert outcome.count == 4
    offsets = [0, 100, 1, 101]  # the queue of the first send is the first queue
    expected, places = b"", []
    for command, queue_offset in zip(commands, offsets, strict=True):
        places.append(LOG_OFFSET + len(expected))
        expected += record_of(command, queue_offset, places[-1])
    assert outcome.records[POSITION:-7] == expected
    assert outcome.records[:POSITION] + outcome.records[-7:] == b"\xee" * (POSITION + 7)
    answers = FrameDecoder().receive(outcome.answers)
    assert [answer.fields for answer in answers] == [
        {
            "queueId": queue_id,
            "transactionId": "K1",
            "msgId": f"ABCD{place:016X}",
            "queueOffset": str(queue_offset),
        }
        for queue_id, place, queue_offset in zip("1010", places, offsets, strict=True)
    ]


def test_nothing_is_published_before_all_is_written(kernels: SendKernels) -> None:
    outcome = Outcome(kernels, frame(send_command()) * 3)

    size = decode_record(outcome.records, POSITION).size
    for number in range(3):
        at = POSITION + number * size
        assert outcome.unpublished[at : at + 8] == bytes(8)
        assert outcome.unpublished[at + 8 : at + size] == outcome.records[at + 8 : at + size]


def test_a_batch_has_a_record_and_an_id_for_each_message(kernels: SendKernels) -> None:
    body = batch(b"one", b"", b"three", properties=b"KEYS\x01k")
    outcome = Outcome(kernels, frame(send_command(body=body, properties="A\x01b\x02", m="true")))

    records, at = [], POSITION
    while at < len(outcome.records) - 7:
        records.append(decode_record(outcome.records, at))
        at += records[-1].size
    assert [record.body for record in records] == [b"one", b"", b"three"]
    assert [(record.flag, record.queue_offset) for record in records] == [(0, 0), (1, 1), (2, 2)]
    assert {record.properties for record in records} == {b"KEYS\x01k\x02A\x01b\x02" + SUFFIX}
    answer = decode_command(outcome.answers)
    ids = [f"ABCD{record.log_offset:016X}" for record in records]
    assert answer.fields == {"queueId": "0", "msgId": ",".join(ids), "queueOffset": "0"}


def test_a_run_has_an_end(kernels: SendKernels) -> None:
    one = frame(send_command())
    outcome = Outcome(kernels, one * (SENDS_MAX + 1))
    assert (outcome.count, outcome.end) == (SENDS_MAX, SENDS_MAX * len(one))


@pytest.mark.parametrize("name", sorted({*BROKER_PROPERTIES, "DELAY", "INNER_NUM", "TIMER_X"}))
def test_what_store_or_broker_act_on_is_not_taken(kernels: SendKernels, name: str) -> None:
    assert Outcome(kernels, frame(send_command(properties=KEY + f"{name}\x01x\x02"))).count == 0
    assert Outcome(kernels, frame(send_command(properties=KEY + f"_{name}\x01x\x02"))).count == 1


# --- what is ordinary ---


@MANY
@given(
    st.lists(st.sampled_from(["DELAY", "INNER_", "TIMER_", "A", "_", "\x01", "\x02", "1"])),
    st.integers(0, 0x7FF),
)
def test_what_the_kernels_take_is_ordinary_for_the_store(pieces: list[str], sys_flag: int) -> None:
    properties = KEY + "".join(pieces) + "\x02"
    outcome = both(frame(send_command(properties=properties, f=sys_flag)))
    if outcome.count:
        assert is_ordinary(sys_flag, properties.encode() + SUFFIX)
    if sys_flag & SPECIAL_FLAGS:
        assert not is_ordinary(sys_flag, properties.encode())
        assert outcome.count == 0


@pytest.mark.parametrize(
    ("properties", "ordinary"),
    [
        (b"", True),
        (b"ORDER_ID\x01x\x02", True),
        (b"DELAY\x013\x02", False),
        (b"A\x01b\x02DELAY\x013", False),
        (b"A\x01DELAY\x02", True),
        (b"XDELAY\x013\x02", True),
        (b"DELAYED\x013\x02", True),
        (b"INNER_NUM\x013\x02", False),
        (b"A\x01b\x02TIMER_DELAY_MS\x013\x02", False),
        (b"XTIMER_\x013\x02", True),
        (b"A\x01b\0", False),
        (b"A\x01\0b", True),
        (b"A\x01" + bytes(510) + b"\x02", True),
        (b"A\x01" + bytes(511) + b"\x02", False),
        (b"x" * 32_767, True),
        (b"x" * 32_768, False),
    ],
)
def test_ordinary_properties(properties: bytes, ordinary: bool) -> None:
    assert is_ordinary(0, properties) is ordinary
