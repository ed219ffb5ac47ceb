"""Columns of messages to records, compiled. `plain` says what each step means.

Importing this loads the kernels from numba's cache, or compiles them once, for seconds.
"""

import numpy as np
import numpy.typing as npt

from orbitmq.format.columns import Bytes, Ints
from orbitmq.format.compiled import jit
from orbitmq.format.compiled.arrays import frozen, frozen_rows
from orbitmq.format.compiled.jit import kernel
from orbitmq.format.compiled.memory import copy, store_i16, store_i32
from orbitmq.format.compiled.record import write_head, write_topic
from orbitmq.format.compiled.text import as_int32, hash_text
from orbitmq.format.record import MAGIC_V1, MAGIC_V2
from orbitmq.message import TOPIC_BYTES_MAX
from orbitmq.spark.jobs.load.encode.layout import (
    HOSTS_BYTES,
    MESSAGE,
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
    _encode(
        out,
        int(store_ms),
        np.frombuffer(hosts, dtype=np.uint8),
        frozen_rows(columns.messages, MESSAGE),
        *_frozen(columns.topics),
        *_frozen(columns.bodies),
        *_frozen(columns.properties),
        sizes,
    )
    return sizes


def hashes(texts: Texts) -> npt.NDArray[np.int32]:
    require_inside(texts, len(texts.ends) - 1)
    found = np.empty(len(texts.ends) - 1, dtype=np.int32)
    _hashes(*_frozen(texts), found)
    return found


def _frozen(texts: Texts) -> tuple[Bytes, Ints]:
    return frozen(texts.data), frozen_rows(np.asarray(texts.ends, np.int64), np.dtype(np.int64))


@kernel
def _encode(
    out,
    store_ms,
    hosts,
    messages,
    topics,
    topic_ends,
    bodies,
    body_ends,
    properties,
    property_ends,
    sizes,
):
    at = np.int64(0)
    for index in range(len(messages)):
        row = messages[index]
        topic_at, topic_length = topic_ends[index], topic_ends[index + 1] - topic_ends[index]
        version = np.int64(1 if topic_length <= TOPIC_BYTES_MAX else 2)
        body_at, body_length = body_ends[index], body_ends[index + 1] - body_ends[index]
        behind_body = write_head(
            out,
            at,
            MAGIC_V1 if version == 1 else MAGIC_V2,
            (at, row.queue_offset),
            store_ms,
            hosts,
            row,
            np.int64(0),
            np.int64(row.flag),
            bodies,
            body_at,
            body_length,
        )
        place = write_topic(out, behind_body, version, topics, topic_at, topic_length)
        length = property_ends[index + 1] - property_ends[index]
        store_i16(out, place - 2, length)
        copy(out, place, properties, property_ends[index], length)
        store_i32(out, at, sizes[index])
        at += sizes[index]


@kernel
def _hashes(data, ends, found):
    for index in range(len(found)):
        found[index] = as_int32(hash_text(data, ends[index], ends[index + 1], np.int64(0)))


KERNELS = EncodeKernels("compiled", encode, hashes)


def _warm() -> None:
    """Call every kernel once on next to nothing, so that no call stalls later."""
    nothing = Texts(np.empty(0, dtype=np.uint8), np.zeros(1, dtype=np.int64))
    columns = Columns(np.empty(0, dtype=MESSAGE), nothing, nothing, nothing)
    encode(np.empty(0, dtype=np.uint8), columns, 0, bytes(HOSTS_BYTES))
    hashes(nothing)
    jit.close(__name__.rpartition(".")[0])


_warm()
