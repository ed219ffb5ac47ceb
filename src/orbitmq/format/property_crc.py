"""The optional CRC over a whole record, kept in the last 20 bytes of its properties.

Layout of TAIL, 20 bytes:

at | size | type  | field     | RocketMQ name | meaning
 0 |    8 | bytes | name      | PROPERTY_CRC32 | the characters `__CRC32#`
 8 |    1 | bytes | separator |               | 0x01
 9 |   10 | bytes | digits    |               | decimal, least significant digit first, `0` on the right
19 |    1 | bytes | end       |               | 0x02

The number is the masked CRC-32 of the finished record without these 20 bytes. Written when
`enabledAppendPropCRC` is on; read instead of the body's CRC when `forceVerifyPropCRC` is on.
"""

import struct
from typing import Any, Final

from orbitmq.format.crc import masked_crc32
from orbitmq.format.properties import remove_property
from orbitmq.message import NAME_SEPARATOR, PROPERTY_SEPARATOR, Property

TAIL: Final = struct.Struct(">8s1s10s1s")
CRC_TAIL_BYTES: Final = 20
assert TAIL.size == CRC_TAIL_BYTES  # RocketMQ's CRC32_RESERVED_LEN

_NAME: Final = Property.CRC32.encode()
_SEPARATOR: Final = NAME_SEPARATOR.encode()
_END: Final = PROPERTY_SEPARATOR.encode()


def crc_tail(checksum: int) -> bytes:
    """Return the 20 bytes that hold this masked CRC."""
    digits = str(checksum)[::-1].ljust(10, "0").encode()
    return TAIL.pack(_NAME, _SEPARATOR, digits, _END)


def ready_for_crc(properties: bytes) -> bytes:
    """Return the properties as they stand before the 20 bytes: no CRC of others, 0x02 at the end."""
    kept = remove_property(properties, Property.CRC32)
    return kept + _END if kept and not kept.endswith(_END) else kept


def property_crc_matches(record: Any) -> bool:
    """Return whether a whole record (bytes-like) ends with the CRC of what stands before it."""
    split = len(record) - CRC_TAIL_BYTES
    return split >= 0 and bytes(record[split:]) == crc_tail(masked_crc32(record[:split]))
