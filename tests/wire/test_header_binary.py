"""Binary headers: the layout, what is left out, what is refused."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import RemoteProtocolError
from orbitmq.wire.codes import Language, RequestCode
from orbitmq.wire.command import Command
from orbitmq.wire.header_binary import FIXED, decode_header, encode_header

TEXTS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)


def raw_header(pairs: bytes = b"", *, remark: bytes = b"", length: int | None = None) -> bytes:
    size = len(pairs) if length is None else length
    fixed = FIXED.pack(105, 0, 479, 7, 0)
    return fixed + struct.pack(">i", len(remark)) + remark + struct.pack(">i", size) + pairs


def pair(name: bytes, value: bytes) -> bytes:
    return struct.pack(">h", len(name)) + name + struct.pack(">i", len(value)) + value


@given(
    code=st.integers(-(2**15), 2**15 - 1),
    fields=st.none() | st.dictionaries(TEXTS, TEXTS, min_size=1, max_size=6),
    opaque=st.integers(-(2**31), 2**31 - 1),
    remark=st.none() | TEXTS,
    language=st.sampled_from(list(Language)),
    version=st.integers(-(2**15), 2**15 - 1),
)
def test_a_header_is_read_as_it_was_written(code, fields, opaque, remark, language, version):
    command = Command(code, fields, b"", opaque, 1, remark, language.name, version)

    assert decode_header(encode_header(command)) == command


def test_empty_names_and_values_count_as_absent():
    assert decode_header(raw_header(pair(b"", b"x") + pair(b"a", b""))).fields == {}
    assert decode_header(raw_header(pair(b"", b"\xc3\xa4") + pair(b"a", b""))).fields == {}
    assert encode_header(Command(1, {"": "x", "a": ""})) == encode_header(Command(1))


def test_of_a_name_that_stands_there_twice_the_last_counts():
    assert decode_header(raw_header(pair(b"a", b"1") + pair(b"a", b"2"))).fields == {"a": "2"}


def test_an_empty_remark_is_none():
    assert decode_header(raw_header()).remark is None
    assert decode_header(raw_header(remark=b"why")).remark == "why"


def test_bytes_that_are_no_utf8_are_replaced():
    assert decode_header(raw_header(pair(b"a", b"\xff"))).fields == {"a": "\ufffd"}


def test_pop_codes_get_their_upper_half_back_in_requests_only():
    command = Command(RequestCode.POP_MESSAGE, opaque=1)
    assert decode_header(encode_header(command)).code == RequestCode.POP_MESSAGE

    command.flag = 1
    assert decode_header(encode_header(command)).code == 3442


def test_an_unknown_language_is_other():
    assert decode_header(encode_header(Command(1, language="KLINGON"))).language == "OTHER"
    assert decode_header(FIXED.pack(1, 200, 1, 1, 0) + bytes(8)).language == "OTHER"


@pytest.mark.parametrize("size", range(len(raw_header(pair(b"a", b"1")))))
def test_a_header_that_is_cut_off_is_refused(size):
    with pytest.raises(RemoteProtocolError):
        decode_header(raw_header(pair(b"a", b"1"))[:size])


@pytest.mark.parametrize(
    "raw",
    [
        raw_header(length=-1),
        raw_header(length=1),
        raw_header(length=2**31 - 1),
        raw_header(b"\xff\xff" + bytes(10)),
        raw_header(b"\x7f\xff" + bytes(10)),
        raw_header(b"\0\1a" + b"\xff\xff\xff\xff"),
        raw_header(b"\0\1a" + b"\x7f\xff\xff\xff"),
        raw_header(b"\0\1a\0\0\0\5b"),
        raw_header(pair(b"a", b"1") + b"\0"),
        raw_header(b"\0\2\xc3\xa4\0\0\0\5b"),  # lengths of texts that are not all ASCII
        raw_header(b"\0\2\xc3\xa4\0\0\0\1b" + b"\0\1a\0\0\0\2b"),
        raw_header(b"\0\1a\0\0\0\2\xc3"),
        # In the header, but behind the end of the fields.
        raw_header(pair(b"a", b"1") + pair(b"b", b"2"), length=len(pair(b"a", b"1")) + 7),
        FIXED.pack(1, 0, 1, 1, 0) + b"\xff\xff\xff\xff" + bytes(4),
        FIXED.pack(1, 0, 1, 1, 0) + b"\x7f\xff\xff\xff" + bytes(4),
    ],
)
def test_lengths_that_leave_the_header_are_refused(raw):
    with pytest.raises(RemoteProtocolError):
        decode_header(raw)
    # The version of our time is no ASCII; with an older one the quicker reader is asked.
    with pytest.raises(RemoteProtocolError):
        decode_header(raw[:3] + b"\0\x3f" + raw[5:])


@given(raw=st.binary(max_size=80))
def test_garbage_is_read_or_refused(raw):
    try:
        command = decode_header(raw)
    except RemoteProtocolError:
        return
    assert len(raw) >= 16
    assert isinstance(command.code, int)


def test_what_does_not_fit_is_not_written():
    with pytest.raises(RemoteProtocolError):
        encode_header(Command(1, version=40_000))
    with pytest.raises(RemoteProtocolError):
        encode_header(Command(1, {"n" * 40_000: "x"}))
