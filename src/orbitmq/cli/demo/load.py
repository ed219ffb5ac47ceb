"""The demo's messages: number n decides topic, queue, tag, key and body, so that any read can be checked.

Also the writer that the demo kills: `python -m orbitmq.cli.demo.load DIRECTORY FIRST` appends messages
from number FIRST on, for ever, and prints how many there are whenever a batch is acknowledged.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from orbitmq.units import MiB

if TYPE_CHECKING:
    from orbitmq.message import AppendRequest, AppendResult
    from orbitmq.store.config import StoreConfig
    from orbitmq.store.store import MessageStore

TOPICS: Final = ("orders", "payments", "shipments", "audit")
QUEUES: Final = 4
LANES: Final = len(TOPICS) * QUEUES
"""Messages take turns over all queues of all topics."""
TAGS: Final = ("created", "paid", "packed", "sent", "done")
BATCH: Final = 64
BODY_BYTES: Final = 256
KILL_AFTER_SECONDS: Final = (0.8, 1.6)  # of writing; the moment is random
SETTINGS: Final = {
    "mappedFileSizeCommitLog": str(16 * MiB),
    "maxHashSlotNum": "100000",
    "maxIndexNum": "80000",
}
"""Small files, so that segments and index files roll before one's eyes."""


class Place(NamedTuple):
    """Where message n must be."""

    topic: str
    queue_id: int
    queue_offset: int


def place(n: int) -> Place:
    lane = n % LANES
    return Place(TOPICS[lane % len(TOPICS)], lane // len(TOPICS), n // LANES)


def tag(n: int) -> str:
    return TAGS[n // LANES % len(TAGS)]


def key(n: int) -> str:
    return f"order-{n}"


def body(n: int) -> bytes:
    return f'{{"number": {n}, "status": "{tag(n)}"}}'.encode().ljust(BODY_BYTES, b".")


def lane_length(messages: int, lane: int) -> int:
    """Return how many of the first messages are in one queue."""
    return (messages - lane + LANES - 1) // LANES


def request(n: int) -> "AppendRequest":
    from orbitmq.message import AppendRequest

    where = place(n)
    properties = f"KEYS\x01{key(n)}\x02TAGS\x01{tag(n)}\x02"
    return AppendRequest(
        topic=where.topic, queue_id=where.queue_id, body=body(n), properties=properties.encode()
    )


def batches(first: int, end: int) -> Iterator[list["AppendRequest"]]:
    for start in range(first, end, BATCH):
        yield [request(n) for n in range(start, min(start + BATCH, end))]


def demo_config(root: Path) -> "StoreConfig":
    from orbitmq.store.config import StoreConfig

    return StoreConfig.from_settings(root, SETTINGS)


def append_all(store: "MessageStore", first: int, end: int) -> Iterator[list["AppendResult"]]:
    """Append messages; yield the results of each acknowledged batch."""
    for batch in batches(first, end):
        results = store.append_many(batch)
        refused = [result for result in results if not result.status.stored]
        if refused:
            raise RuntimeError(f"append refused: {refused[0].status.name}: {refused[0].reason}")
        yield results


def main() -> None:
    from orbitmq.store.store import MessageStore

    root, count = Path(sys.argv[1]), int(sys.argv[2])
    with MessageStore.open(demo_config(root)) as store:
        for results in append_all(store, count, 2**62):
            count += len(results)
            sys.stdout.write(f"{count}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
