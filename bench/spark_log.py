"""The log that Spark reads in the benchmark: message i decides everything, so that any result can be checked.

Topics, queues and keys are those of `harness`, so RocketMQ's side can count them. Bodies are different:
64 of them in turn would shrink to nothing in a Parquet dictionary. Here they are slices of random
bytes, too many for a dictionary and too far apart for a compressor.
"""

import hashlib
import os
import zlib
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

import harness
from doors import AppendRequest, AppendStatus, MessageStore, StoreConfig, encode_properties
from orbitmq.units import KiB, MiB

TOPICS = 8
QUEUES = TOPICS * harness.QUEUES_PER_TOPIC
TAGS = 4
RECORD_BYTES = 1_192  # of a message with a body of 1 KiB, about
POOL_BYTES = 64 * MiB
STEP = 1_021  # bodies start so far apart, a prime: they overlap, and none repeats soon
BATCH = 64
JAVA_KEYS = {
    "segment_bytes": "mappedFileSizeCommitLog",
    "index_slots": "maxHashSlotNum",
    "index_items": "maxIndexNum",
}


def tag(i: int) -> str:
    return f"Tag{i // QUEUES % TAGS}"


@dataclass(frozen=True)
class Log:
    """So many messages in a directory, with bodies of one size and files of given sizes."""

    root: Path
    count: int
    body_bytes: int = 1 * KiB
    files: tuple[tuple[str, int], ...] = ()  # fields of StoreConfig that are not the default

    @property
    def settings(self) -> dict[str, str]:
        """Return the sizes as RocketMQ names them."""
        return {JAVA_KEYS[name]: str(value) for name, value in self.files}

    @property
    def log_bytes(self) -> int:
        return self.count * (RECORD_BYTES - 1 * KiB + self.body_bytes)

    @cached_property
    def _pool(self) -> bytes:
        return np.random.default_rng(20_240_229).bytes(POOL_BYTES + self.body_bytes)

    def body(self, i: int) -> bytes:
        start = i * STEP % POOL_BYTES
        return self._pool[start : start + self.body_bytes]

    def request(self, i: int) -> AppendRequest:
        made = harness.request(i, QUEUES)
        properties = {"KEYS": harness.key(i), "TAGS": tag(i), "UNIQ_KEY": f"{i:032X}"}
        return AppendRequest(
            topic=made.topic,
            queue_id=made.queue_id,
            body=self.body(i),
            properties=encode_properties(properties),
            born_ms=made.born_ms,
            born_host=made.born_host,
        )

    def make(self) -> None:
        """Write the log with the live store, which dispatches; close it cleanly."""
        config = StoreConfig(root=self.root, **dict(self.files))
        with MessageStore.open(config) as store:
            store.wait_kernels()
            batch = BATCH if self.body_bytes <= 64 * KiB else 1
            for numbers in harness.chunks(0, self.count, batch):
                results = store.append_many([self.request(i) for i in numbers])
                refused = [r for r in results if r.status is not AppendStatus.PUT_OK]
                require(not refused, f"refused: {refused[:1]}")
            require(store.wait_dispatched(timeout=600), "dispatch does not keep up")

    # What every reader must find.

    def place(self, i: int) -> harness.Row:
        """Return where message i must be found."""
        return {
            "topic": harness.topic(i, QUEUES),
            "queue_id": i % harness.QUEUES_PER_TOPIC,
            "queue_offset": i // QUEUES,
            "tags": tag(i),
            "key": harness.key(i),
        }

    @cached_property
    def counts(self) -> dict[str, int]:
        """Return how many messages each topic and tag has."""
        topics = [harness.topic(i, QUEUES) for i in range(QUEUES)]
        places = Counter((i % QUEUES, i // QUEUES % TAGS) for i in range(self.count))
        found: Counter[str] = Counter()
        for (lane, its_tag), number in places.items():
            found[f"{topics[lane]} Tag{its_tag}"] += number
        return dict(found)

    @cached_property
    def sums(self) -> dict[str, int]:
        """Return the sums that `spark_queries.sums` must give."""
        numbers = np.arange(self.count, dtype=np.int64)
        names = [(*name.split(), number) for name, number in self.counts.items()]
        return {
            "rows": self.count,
            "queue_ids": int((numbers % harness.QUEUES_PER_TOPIC).sum()),
            "queue_offsets": int((numbers // QUEUES).sum()),
            "topics": sum(zlib.crc32(topic.encode()) * number for topic, _, number in names),
            "tags": sum(zlib.crc32(its_tag.encode()) * number for _, its_tag, number in names),
            "keys": sum(zlib.crc32(harness.key(i).encode()) for i in range(self.count)),
            "bodies": sum(zlib.crc32(self.body(i)) for i in range(self.count)),
        }


def plain(value: object) -> object:
    """Return what JSON can hold; `unplain` is the way back."""
    if isinstance(value, Log):
        return {"log_of": [str(value.root), value.count, value.body_bytes, value.files]}
    return str(value)


def unplain(value: harness.Row) -> Any:
    if set(value) != {"log_of"}:
        return value
    root, count, body_bytes, files = value["log_of"]
    return Log(Path(root), count, body_bytes, tuple((name, number) for name, number in files))


def digest(root: Path) -> str:
    """Return a checksum of a store's queues and index; names of index files are times, so their order counts.

    What is after the last byte that is not 0 does not count: a file may have its full length or not.
    """
    whole = hashlib.sha256()
    for name in ("consumequeue", "index"):
        for path in sorted((root / name).rglob("*")):
            if path.is_file():
                place = path.relative_to(root).as_posix() if name == "consumequeue" else name
                whole.update(place.encode() + b"\0" + path.read_bytes().rstrip(b"\0"))
    return whole.hexdigest()


def warm_pages(root: Path) -> None:
    """Have everything written and in the page cache: what is measured is not the disk."""
    os.sync()
    read_files(root / "commitlog")


def read_files(directory: Path) -> None:
    """Have the files of a directory in the page cache."""
    for path in sorted(directory.iterdir()):
        with path.open("rb", buffering=0) as file:
            while file.read(4 * MiB):
                pass


def drop_derived(root: Path) -> None:
    """Leave the bare log of a store that was stopped."""
    harness.drop_derived(root)
    (root / "abort").unlink()
    warm_pages(root)


def require(holds: bool, what: str) -> None:
    if not holds:
        raise SystemExit(f"wrong result: {what}")
