"""What the tests of the kernels share: golden logs as arrays, and logs made by hand."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from golden_stores import rows, unpack
from orbitmq.format.client_batch import ClientMessage, encode_client_batch
from orbitmq.format.columns import APPEND, Bytes, ScanOptions, ScanResult, as_bytes_array
from orbitmq.format.kernels import Kernels
from orbitmq.format.record import FIXED_BY_HOSTS, MAGIC_V1, MAGIC_V2, record_parts, record_size
from orbitmq.message import AppendRequest

MINUTE_MS = 60_000
_MINUTES = (*range(1, 11), 20, 30, 60, 120)
DELAY_MS = (0, 1000, 5000, 10_000, 30_000, *(minutes * MINUTE_MS for minutes in _MINUTES))
"""RocketMQ's default delay levels; index 0 is not a level."""

STORE_MS = 1_700_000_000_123
HOST = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f".ljust(20, b"\0")


@cache
def golden_files(name: str, folder: str) -> dict[str, bytes]:
    """Return the files below a folder of a golden store, by path relative to it, in order."""
    with TemporaryDirectory(prefix="orbitmq-golden-") as target:
        root = unpack(name, Path(target)) / folder
        paths = sorted(path for path in root.rglob("*") if path.is_file())
        return {str(path.relative_to(root)): path.read_bytes() for path in paths}


def golden_segments(name: str) -> Iterator[tuple[int, Bytes]]:
    """Yield base offset and bytes of each commit log segment of a golden store."""
    for path, content in golden_files(name, "commitlog").items():
        yield int(path), as_bytes_array(content)


def golden_scans(kernels: Kernels, name: str, **options: Any) -> Iterator[tuple[Bytes, ScanResult]]:
    """Scan every segment of a golden store."""
    for base_offset, segment in golden_segments(name):
        chosen = ScanOptions(delay_ms=DELAY_MS, **options)
        yield segment, kernels.scan(segment, 0, len(segment), base_offset, chosen)


@cache
def golden_records(name: str) -> list[tuple[dict[str, Any], bytes]]:
    """Return each record of a golden store: its manifest row and its bytes."""
    log = dict(golden_segments(name))
    segment_bytes = len(next(iter(log.values())))
    found = []
    for record in rows(name, "record"):
        base, at = divmod(record["phyOffset"], segment_bytes)
        segment = log[base * segment_bytes]
        found.append((record, segment[at : at + record["size"]].tobytes()))
    return found


def append_rows(*messages: dict[str, Any]) -> np.ndarray[Any, Any]:
    """Return APPEND rows with plain defaults for what is not given."""
    fields = np.zeros(len(messages), dtype=APPEND)
    fields["version"] = 1
    for name in ("born_host", "store_host"):
        fields[name] = np.void(HOST)
    for row, message in zip(fields, messages, strict=True):
        for name, value in message.items():
            row[name] = value
    return fields


def make_log(
    messages: list[dict[str, Any]], *, base_offset: int = 0, store_ms: int = STORE_MS
) -> Bytes:
    """Return the records of messages, one after another: body, topic, properties and any field."""
    log = bytearray()
    for message in messages:
        log += _record(message, base_offset + len(log), store_ms)
    return np.frombuffer(log, dtype=np.uint8)


def _record(message: dict[str, Any], log_offset: int, store_ms: int) -> bytes:
    given = {"body": b"body", "topic": b"Topic", "properties": b"", "flag": 0} | message
    body, topic, raw, flag = (given.pop(name) for name in ("body", "topic", "properties", "flag"))
    (row,) = append_rows(given)
    version, sys_flag = int(row["version"]), int(row["sys_flag"])
    lengths = len(body), len(topic), len(raw)
    request = AppendRequest(
        "",
        int(row["queue_id"]),
        body,
        flag=flag,
        born_ms=int(row["born_ms"]),
        reconsume_times=int(row["reconsume_times"]),
        prepared_offset=int(row["prepared_offset"]),
    )
    parts = record_parts(
        request,
        FIXED_BY_HOSTS[sys_flag >> 4 & 3],
        record_size(*lengths, sys_flag=sys_flag, version=version),
        MAGIC_V1 if version == 1 else MAGIC_V2,
        sys_flag,
        int(row["queue_offset"]),
        log_offset,
        bytes(row["born_host"]),
        store_ms,
        bytes(row["store_host"]),
        len(topic).to_bytes(version, "big") + topic,
        raw,
    )
    return b"".join(parts)


def batch_message(body: bytes, raw: bytes = b"", flag: int = 0) -> bytes:
    """Return one message of a client batch."""
    return encode_client_batch([ClientMessage(body, raw, flag)])


def properties(**values: str) -> bytes:
    return b"".join(f"{name}\x01{value}\x02".encode() for name, value in values.items())


def assert_same_scan(left: ScanResult, right: ScanResult) -> None:
    assert (left.stop, left.stop_at, left.stop_size) == (right.stop, right.stop_at, right.stop_size)
    assert left.rows.tolist() == right.rows.tolist()
