"""Records that take more than a look: the first of a queue, batches, light queues, IPv6, CRC.

Each is measured first and encoded when there is room for it, for it says where it lies.
"""

import numpy as np
import numpy.typing as npt

from orbitmq.errors import FormatError
from orbitmq.format.client_batch import decode_client_batch, encode_client_batch
from orbitmq.format.columns import APPEND, Bytes
from orbitmq.format.crc import masked_crc32
from orbitmq.format.kernels import Kernels
from orbitmq.format.ordinary import ZEROS_MAX, has_zeros
from orbitmq.format.properties import join_properties, remove_property
from orbitmq.format.property_crc import CRC_TAIL_BYTES, crc_tail
from orbitmq.format.record import FIXED_BY_HOSTS, MAGIC_V2, record_parts
from orbitmq.message import PROPERTIES_BYTES_MAX, Host, Property
from orbitmq.store.log.append_rules import Prepared, closed


class SingleRecord:
    """The record of one message of any kind; only its place and its store time are missing."""

    def __init__(
        self,
        prepared: Prepared,
        own_host: Host,
        queue_offset: int,
        light_offsets: tuple[int, ...],
        *,
        property_crc: bool,
    ) -> None:
        """Measure the record. FormatError: its properties have become too long."""
        self._prepared, self._own_host, self._queue_offset = prepared, own_host, queue_offset
        self._properties = _with_offsets(prepared, queue_offset, light_offsets)
        self._reserved = CRC_TAIL_BYTES if property_crc else 0
        length = len(self._properties) + self._reserved
        if length > PROPERTIES_BYTES_MAX:
            reason = f"the properties have {length} bytes, the limit is {PROPERTIES_BYTES_MAX}"
            raise FormatError(reason)
        self._fixed = FIXED_BY_HOSTS[prepared.sys_flag >> 4 & 3]
        around = self._fixed.size + len(prepared.topic.tail) + 2
        self.size = around + len(prepared.request.body) + length

    def encode(self, *, log_offset: int, store_ms: int) -> bytes:
        """Return the whole record. struct.error, OverflowError: a number does not fit its field."""
        prepared, request = self._prepared, self._prepared.request
        parts = record_parts(
            request,
            self._fixed,
            self.size,
            prepared.topic.magic,
            prepared.sys_flag,
            self._queue_offset,
            log_offset,
            request.born_host.packed(),
            store_ms,
            (request.store_host or self._own_host).packed(),
            prepared.topic.tail,
            self._properties,
            self._reserved,
        )
        record = b"".join(parts)
        return record + crc_tail(masked_crc32(record)) if self._reserved else record


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
