"""Cutting a stream: any chunking, limits, what happens to bytes that are no frames."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.wire.command import RESPONSE_FLAG, Command, Encoding
from orbitmq.wire.frame import FRAME_BYTES_MAX, HEADER_BYTES_MAX, FrameDecoder, encode_command

TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)
INTS = st.integers(-(2**31), 2**31 - 1)
COMMANDS = st.builds(
    Command,
    code=INTS,
    fields=st.none() | st.dictionaries(TEXTS, TEXTS, max_size=5),
    body=st.binary(max_size=50),
    opaque=INTS,
    flag=INTS,
    remark=st.none() | TEXTS,
    language=TEXTS,
    version=INTS,
)


def frame(header: bytes, body: bytes = b"", *, mark: int = 0) -> bytes:
    return struct.pack(">iI", 4 + len(header) + len(body), mark | len(header)) + header + body


@given(commands=st.lists(COMMANDS, max_size=5), sizes=st.lists(st.integers(1, 70), min_size=1))
def test_a_stream_is_cut_the_same_however_it_comes(commands, sizes):
    stream = b"".join(encode_command(command) for command in commands)
    decoder = FrameDecoder()

    found, at, turn = [], 0, 0
    while at < len(stream):
        size = sizes[turn % len(sizes)]
        found += decoder.receive(stream[at : at + size])
        at, turn = at + size, turn + 1

    assert found == commands
    assert decoder.waiting_bytes == 0


@given(data=st.binary(max_size=300))
def test_garbage_gives_commands_or_an_error_and_nothing_else(data):
    decoder = FrameDecoder()
    found = decoder.receive(data)

    whole, rest = lengths_in(data)
    if decoder.error is None:
        assert len(found) == len(whole)
        assert decoder.waiting_bytes == rest
    else:
        assert len(found) <= len(whole)
        assert decoder.receive(encode_command(Command(34))) == []


def lengths_in(data: bytes) -> tuple[list[int], int]:
    """Return the lengths of the whole frames at the beginning, and how many bytes are left."""
    whole = []
    while len(data) >= 4 and 4 <= (length := int.from_bytes(data[:4])) <= len(data) - 4:
        whole.append(length)
        data = data[4 + length :]
    return whole, len(data)


@given(header=st.binary(max_size=120), body=st.binary(max_size=20), kind=st.integers(0, 3))
def test_garbage_in_a_right_frame_gives_a_command_or_an_error(header, body, kind):
    decoder = FrameDecoder()
    found = decoder.receive(frame(header, body, mark=kind << 24))

    assert (decoder.error is None) == (len(found) == 1)
    assert all(command.body == body for command in found)


def test_trailing_bytes_wait_for_the_rest_of_their_frame():
    decoder = FrameDecoder()
    raw = encode_command(Command(34, {"a": "1"}, b"body"))

    assert len(decoder.receive(raw + raw[:10])) == 1
    assert decoder.waiting_bytes == 10
    assert len(decoder.receive(raw[10:])) == 1
    assert decoder.waiting_bytes == 0


def test_commands_before_bad_bytes_are_returned_and_nothing_behind_them_is():
    decoder = FrameDecoder()
    good = encode_command(Command(34))

    found = decoder.receive(good + good + b"\xff\xff\xff\xff" + good)

    assert [command.code for command in found] == [34, 34]
    assert decoder.error is not None
    assert decoder.receive(good) == []


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 3, FRAME_BYTES_MAX - 3, 2**31 - 1])
def test_a_length_that_cannot_be_is_known_from_its_four_bytes(length):
    decoder = FrameDecoder()
    decoder.receive(struct.pack(">i", length))

    assert decoder.error is not None
    assert "allowed are 8 to 16777216" in str(decoder.error)


def test_the_largest_frame_of_rocketmq_is_taken():
    decoder = FrameDecoder()
    header = b'{"code":1}'
    body = bytes(FRAME_BYTES_MAX - 8 - len(header))

    (command,) = decoder.receive(frame(header, body))

    assert len(command.body) == len(body)


def test_a_frame_over_the_limit_is_refused():
    decoder = FrameDecoder(1024)

    assert decoder.receive(frame(b'{"code":1}', bytes(1024 - 18))) != []
    assert decoder.receive(frame(b'{"code":1}', bytes(1024 - 17))) == []
    assert "a frame of 1025 bytes" in str(decoder.error)


def test_a_header_longer_than_its_frame_is_refused_before_the_frame_is_there():
    decoder = FrameDecoder()
    decoder.receive(struct.pack(">iI", 44, 41))

    assert "a header of 41 bytes in a frame of 48" in str(decoder.error)


def test_a_header_over_the_limit_is_refused_before_it_is_there():
    decoder = FrameDecoder()
    decoder.receive(struct.pack(">iI", HEADER_BYTES_MAX + 5, HEADER_BYTES_MAX + 1))

    assert "a header of 1048577 bytes; allowed are 1048576" in str(decoder.error)


@pytest.mark.parametrize("kind", [2, 7, 127, 128, 255])
def test_an_unknown_header_encoding_is_refused(kind):
    decoder = FrameDecoder()
    decoder.receive(frame(b"{}", mark=kind << 24))

    assert f"header encoding {kind} is neither JSON (0) nor binary (1)" in str(decoder.error)


def test_a_large_frame_in_small_pieces_is_put_together_once():
    decoder = FrameDecoder()
    raw = encode_command(Command(310, {"a": "b"}, bytes(4 << 20), encoding=Encoding.BINARY))

    found = []
    for at in range(0, len(raw), 1400):
        found += decoder.receive(raw[at : at + 1400])

    assert len(found) == 1
    assert len(found[0].body) == 4 << 20
    assert decoder.waiting_bytes == 0


def answer_frame(number: int, **given: object) -> bytes:
    return encode_command(Command(0, opaque=number, flag=RESPONSE_FLAG, **given))


@pytest.mark.parametrize(
    "behind",
    [
        b"",
        encode_command(Command(310, {"i": '"flag":1'}, b'"flag":1', opaque=9)),
        answer_frame(3)[:-1],
        answer_frame(3, encoding=Encoding.BINARY),
        struct.pack(">iI", 3, 0) + b'"flag":1',
        struct.pack(">iI", FRAME_BYTES_MAX, 20) + b'{"code":0,"flag":1}',
        frame(b'{"code":0,"flag":1'),
        frame(b'{"code":0,"flag":1}', mark=7 << 24),
    ],
    ids=[
        "nothing",
        "a send",
        "half of one",
        "binary",
        "length",
        "too long",
        "no JSON",
        "no encoding",
    ],
)
def test_answers_at_the_beginning_are_cut_off_and_nothing_else_is(behind: bytes) -> None:
    answers = answer_frame(1, body=b"x") + answer_frame(2, fields={"a": "b"})

    commands, rest = FrameDecoder().answers_first(answers + behind)

    assert [command.opaque for command in commands] == [1, 2]
    assert (commands[0].body, commands[1].fields, rest) == (b"x", {"a": "b"}, behind)


def test_a_request_that_looks_like_an_answer_is_the_last_one_that_is_cut_off() -> None:
    looks = Command(10, opaque=1, flag=16)  # "flag":16

    commands, rest = FrameDecoder().answers_first(encode_command(looks) + answer_frame(2))

    assert commands == [looks]
    assert rest == answer_frame(2)


@given(commands=st.lists(COMMANDS, max_size=6))
def test_with_or_without_answers_first_a_stream_is_the_same(commands: list[Command]) -> None:
    decoder = FrameDecoder()

    answers, rest = decoder.answers_first(b"".join(map(encode_command, commands)))

    assert answers + decoder.receive(rest) == commands
