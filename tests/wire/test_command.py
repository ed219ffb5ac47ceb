"""One command and its frame."""

import pytest

from golden_frames import decode_command
from orbitmq.errors import RemoteProtocolError
from orbitmq.wire.codes import VERSION
from orbitmq.wire.command import Command, Encoding, Opaques
from orbitmq.wire.frame import encode_command, encode_prefix


def test_the_json_vector_of_the_protocol():
    header = (
        b'{"code":34,"language":"JAVA","version":479,"opaque":1,"flag":0,'
        b'"serializeTypeCurrentRPC":"JSON"}'
    )
    command = decode_command(bytes.fromhex("0000006600000060") + header + b"{}")

    assert command == Command(34, None, b"{}", 1, 0, None, "JAVA", 479)
    assert encode_command(command)[:8] == bytes.fromhex("0000006600000060")


def test_the_binary_vector_of_the_protocol():
    raw = bytes.fromhex(
        "00000025 01000021 0069 00 01df 00000007 00000000 00000000 0000000c"
        " 0005 746f706963 00000001 54"
    )
    command = decode_command(raw)

    assert command == Command(
        105, {"topic": "T"}, opaque=7, language="JAVA", encoding=Encoding.BINARY
    )
    assert encode_command(command) == raw


@pytest.mark.parametrize("encoding", list(Encoding))
def test_an_answer_repeats_the_opaque_and_the_encoding(encoding):
    request = Command(310, opaque=-5, language="GO", version=317, encoding=encoding)
    answer = request.answer(17, "no such topic", fields={"a": "b"}, body=b"x")

    assert answer == Command(
        17, {"a": "b"}, b"x", -5, 1, "no such topic", "JAVA", VERSION, encoding
    )
    assert answer.is_response
    assert not answer.is_oneway
    assert decode_command(encode_command(answer)) == answer


def test_a_prefix_counts_a_body_that_is_sent_beside_it():
    command = Command(11, {"a": "b"}, b"0123456789")

    assert encode_prefix(command, 10) + b"0123456789" == encode_command(command)


def test_no_fields_and_empty_fields_are_told_apart_in_json():
    assert decode_command(encode_command(Command(0, None))).fields is None
    assert decode_command(encode_command(Command(0, {}))).fields == {}


@pytest.mark.parametrize("raw", [b"", b"\0\0\0\4", b"\0\0\0\4\0\0\0\1", b"\0\0\0\5\0\0\0\0{"])
def test_a_frame_whose_lengths_do_not_fit_is_refused(raw):
    with pytest.raises(RemoteProtocolError):
        decode_command(raw)


@pytest.mark.parametrize(("length_off", "header_off"), [(1, 0), (-1, 0), (0, 1), (0, 100)])
def test_a_whole_header_in_a_frame_whose_lengths_do_not_fit_is_refused(length_off, header_off):
    header = b'{"code":1}'
    length, size = 4 + len(header) + length_off, len(header) + header_off

    with pytest.raises(RemoteProtocolError):
        decode_command(length.to_bytes(4) + size.to_bytes(4) + header)


def test_commands_are_compared_by_value_whoever_made_them():
    command = Command(1, {"a": "b"})

    assert decode_command(encode_command(command)) == command
    assert command != Command(2, {"a": "b"})
    assert command != "command"
    assert "fields={'a': 'b'}" in repr(decode_command(encode_command(command)))


@pytest.mark.parametrize(
    "member", [b'"body":"eA=="', b'"encoding":1', b'"body":5', b'"encoding":7']
)
def test_members_of_a_header_cannot_stand_in_for_the_body_or_the_encoding(member):
    header = b'{"code":1,' + member + b"}"
    size = len(header).to_bytes(4, "big")
    command = decode_command((len(header) + 5).to_bytes(4, "big") + size + header + b"B")

    assert (command.code, command.body, command.encoding) == (1, b"B", Encoding.JSON)


def test_opaques_start_again_behind_the_largest():
    opaques = Opaques(0x7FFFFFFE)

    assert [opaques.next() for _ in range(4)] == [0x7FFFFFFE, 0x7FFFFFFF, 0, 1]
