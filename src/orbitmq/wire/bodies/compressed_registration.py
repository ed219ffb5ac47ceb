"""The body of REGISTER_BROKER (103) as brokers with `compressedRegister` send it: one zlib stream.

at | size | type | field     | meaning
 0 | 4    | i32  | size      |
   | n    | text | version   | DataVersion, JSON
   | 4    | i32  | topics    | how many topics follow; of each:
   | 4+n  | text | topic     | size, then "name readQueues writeQueues perm filterType {attributes}"
   | 4+n  | text | filters   | size, then a list of filter servers, JSON
   | 4    | i32  | mappings  | only from broker version 413 on: how many mappings of static topics follow
   | 4+n  | text | mapping   | size, then JSON; its member `topic` says of which
"""

import struct
import zlib
from typing import Any, Final

from orbitmq.errors import FieldError
from orbitmq.units import MiB
from orbitmq.wire.bodies import dialect
from orbitmq.wire.bodies.topic_config import DataVersion, Registration, TopicConfig, TopicTable

ZLIB_BYTE: Final = 0x78
"""How every zlib stream of a broker begins; no JSON does."""
PLAIN_BYTES_MAX: Final = 256 * MiB
"""Some 2 million topics: more is no registration but a bomb."""
MAPPINGS_VERSION: Final = 413

_INT: Final = struct.Struct(">i")


def decode_compressed(raw: bytes, broker_version: int) -> Registration:
    """Return the registration in a compressed body. FieldError: there is none."""
    try:
        reader = _Reader(_inflate(raw))
        table = TopicTable(data_version=DataVersion.decode(reader.piece()))
        topics = (_topic(reader.piece()) for _ in range(reader.count()))
        table.topic_config_table = {topic.topic_name: topic for topic in topics}
        filter_servers = dialect.loads(reader.piece())
        if broker_version >= MAPPINGS_VERSION and not reader.at_end:
            table.topic_queue_mapping_info_map = dict(
                _mapping(reader.piece()) for _ in range(reader.count())
            )
    except (zlib.error, struct.error, ValueError) as cause:
        raise FieldError("body", f"is no compressed registration: {cause}") from cause
    found = {
        "topicConfigSerializeWrapper": table,
        "filterServerList": filter_servers,
    }
    return Registration.of(found)


def encode_compressed(registration: Registration, broker_version: int = MAPPINGS_VERSION) -> bytes:
    """Return the compressed body of a registration."""
    table = registration.topic_config_serialize_wrapper
    topics = [
        f"{topic.topic_name} {topic.read_queue_nums} {topic.write_queue_nums} {topic.perm} "
        f"{topic.topic_filter_type} ".encode()
        + dialect.dumps(topic.attributes)
        for topic in table.topic_config_table.values()
    ]
    parts = [_sized(table.data_version.encode()), _INT.pack(len(topics)), *map(_sized, topics)]
    parts.append(_sized(dialect.dumps(registration.filter_server_list)))
    if broker_version >= MAPPINGS_VERSION:
        mappings = table.topic_queue_mapping_info_map.values()
        parts += [_INT.pack(len(mappings)), *(_sized(dialect.dumps(one)) for one in mappings)]
    return zlib.compress(b"".join(parts), 9)


class _Reader:
    """Pieces with their sizes before them."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    @property
    def at_end(self) -> bool:
        return self._at == len(self._data)

    def count(self) -> int:
        (count,) = _INT.unpack_from(self._data, self._at)
        self._at += _INT.size
        if not 0 <= count <= len(self._data) - self._at:
            raise ValueError(f"{count} bytes or pieces where {len(self._data) - self._at} are left")
        return int(count)

    def piece(self) -> bytes:
        size = self.count()
        self._at += size
        return self._data[self._at - size : self._at]


def _inflate(raw: bytes) -> bytes:
    stream = zlib.decompressobj()
    plain = stream.decompress(raw, PLAIN_BYTES_MAX)
    if not stream.eof:
        raise ValueError("the stream is cut off, or too long when unpacked")
    return plain


def _topic(raw: bytes) -> TopicConfig:
    name, read, write, perm, filter_type, *rest = raw.decode("utf-8").split(" ", 5)
    attributes = dialect.loads(rest[0].encode()) if rest and rest[0] else {}
    return TopicConfig.of(
        {
            "topicName": name,
            "readQueueNums": int(read),
            "writeQueueNums": int(write),
            "perm": int(perm),
            "topicFilterType": filter_type,
            "attributes": attributes,
        }
    )


def _mapping(raw: bytes) -> tuple[str, Any]:
    mapping = dialect.loads(raw)
    if not isinstance(mapping, dict) or not isinstance(mapping.get("topic"), str):
        raise ValueError("a mapping without a topic")  # noqa: TRY004
    return mapping["topic"], mapping


def _sized(piece: bytes) -> bytes:
    return _INT.pack(len(piece)) + piece
