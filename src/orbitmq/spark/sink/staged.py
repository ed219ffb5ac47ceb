"""A file of requests that wait to be sent: what one attempt of a task made of the rows of its partition.

    bodies of requests, each a client batch, one behind the other
    an index of them (`Index`), as JSON
    its length, 8 bytes, big-endian

The ids of the messages are in these bytes, so a request that is sent again is the same request.
"""

import struct
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from orbitmq.errors import JobFailedError, StoreError
from orbitmq.files.disk import Disk
from orbitmq.wire.bodies.message_queue import MessageQueue

_LENGTH: Final = struct.Struct(">q")


class Request(NamedTuple):
    """What is sent at once to one queue: where it lies in its file, and how to send it."""

    queue: int  # number in the index
    position: int
    length: int
    messages: int
    row: int  # the first of its rows in the partition
    alone: bool  # sent as a message, not as a batch of one


class Index(msgspec.Struct, frozen=True):
    """What a file holds."""

    partition: int
    queues: list[tuple[str, str, int]]  # topic, broker, queue id
    requests: list[Request]
    delayed: bool  # some messages wait at the broker first, in a topic of its own

    def queue(self, request: Request) -> MessageQueue:
        return MessageQueue(*self.queues[request.queue])


class StagedWriter:
    """Writes such a file; durable when `finish` returns. Not thread-safe."""

    def __init__(self, path: str) -> None:
        self.path, self._disk = path, Disk()
        self._fd = self._disk.open(path, create=True)
        self._length = 0

    def __enter__(self) -> "StagedWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self._disk.close(self.path, self._fd)

    def add(self, data: memoryview) -> int:
        """Write the body of a request; return where it lies."""
        position = self._length
        self._disk.write_at(self.path, self._fd, position, data)
        self._length += len(data)
        return position

    def finish(self, index: Index) -> None:
        text = msgspec.json.encode(index)
        self.add(memoryview(text))
        self.add(memoryview(_LENGTH.pack(len(text))))
        self._disk.sync_data(self.path, self._fd)
        self._disk.sync_directory(Path(self.path).parent)


class StagedFile:
    """Such a file, to be read. Not thread-safe."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._disk = Disk()
        try:
            self._fd = self._disk.open(path, writable=False)
        except StoreError as error:
            raise _broken(path, "cannot be read") from error
        try:
            self.index = self._read_index()
        except (StoreError, ValueError) as error:  # of msgspec too
            self.close()
            raise _broken(path, "is not whole") from error

    def _read_index(self) -> Index:
        end = self._disk.length(self.path, self._fd) - _LENGTH.size
        (length,) = _LENGTH.unpack(self._read(end, _LENGTH.size))
        return msgspec.json.decode(self._read(end - length, length), type=Index)

    def _read(self, position: int, length: int) -> bytes:
        """Return exactly so many bytes. ValueError: they are not there."""
        whole = self._disk.length(self.path, self._fd)
        if position < 0 or length < 0 or position + length > whole:
            raise ValueError(f"{length} bytes at {position} of {whole}")
        return self._disk.read_at(self.path, self._fd, position, length)

    def body(self, request: Request) -> bytes:
        """Return the client batch of a request."""
        try:
            return self._read(request.position, request.length)
        except (StoreError, ValueError) as error:
            raise _broken(self.path, "is shorter than it was") from error

    def close(self) -> None:
        self._disk.close(self.path, self._fd)


def _broken(path: str, what: str) -> JobFailedError:
    step = "Its rows are lost: see by their ids what the topics hold, and write the rest anew."
    return JobFailedError(f"{path}, which holds rows that wait to be sent, {what}", step)
