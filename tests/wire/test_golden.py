"""Every recorded frame: decoded, written again, cut out of a stream."""

import msgspec
import pytest

from golden_frames import Frame, decode_command, frames, good_frames, names
from orbitmq.errors import RemoteProtocolError
from orbitmq.wire.command import Command, Encoding
from orbitmq.wire.frame import FrameDecoder, encode_command
from orbitmq.wire.header_binary import FIXED

JAVA_FOLDERS = ("java-json/", "java-binary/", "broker/")


def by_java(frame: Frame) -> bool:
    """Return whether a Java program wrote this; what Go and the others ask, Java answers."""
    return frame.name.startswith(JAVA_FOLDERS) or (not frame.to_server and "raw" not in frame.name)


def pairs(raw: bytes) -> list[tuple[bytes, bytes]]:
    """Return the fields of a binary header as they stand there, empty ones and those that stand twice."""
    at = 8 + FIXED.size
    at += 4 + int.from_bytes(raw[at : at + 4], "big")
    end = at + 4 + int.from_bytes(raw[at : at + 4], "big")
    at += 4
    found = []
    while at < end:
        name_end = at + 2 + int.from_bytes(raw[at : at + 2], "big")
        value_end = name_end + 4 + int.from_bytes(raw[name_end : name_end + 4], "big")
        found.append((raw[at + 2 : name_end], raw[name_end + 4 : value_end]))
        at = value_end
    return found


@pytest.mark.parametrize("name", names())
def test_every_recorded_frame_is_read_and_written_again_as_an_equal_command(name):
    good = good_frames(name)

    assert good
    for frame in good:
        again = decode_command(encode_command(frame.command))

        assert again == frame.command, frame


def test_what_java_wrote_with_json_headers_is_written_byte_for_byte():
    written = [f for f in good_frames() if f.command.encoding is Encoding.JSON and by_java(f)]

    assert len(written) > 3900
    assert [f for f in written if encode_command(f.command) != f.raw] == []


def test_binary_frames_are_written_byte_for_byte_but_for_empty_and_repeated_fields():
    binary = [f for f in good_frames() if f.command.encoding is Encoding.BINARY]
    other = [f for f in binary if encode_command(f.command) != f.raw]

    assert len(binary) > 1400
    assert len(other) < 20
    for frame in other:
        # An empty text counts as absent. Java's signing hook repeats what the fast encoder wrote.
        found = pairs(frame.raw)
        assert len(dict(found)) < len(found) or b"" in dict(found).values()


def test_the_two_encodings_carry_the_same_command():
    for frame in good_frames("java-json/producer", "go/basic", "cpp/basic", "node/basic"):
        command = frame.command
        # A binary header has no empty texts, languages by number, and 16 bits for the code.
        fields = {name: value for name, value in (command.fields or {}).items() if value}
        other = Command(
            command.code,
            fields or None,
            command.body,
            command.opaque,
            command.flag,
            command.remark or None,
            command.language,
            command.version,
            Encoding.BINARY,
        )

        assert decode_command(encode_command(other)) == other


@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize("step", [1448, 65536])
def test_a_recording_in_pieces_gives_the_same_commands(name, step):
    good = good_frames(name)
    stream = b"".join(frame.raw for frame in good)
    decoder = FrameDecoder()

    found = []
    for at in range(0, len(stream), step):
        found += decoder.receive(stream[at : at + step])

    assert found == [frame.command for frame in good]
    assert decoder.waiting_bytes == 0
    assert decoder.error is None


@pytest.mark.parametrize("name", ["java-json/producer", "java-binary/producer", "cpp/basic"])
def test_a_recording_byte_by_byte_gives_each_command_with_its_last_byte(name):
    decoder = FrameDecoder()
    for frame in good_frames(name)[:60]:
        for at in range(len(frame.raw) - 1):
            assert decoder.receive(frame.raw[at : at + 1]) == []
        assert decoder.receive(frame.raw[-1:]) == [frame.command]


def test_broken_frames_that_rocketmq_closes_on_are_refused():
    refused = 0
    for frame in frames("raw/framing"):
        if frame.decode_error is None:
            continue
        decoder = FrameDecoder()
        commands = decoder.receive(frame.raw + b"abcdefghijklmnop")
        if decoder.error is None or commands:
            continue
        refused += 1
        with pytest.raises(RemoteProtocolError):
            decode_command(frame.raw)

    assert refused == 14


def test_odd_headers_that_rocketmq_answers_are_read():
    odd = [f for f in frames("raw/framing") if f.decode_error is not None and b"{" in f.raw]
    found = []
    for frame in odd:
        found += FrameDecoder().receive(frame.raw)

    assert [(c.code, c.opaque, c.language, c.version) for c in found[:3]] == [
        (0, 0, "OTHER", 0),  # {}
        (106, 0, "OTHER", 0),  # {"code":106}
        (106, 5, "GO", 1),  # {"code":"106","opaque":"5",...}
    ]


def test_headers_are_what_an_independent_json_parser_reads():
    for frame in good_frames("java-json/push-consumer", "go/basic", "node/basic", "cpp/basic"):
        size = int.from_bytes(frame.raw[5:8], "big")
        header = msgspec.json.decode(frame.raw[8 : 8 + size])
        command = frame.command

        assert command.code == header["code"]
        assert command.opaque == header["opaque"]
        assert command.body == frame.raw[8 + size :]
        for field, value in (header.get("extFields") or {}).items():
            text = str(value).lower() if isinstance(value, bool) else str(value)
            assert value is None or (command.fields or {})[field] == text
