"""Columns of messages to records: the reference for `compiled`."""

import numpy as np
import numpy.typing as npt

from orbitmq.format.columns import Bytes, Ints
from orbitmq.format.java_hash import java_hash
from orbitmq.format.record import FIXED, MAGIC_V1, MAGIC_V2, record_parts, topic_version
from orbitmq.message import AppendRequest
from orbitmq.spark.jobs.load.encode.layout import (
    Columns,
    EncodeKernels,
    Texts,
    record_sizes,
    require_inside,
    require_room,
)


def encode(out: Bytes, columns: Columns, store_ms: int, hosts: bytes) -> Ints:
    sizes = record_sizes(columns)
    require_room(out, sizes, hosts)
    at = 0
    for row, size in enumerate(sizes.tolist()):
        record = _record(columns, row, size, at, store_ms, hosts)
        out[at : at + size] = np.frombuffer(record, dtype=np.uint8)
        at += size
    return sizes


def _record(
    columns: Columns, row: int, size: int, log_offset: int, store_ms: int, hosts: bytes
) -> bytes:
    message, topic = columns.messages[row], _text(columns.topics, row)
    properties, version = _text(columns.properties, row), topic_version(topic)
    request = AppendRequest(
        "",
        int(message["queue_id"]),
        _text(columns.bodies, row),
        flag=int(message["flag"]),
        born_ms=int(message["born_ms"]),
        reconsume_times=int(message["reconsume_times"]),
    )
    parts = record_parts(
        request,
        FIXED,
        size,
        MAGIC_V1 if version == 1 else MAGIC_V2,
        int(message["sys_flag"]),
        int(message["queue_offset"]),
        log_offset,
        hosts[:8],
        store_ms,
        hosts[8:],
        len(topic).to_bytes(version, "big") + topic,
        properties,
    )
    return b"".join(parts)


def hashes(texts: Texts) -> npt.NDArray[np.int32]:
    require_inside(texts, len(texts.ends) - 1)
    found = [
        java_hash(_text(texts, row).decode("utf-8", "replace"))
        for row in range(len(texts.ends) - 1)
    ]
    return np.array(found, dtype=np.int32)


def _text(texts: Texts, row: int) -> bytes:
    return texts.data[texts.ends[row] : texts.ends[row + 1]].tobytes()


KERNELS = EncodeKernels("plain", encode, hashes)
