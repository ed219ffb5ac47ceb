"""JSON over HTTP: questions to a server that answers each with JSON, and streams of JSON lines."""

import asyncio
import json
import os
from collections.abc import AsyncGenerator
from ssl import SSLContext, SSLError
from typing import Any, Final

from orbitmq.errors import RemoteProtocolError, RequestTimeoutError, UnreachableError
from orbitmq.net.channels import parse_address
from orbitmq.wire.http_answer import AnswerDecoder, encode_post

BODY_BYTES_MAX: Final = 1024 * 1024
_READ_BYTES: Final = 64 * 1024

_Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class JsonServer:
    """One server. Questions share a connection, one at a time; a stream has its own. Belongs to its loop."""

    def __init__(self, address: str, tls: SSLContext | None = None) -> None:
        self.address, self._tls = address, tls
        self._idle: _Streams | None = None
        self._turn = asyncio.Lock()

    async def ask(
        self, path: str, body: bytes, timeout_ms: float, token: str = ""
    ) -> tuple[int, Any]:
        """Return status and JSON of the answer. WireError: there is none, or not in time."""
        try:
            async with asyncio.timeout(timeout_ms / 1000), self._turn:
                return await self._ask(encode_post(self.address, path, body, token))
        except TimeoutError:
            what = f"no answer within {timeout_ms:.0f} ms"
            raise RequestTimeoutError(self.address, what) from None
        except (OSError, EOFError) as cause:
            raise UnreachableError(self.address, _words(cause)) from cause

    async def _ask(self, asked: bytes) -> tuple[int, Any]:
        streams, self._idle = self._idle, None
        if streams is None or streams[0].at_eof() or streams[1].is_closing():
            streams = await self._connect()
        reader, writer = streams
        try:
            writer.write(asked)
            status, answer = await _answer(reader)
        except BaseException:
            writer.transport.abort()
            raise
        self._idle = streams
        return status, answer

    async def stream(
        self, path: str, body: bytes, connect_ms: float, token: str = ""
    ) -> AsyncGenerator[Any, None]:
        """Yield the lines of an answer, each as JSON, as they come. WireError: it has ended."""
        try:
            async with asyncio.timeout(connect_ms / 1000):
                reader, writer = await self._connect()
        except TimeoutError:
            what = f"no connection within {connect_ms:.0f} ms"
            raise RequestTimeoutError(self.address, what) from None
        except OSError as cause:
            raise UnreachableError(self.address, _words(cause)) from cause
        try:
            writer.write(encode_post(self.address, path, body, token))
            decoder, rest = AnswerDecoder(), b""
            while not decoder.is_whole:
                *lines, rest = (rest + decoder.receive(await _some(reader))).split(b"\n")
                for line in filter(None, lines):
                    yield _json(line)
                if len(rest) > BODY_BYTES_MAX:
                    raise RemoteProtocolError(f"{self.address}: a line of {len(rest)} bytes")
        except (OSError, EOFError) as cause:
            raise UnreachableError(self.address, _words(cause)) from cause
        finally:
            writer.transport.abort()

    async def _connect(self) -> _Streams:
        host, port = parse_address(self.address)
        return await asyncio.open_connection(host, port, ssl=self._tls)

    def close(self) -> None:
        if self._idle is not None:
            self._idle[1].transport.abort()
            self._idle = None


async def _answer(reader: asyncio.StreamReader) -> tuple[int, Any]:
    decoder, parts = AnswerDecoder(), bytearray()
    while not decoder.is_whole:
        parts += decoder.receive(await _some(reader))
        if len(parts) > BODY_BYTES_MAX:
            raise RemoteProtocolError(f"an answer of more than {BODY_BYTES_MAX} bytes")
    return decoder.status, _json(bytes(parts))


async def _some(reader: asyncio.StreamReader) -> bytes:
    data = await reader.read(_READ_BYTES)
    if not data:
        raise EOFError("it closed the connection")
    return data


def _json(text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as cause:
        raise RemoteProtocolError(f"no JSON: {text[:80]!r}") from cause


def _words(error: Exception) -> str:
    # An error of TLS has a number of its own, which is none of the system's.
    if isinstance(error, OSError) and not isinstance(error, SSLError) and error.errno:
        return os.strerror(error.errno)
    return str(error) or type(error).__name__
