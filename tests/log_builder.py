"""Commit logs made in memory, for tests of recovery: any record, any damage, no files."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from orbitmq.format.properties import encode_properties
from orbitmq.format.record import BLANK_BYTES, BODY_AT, encode_blank, encode_record
from orbitmq.format.segment_name import segment_name
from orbitmq.log_read import LogView, Segment
from orbitmq.message import AppendRequest, Host

HOST = Host(b"\x7f\x00\x00\x01", 10911)
FIRST_MS = 1_700_000_000_000


@dataclass
class Placed:
    """One record of a built log."""

    start: int
    raw: bytes
    topic: str
    queue_id: int
    queue_offset: int

    @property
    def end(self) -> int:
        return self.start + len(self.raw)


@dataclass
class LogBuilder:
    """Appends records to segments of bytes, as a store would."""

    segment_bytes: int = 4096
    base_offset: int = 0
    segments: list[bytearray] = field(default_factory=list)
    records: list[Placed] = field(default_factory=list)
    next_offsets: dict[tuple[str, int], int] = field(default_factory=dict)
    store_ms: int = FIRST_MS
    position: int = 0

    def append(
        self,
        topic: str = "T",
        queue_id: int = 0,
        body: bytes = b"x" * 50,
        *,
        sys_flag: int = 0,
        queue_offset: int | None = None,
        **properties: str,
    ) -> Placed:
        number = (
            self.next_offsets.get((topic, queue_id), 0) if queue_offset is None else queue_offset
        )
        raw = self._encode(topic, queue_id, body, number, self.written, sys_flag, properties)
        if not self.segments:
            self.segments.append(bytearray(self.segment_bytes))
        if self.position + len(raw) + BLANK_BYTES > self.segment_bytes:
            rest = self.segment_bytes - self.position
            self.segments[-1][self.position : self.position + 8] = encode_blank(rest)
            self.segments.append(bytearray(self.segment_bytes))
            self.position = 0
            raw = self._encode(topic, queue_id, body, number, self.written, sys_flag, properties)
        placed = Placed(self.written, raw, topic, queue_id, number)
        self.segments[-1][self.position : self.position + len(raw)] = raw
        self.position += len(raw)
        self.next_offsets[topic, queue_id] = number + 1
        self.records.append(placed)
        self.store_ms += 1
        return placed

    def _encode(
        self,
        topic: str,
        queue_id: int,
        body: bytes,
        queue_offset: int,
        log_offset: int,
        sys_flag: int,
        properties: dict[str, str],
    ) -> bytes:
        named = {"WAIT": "true", "CLUSTER": "c", **properties}
        request = AppendRequest(topic, queue_id, body, encode_properties(named), sys_flag=sys_flag)
        return encode_record(
            request,
            log_offset=log_offset,
            queue_offset=queue_offset,
            store_ms=self.store_ms,
            store_host=HOST,
        )

    @property
    def written(self) -> int:
        if not self.segments:
            return self.base_offset
        return self.base_offset + (len(self.segments) - 1) * self.segment_bytes + self.position

    def overwrite(self, log_offset: int, data: bytes) -> None:
        number, position = divmod(log_offset - self.base_offset, self.segment_bytes)
        self.segments[number][position : position + len(data)] = data

    def zero(self, start: int, end: int) -> None:
        self.overwrite(start, bytes(end - start))

    def flip(self, log_offset: int) -> None:
        number, position = divmod(log_offset - self.base_offset, self.segment_bytes)
        self.segments[number][position] ^= 0x5A

    def view(self) -> LogView:
        views = [
            Segment(
                self.base_offset + number * self.segment_bytes,
                Path(f"/nowhere/{self.base_offset + number * self.segment_bytes:020d}"),
                np.frombuffer(bytes(segment), dtype=np.uint8),
                len(segment),
            )
            for number, segment in enumerate(self.segments)
        ]
        return LogView(views, self.segment_bytes)


def write_log(builder: LogBuilder, root: Path) -> Path:
    """Write a log that was built in memory as a store directory; return its root."""
    directory = root / "commitlog"
    directory.mkdir(parents=True)
    for number, segment in enumerate(builder.segments):
        name = segment_name(builder.base_offset + number * builder.segment_bytes)
        (directory / name).write_bytes(bytes(segment))
    return root


def fake_record(log_offset: int, body: bytes = b"fake", topic: str = "Fake") -> bytes:
    """Return a whole record that names this place, to be hidden in a body."""
    request = AppendRequest(topic, 0, body)
    return encode_record(
        request, log_offset=log_offset, queue_offset=0, store_ms=1, store_host=HOST
    )


def append_with_fakes(builder: LogBuilder, count: int = 2, between: bytes = b"~") -> Placed:
    """Append a record whose body is full of records that name their own places."""
    filled = between.join([fake_record(0)] * count)
    size = len(builder._encode("T", 0, filled, 0, 0, 0, {}))
    start = builder.written
    if builder.position + size + BLANK_BYTES > builder.segment_bytes:
        start = builder.base_offset + len(builder.segments) * builder.segment_bytes
    step = len(fake_record(0)) + len(between)
    fakes = [fake_record(start + BODY_AT + number * step) for number in range(count)]
    placed = builder.append(body=between.join(fakes))
    assert (placed.start, len(placed.raw)) == (start, size)
    return placed
