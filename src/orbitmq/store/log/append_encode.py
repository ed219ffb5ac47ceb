"""Records of messages that need more than the appender's fast path: batches, light queues, IPv6, CRC."""

import struct

import numpy as np
import numpy.typing as npt

from orbitmq.errors import FormatError
from orbitmq.format.client_batch import decode_client_batch, encode_client_batch
from orbitmq.format.columns import APPEND, Bytes
from orbitmq.format.crc import CRC_MASK, full_crc32
from orbitmq.format.kernels import Kernels
from orbitmq.format.properties import join_properties, remove_property
from orbitmq.format.property_crc import CRC_TAIL_BYTES, crc_tail
from orbitmq.format.record import FIXED_BY_HOSTS, MAGIC_V2
from orbitmq.message import PROPERTIES_BYTES_MAX, AppendResult, AppendStatus, Host, Property
from orbitmq.store.log.append_rules import (
    ZEROS_MAX,
    Prepared,
    closed,
    has_zeros,
    illegal,
    refuse,
)


def encode_prepared(
    prepared: Prepared,
    *,
    log_offset: int,
    queue_offset: int,
    store_ms: int,
    own_host: Host,
    light_offsets: tuple[int, ...] = (),
    property_crc: bool = False,
) -> bytes | AppendResult:
    """Return the whole record, or a refusal if a number or the properties do not fit."""
    request, form, body = prepared.request, prepared.topic, prepared.request.body
    properties = _with_offsets(prepared, queue_offset, light_offsets)
    reserved = CRC_TAIL_BYTES if property_crc else 0
    length = len(properties) + reserved
    if length > PROPERTIES_BYTES_MAX:
        reason = f"the properties have {length} bytes, the limit is {PROPERTIES_BYTES_MAX}"
        return refuse(AppendStatus.PROPERTIES_SIZE_EXCEEDED, reason)
    fixed = FIXED_BY_HOSTS[prepared.sys_flag >> 4 & 3]
    tail = form.tail + length.to_bytes(2, "big")
    size = fixed.size + len(body) + len(tail) + length
    try:
        head = fixed.pack(
            size,
            form.magic,
            full_crc32(body) & CRC_MASK,
            request.queue_id,
            request.flag,
            queue_offset,
            log_offset,
            prepared.sys_flag,
            request.born_ms,
            request.born_host.packed(),
            store_ms,
            (request.store_host or own_host).packed(),
            request.reconsume_times,
            request.prepared_offset,
            len(body),
        )
    except (struct.error, OverflowError) as error:
        return unfit(error)
    record = b"".join((head, body, tail, properties))
    return record + crc_tail(full_crc32(record) & CRC_MASK) if property_crc else record


def unfit(error: Exception) -> AppendResult:
    return illegal(f"a number of the message does not fit its field: {error}")


def _with_offsets(prepared: Prepared, queue_offset: int, light_offsets: tuple[int, ...]) -> bytes:
    """Return the properties with those that only the appender knows."""
    properties = prepared.properties
    if prepared.inner_batch:
        properties = _replaced(properties, Property.INNER_BASE, str(queue_offset))
    if prepared.light_queues:
        listed = ",".join(map(str, light_offsets))
        properties = _replaced(properties, Property.MULTI_QUEUE_OFFSET, listed)
    return properties


def _replaced(properties: bytes, name: str, value: str) -> bytes:
    kept = remove_property(properties, name)
    return join_properties(kept, f"{name}\x01{value}\x02".encode())


class ClientBatch:
    """The messages of one client batch as records; only offsets and store time are missing."""

    def __init__(
        self, prepared: Prepared, kernels: Kernels, own_host: Host, *, property_crc: bool
    ) -> None:
        """Measure the records. FormatError: the batch is broken."""
        self._kernels, self._property_crc = kernels, property_crc
        self._common = _common_row(prepared, own_host)
        self._topic = prepared.request.topic.encode()
        self._extra = prepared.properties
        batch = _with_closed_properties(prepared.request.body, self._extra)
        self._batch: Bytes = np.frombuffer(batch, dtype=np.uint8)
        sizes = kernels.client_batch_sizes(
            self._topic, self._batch, self._extra, self._common, property_crc=property_crc
        )
        self.sizes: list[int] = sizes.tolist()
        self.total_bytes = sum(self.sizes)

    def encode(self, *, log_offset: int, queue_offset: int, store_ms: int) -> bytes:
        """Return all records, one after another."""
        self._common["queue_offset"] = queue_offset
        out = np.empty(self.total_bytes, dtype=np.uint8)
        self._kernels.encode_client_batch(
            out,
            0,
            log_offset,
            store_ms,
            self._common,
            self._topic,
            self._batch,
            self._extra,
            property_crc=self._property_crc,
        )
        return out.tobytes()


def _with_closed_properties(batch: bytes, extra: bytes) -> bytes:
    """Return the batch with the properties of its messages as records of ours may have them."""
    if extra and not has_zeros(batch):
        return batch  # the extra ones stand last and are closed
    messages = decode_client_batch(batch)
    if any(has_zeros(message.properties) for message in messages):
        raise FormatError(f"properties with more than {ZEROS_MAX} zero bytes in a row")
    if extra or not any(message.properties.endswith(b"\0") for message in messages):
        return batch
    return encode_client_batch(
        message._replace(properties=closed(message.properties)) for message in messages
    )


def _common_row(prepared: Prepared, own_host: Host) -> npt.NDArray[np.void]:
    request = prepared.request
    row = np.zeros(1, dtype=APPEND)
    row["born_ms"] = request.born_ms
    row["prepared_offset"] = request.prepared_offset
    row["queue_id"] = request.queue_id
    row["sys_flag"] = prepared.sys_flag
    row["reconsume_times"] = request.reconsume_times
    row["version"] = 2 if prepared.topic.magic == MAGIC_V2 else 1
    row["born_host"] = np.void(request.born_host.packed().ljust(20, b"\0"))
    row["store_host"] = np.void((request.store_host or own_host).packed().ljust(20, b"\0"))
    return row
