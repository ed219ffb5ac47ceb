"""Answers of an HTTP server, whole, byte by byte, and broken."""

import pytest

from orbitmq.errors import RemoteProtocolError
from orbitmq.wire.http_answer import AnswerDecoder, encode_post

PLAIN = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\ncontent-length: 5\r\n\r\n{1,2}"
CHUNKED = (
    b"HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"3\r\n{1,\r\nA;x=y\r\n2345678901\r\n0\r\n\r\n"
)


@pytest.mark.parametrize(
    ("text", "status", "body"),
    [(PLAIN, 200, b"{1,2}"), (CHUNKED, 404, b"{1,2345678901")],
    ids=["length", "chunks"],
)
@pytest.mark.parametrize("step", [1, 7, 1000])
def test_an_answer_is_the_same_however_it_is_torn(
    text: bytes, status: int, body: bytes, step: int
) -> None:
    decoder = AnswerDecoder()
    found = b"".join(decoder.receive(text[at : at + step]) for at in range(0, len(text), step))

    assert (decoder.status, found, decoder.is_whole) == (status, body, True)


def test_a_stream_gives_what_has_come() -> None:
    decoder = AnswerDecoder()
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert decoder.receive(head + b"4\r\nab") == b"ab"
    assert decoder.receive(b"cd\r\n") == b"cd"
    assert not decoder.is_whole


@pytest.mark.parametrize(
    "text",
    [
        b"SSH-2.0-x\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -3\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n",
        b"x" * 70_000,
    ],
)
def test_what_is_no_answer_is_refused(text: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        AnswerDecoder().receive(text)


def test_a_question() -> None:
    text = encode_post("one:2379", "/v3/kv/range", b"{}")
    assert text.startswith(b"POST /v3/kv/range HTTP/1.1\r\nHost: one:2379\r\n")
    assert text.endswith(b"Content-Length: 2\r\n\r\n{}")
