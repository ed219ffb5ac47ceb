"""What a REGISTER_BROKER (103) request says: its header checked, its body in whichever form it came."""

import zlib

from orbitmq.wire.bodies.compressed_registration import ZLIB_BYTE, decode_compressed
from orbitmq.wire.bodies.topic_config import Registration, TopicTable
from orbitmq.wire.command import Command
from orbitmq.wire.headers.registration import RegisterBroker

WRAPPED_VERSION = 37
"""Brokers before 3.0.11 send the table of topics alone."""


def body_crc32(body: bytes) -> int:
    """Return the checksum of a registration's body, as brokers send it along."""
    return zlib.crc32(body) & 0x7FFFFFFF


def is_intact(header: RegisterBroker, body: bytes) -> bool:
    """Return whether the body is what the broker sent; one without a checksum is taken as it is."""
    return header.body_crc32 in (0, body_crc32(body))


def read_registration(command: Command, header: RegisterBroker) -> Registration:
    """Return the registration in a request's body. FieldError: there is none."""
    body = command.body
    if not body:
        return Registration()
    # RocketMQ 5.3.3 compresses and says that it does not.
    if header.compressed or body[0] == ZLIB_BYTE:
        return decode_compressed(body, command.version)
    if command.version < WRAPPED_VERSION:
        return Registration(topic_config_serialize_wrapper=TopicTable.decode(body))
    return Registration.decode(body)
