"""JSON headers as each client language writes them, and as nobody should."""

import pytest

from orbitmq.errors import RemoteProtocolError
from orbitmq.wire.command import Command
from orbitmq.wire.header_json import decode_header, encode_header


def test_members_stand_in_alphabetical_order_without_blanks():
    command = Command(105, {"topic": "T"}, opaque=7, remark="why")

    assert encode_header(command) == (
        b'{"code":105,"extFields":{"topic":"T"},"flag":0,"language":"PYTHON","opaque":7,'
        b'"remark":"why","serializeTypeCurrentRPC":"JSON","version":479}'
    )


def test_absent_members_are_left_out():
    assert encode_header(Command(0, flag=1, language="JAVA")) == (
        b'{"code":0,"flag":1,"language":"JAVA","opaque":0,'
        b'"serializeTypeCurrentRPC":"JSON","version":479}'
    )


def test_go_writes_its_own_order_and_an_empty_remark():
    command = decode_header(
        b'{"code":17,"language":"GO","version":317,"opaque":1,"flag":0,"remark":"",'
        b'"extFields":{"order":"false","perm":"6"}}'
    )

    assert command == Command(17, {"order": "false", "perm": "6"}, b"", 1, 0, "", "GO", 317)


def test_node_writes_numbers_booleans_and_null():
    command = decode_header(
        b'{"code":11,"language":"JAVA","opaque":3,"flag":0,"version":121,'
        b'"extFields":{"queueId":0,"commitOffset":-1,"big":9223372036854775807,"part":1.5,'
        b'"ok":true,"no":false,"nothing":null,"text":"x"}}'
    )

    assert command.fields == {
        "queueId": "0",
        "commitOffset": "-1",
        "big": "9223372036854775807",
        "part": "1.5",
        "ok": "true",
        "no": "false",
        "text": "x",
    }


def test_cpp_ends_with_a_line_feed():
    command = decode_header(
        b'{"code":35,"extFields":{"clientID":"c","n":1},"flag":0,"language":"CPP","opaque":4,'
        b'"remark":"","version":63}\n'
    )

    assert command == Command(35, {"clientID": "c", "n": "1"}, b"", 4, 0, "", "CPP", 63)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"{}", Command(0, language="OTHER", version=0)),
        (b'{"code":5}  \r\n', Command(5, language="OTHER", version=0)),
        (b'{"code":"5","flag":"1"}', Command(5, flag=1, language="OTHER", version=0)),
        (b'{"code":5,"extFields":null,"remark":null}', Command(5, language="OTHER", version=0)),
        (b'{"code":5,"remark":7}', Command(5, remark="7", language="OTHER", version=0)),
        (b'{"code":5,"language":3}', Command(5, language="3", version=0)),
        (b'{"code":5,"language":null}', Command(5, language="OTHER", version=0)),
        (b'{"foo":[{"bar":1}],"code":5}', Command(5, language="OTHER", version=0)),
        (b'{"code":5,"remark":"\xff"}', Command(5, remark="\ufffd", language="OTHER", version=0)),
        (
            b'{"code":5,"remark":"a\\ud83d\\ude00\\ud800","extFields":{"i":"\\uDC00x"}}',
            Command(5, {"i": "?x"}, remark="a\U0001f600?", language="OTHER", version=0),
        ),
    ],
)
def test_what_rocketmq_reads_is_read(text, expected):
    assert decode_header(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"null",
        b"[]",
        b"5",
        b'{"code":5',
        b'{"code":5}{}',
        b'{"code":"x"}',
        b'{"code":1.5}',
        b'{"code":2147483648}',
        b'{"opaque":-2147483649}',
        b'{"opaque":99999999999999999999999999999}',
        b'{"version":"2147483648"}',
        b'{"code":"' + b"9" * 5000 + b'"}',
        b'{"code":true}',
        b'{"extFields":[]}',
        b'{"extFields":{"a":{}}}',
        b'{"a":' * 100_000,
        b"[" * 100_000,
    ],
)
def test_what_is_no_header_is_refused(text):
    with pytest.raises(RemoteProtocolError):
        decode_header(text)


def test_numbers_are_taken_to_their_limits():
    command = decode_header(b'{"code":2147483647,"opaque":-2147483648,"version":2147483647}')

    assert (command.code, command.opaque, command.version) == (2**31 - 1, -(2**31), 2**31 - 1)
