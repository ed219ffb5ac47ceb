"""Stores for experiments: small segments, numbered messages, and a look whether all of them came back."""

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from orbitmq.errors import StoreError
from orbitmq.format.record import BODY_AT
from orbitmq.lab.measure import seeded_bytes
from orbitmq.message import AppendRequest, AppendResult
from orbitmq.store.config import StoreConfig
from orbitmq.store.store import MessageStore
from orbitmq.units import MiB

TOPIC: Final = "Lab"
BATCH: Final = 64
NUMBER_BYTES: Final = 8
SEGMENT_BYTES: Final = 32 * MiB

_LENGTH: Final = struct.Struct(">i")


def open_store(root: Path, **keys: object) -> MessageStore:
    """Open a store with these keys of a broker.conf, everything else as RocketMQ has it."""
    settings = {"mappedFileSizeCommitLog": str(SEGMENT_BYTES)}
    settings.update((name, _text(value)) for name, value in keys.items())
    store = MessageStore.open(StoreConfig.from_settings(root, settings))
    store.wait_kernels()  # a clock that runs while they load measures them
    return store


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def bodies(body_bytes: int) -> Iterator[bytes]:
    """Yield bodies for ever; each begins with its number."""
    rest = seeded_bytes(body_bytes - NUMBER_BYTES)
    number = 0
    while True:
        yield number.to_bytes(NUMBER_BYTES, "big") + rest
        number += 1


def requests(count: int, queues: int, body_bytes: int) -> list[AppendRequest]:
    """Return messages 0, 1, 2, ...: they take turns over the queues."""
    made = bodies(body_bytes)
    return [AppendRequest(TOPIC, number % queues, next(made)) for number in range(count)]


def append_all(store: MessageStore, messages: Sequence[AppendRequest], batch: int = BATCH) -> None:
    """Append in this order, so many in a call, and wait until queues have them."""
    for start in range(0, len(messages), batch):
        require_stored(store, store.append_many(messages[start : start + batch]))
    if not store.wait_dispatched():
        raise StoreError(store.config.root, "dispatch does not end", "Look at the disk (`dmesg`).")


def require_stored(store: MessageStore, results: Sequence[AppendResult]) -> None:
    """Raise for a message that was not taken: figures without it would be wrong."""
    for result in results:
        if not result.status.stored:
            what = f"an append was refused: {result.status.name} {result.reason}"
            step = "Take a disk with more free space (--dir)."
            raise StoreError(store.config.root, what, step)


def queue_bodies(store: MessageStore, queue_id: int, count: int = 32) -> Iterator[bytes]:
    """Yield the bodies of a queue in order, as pulls of so many read it."""
    offset = store.min_offset(TOPIC, queue_id)
    while records := (found := store.get(TOPIC, queue_id, offset, count)).records:
        yield from map(body_of, records)
        offset = found.next_offset


def body_of(record: memoryview) -> bytes:
    """Return the body of a record, with nothing else of it decoded; hosts of the lab are IPv4."""
    (length,) = _LENGTH.unpack_from(record, BODY_AT - _LENGTH.size)
    return bytes(record[BODY_AT : BODY_AT + length])


def numbers(found: Iterator[bytes]) -> Iterator[int]:
    """Return the numbers that bodies begin with."""
    return (int.from_bytes(body[:NUMBER_BYTES], "big") for body in found)


def log_files(root: Path) -> list[Path]:
    """Return the segments of a store's log, in order."""
    return sorted((root / "commitlog").iterdir())
