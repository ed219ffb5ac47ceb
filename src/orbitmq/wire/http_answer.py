"""Answers of an HTTP/1.1 server: bytes in, status and body out. As much of it as JSON over HTTP needs.

A body has a length, or comes in chunks (a watch, which never ends). What has neither ends with its
connection, which no server of JSON does: it is refused.
"""

from typing import Final

from orbitmq.errors import RemoteProtocolError

HEAD_BYTES_MAX: Final = 64 * 1024
CHUNK_BYTES_MAX: Final = 16 * 1024 * 1024
_LINE: Final = b"\r\n"


class AnswerDecoder:
    """One answer. `receive` returns what of its body is new; RemoteProtocolError: it is none."""

    def __init__(self) -> None:
        self.status = 0  # 0: its head has not come yet
        self.is_whole = False
        self._rest = bytearray()
        self._left = 0  # of the body, or of the chunk
        self._chunked = self._in_chunk = False

    def receive(self, data: bytes) -> bytes:
        """Take what came; return the bytes of the body in it."""
        self._rest += data
        if not self.status and not self._head():
            return b""
        return self._chunks() if self._chunked else self._body()

    def _head(self) -> bool:
        end = self._rest.find(_LINE * 2)
        if end < 0:
            if len(self._rest) > HEAD_BYTES_MAX:
                raise RemoteProtocolError(f"no end of a head in {len(self._rest)} bytes")
            return False
        first, *lines = bytes(self._rest[:end]).split(_LINE)
        del self._rest[: end + len(_LINE * 2)]
        words = first.split(None, 2)
        if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not words[1].isdigit():
            raise RemoteProtocolError(f"no HTTP answer: {first[:80]!r}")
        fields = {}
        for line in lines:
            name, _, value = line.partition(b":")
            fields[name.strip().lower()] = value.strip()
        self._chunked = fields.get(b"transfer-encoding", b"").lower() == b"chunked"
        length = fields.get(b"content-length", b"")
        if not self._chunked and not length.isdigit():
            raise RemoteProtocolError("an answer of unknown length")
        self._left = 0 if self._chunked else int(length)
        self.status = int(words[1])
        return True

    def _body(self) -> bytes:
        taken = self._take()
        self.is_whole = not self._left
        return taken

    def _take(self) -> bytes:
        taken = bytes(self._rest[: self._left])
        del self._rest[: self._left]
        self._left -= len(taken)
        return taken

    def _chunks(self) -> bytes:
        body = bytearray()
        while self._rest and not self.is_whole:
            if not self._in_chunk:
                if not self._size():
                    break
                continue
            body += self._take()
            if self._left or len(self._rest) < len(_LINE):
                break
            if self._rest[: len(_LINE)] != _LINE:
                raise RemoteProtocolError("a chunk that is longer than it says")
            del self._rest[: len(_LINE)]
            self._in_chunk = False
        return bytes(body)

    def _size(self) -> bool:
        """Read how long the next chunk is; the last one has no bytes."""
        end = self._rest.find(_LINE)
        if end < 0:
            return False
        text = bytes(self._rest[:end]).partition(b";")[0].strip()
        try:
            size = int(text, 16)
        except ValueError:
            raise RemoteProtocolError(f"no size of a chunk: {text[:20]!r}") from None
        if not 0 <= size <= CHUNK_BYTES_MAX:
            raise RemoteProtocolError(f"a chunk of {size} bytes")
        del self._rest[: end + len(_LINE)]
        self._left, self._in_chunk = size, size > 0
        self.is_whole = not size
        return True


def encode_post(host: str, path: str, body: bytes, token: str = "") -> bytes:
    """Return a POST of JSON; the token says who asks."""
    authorization = f"Authorization: {token}\r\n" if token else ""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
        f"{authorization}Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode("ascii") + body
