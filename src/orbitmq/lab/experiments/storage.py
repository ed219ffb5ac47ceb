"""`storage`: the same messages in this log, in a key-value store (LMDB) and in a database (SQLite).

All three in one process, written in batches and read back queue by queue: each has what it needs for that and
nothing else. "Synced" means that a batch is on disk before the next one begins.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Protocol

from orbitmq.lab.experiment import (
    Chart,
    Experiment,
    Findings,
    Lab,
    Row,
    Size,
    Verdict,
    clearly_more,
    figure_text,
    verdict,
)
from orbitmq.lab.measure import Meter
from orbitmq.lab.stores import (
    BATCH,
    TOPIC,
    open_store,
    queue_bodies,
    requests,
    require_stored,
)
from orbitmq.message import AppendRequest
from orbitmq.units import GiB, KiB

QUEUES: Final = 8
BODY_BYTES: Final = 1 * KiB
MESSAGES: Final = {Size.SMALL: 640, Size.FULL: 48_000}
SYNCED: Final = {Size.SMALL: 128, Size.FULL: 9_600}
MAP_BYTES: Final = 4 * GiB  # how large LMDB's file may become
MISSING: Final = "not installed: pip install 'orbitmq[lab]'"
LOG, KEY_VALUE, RELATIONAL = "this log", "LMDB (key-value)", "SQLite (relational)"
CLAIM: Final = (
    "files are faster than a key-value store, and that is faster than a relational database"
)
UNITS: Final = {
    "written": "messages/s",
    "written, synced": "messages/s",
    "read": "messages/s",
    "on disk": "bytes/message",
}

Batch = Sequence[tuple[int, int, bytes]]  # queue id, queue offset, body


class Storage(Protocol):
    """Somewhere to keep messages."""

    def put(self, batch: Batch) -> None:
        """Keep these; with `synced` they are on disk afterwards."""

    def settle(self) -> None:
        """Have everything where readers look for it."""

    def bodies(self, queue_id: int) -> Iterable[bytes]:
        """Return the messages of a queue in order."""

    def disk_bytes(self) -> int:
        """Return how much of the disk is used."""

    def close(self) -> None: ...


class LogStorage:
    """This project's store."""

    def __init__(self, root: Path, *, synced: bool) -> None:
        self._store = open_store(root, flushDiskType="SYNC_FLUSH" if synced else "ASYNC_FLUSH")

    def put(self, batch: Batch) -> None:
        made = [AppendRequest(TOPIC, queue_id, body) for queue_id, _, body in batch]
        require_stored(self._store, self._store.append_many(made))

    def settle(self) -> None:
        self._store.wait_dispatched()

    def bodies(self, queue_id: int) -> Iterable[bytes]:
        return queue_bodies(self._store, queue_id)

    def disk_bytes(self) -> int:
        units = sum(self._store.max_offset(TOPIC, queue_id) for queue_id in range(QUEUES))
        return self._store.max_log_offset + 20 * units  # files are allocated far ahead of their use

    def close(self) -> None:
        self._store.close()


class LmdbStorage:
    """A B+ tree in a mapped file; keys are queue and offset."""

    def __init__(self, root: Path, *, synced: bool) -> None:
        import lmdb

        self._root = root
        self._env: Any = lmdb.open(str(root), map_size=MAP_BYTES, sync=synced, metasync=synced)

    def put(self, batch: Batch) -> None:
        with self._env.begin(write=True) as transaction:
            for queue_id, offset, body in batch:
                transaction.put(_key(queue_id, offset), body)

    def settle(self) -> None:
        """A transaction that has ended can be read."""

    def bodies(self, queue_id: int) -> Iterator[bytes]:
        with self._env.begin() as transaction:
            cursor = transaction.cursor()
            found = cursor.set_range(_key(queue_id, 0))
            while found and cursor.key()[:4] == queue_id.to_bytes(4, "big"):
                yield bytes(cursor.value())
                found = cursor.next()

    def disk_bytes(self) -> int:
        return _used_bytes(self._root)

    def close(self) -> None:
        self._env.close()


def _key(queue_id: int, offset: int) -> bytes:
    return queue_id.to_bytes(4, "big") + offset.to_bytes(8, "big")


class SqliteStorage:
    """One table with the key (queue, offset), in a database with a write-ahead log."""

    def __init__(self, root: Path, *, synced: bool) -> None:
        root.mkdir()
        self._root = root
        self._database = sqlite3.connect(root / "messages.db")
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute(f"PRAGMA synchronous = {'FULL' if synced else 'OFF'}")
        self._database.execute(
            "CREATE TABLE messages (queue INTEGER, place INTEGER, body BLOB,"
            " PRIMARY KEY (queue, place)) WITHOUT ROWID"
        )

    def put(self, batch: Batch) -> None:
        with self._database:
            self._database.executemany("INSERT INTO messages VALUES (?, ?, ?)", batch)

    def settle(self) -> None:
        """A transaction that has ended can be read."""

    def bodies(self, queue_id: int) -> Iterable[bytes]:
        query = "SELECT body FROM messages WHERE queue = ? ORDER BY place"
        return (body for (body,) in self._database.execute(query, (queue_id,)))

    def disk_bytes(self) -> int:
        self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return _used_bytes(self._root)

    def close(self) -> None:
        self._database.close()


def _used_bytes(root: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in root.iterdir())


STORAGES: dict[str, Any] = {
    LOG: LogStorage,
    KEY_VALUE: LmdbStorage,
    RELATIONAL: SqliteStorage,
}


def run(lab: Lab) -> Findings:
    lab.steps(2 * len(STORAGES))
    made = requests(MESSAGES[lab.size], QUEUES, BODY_BYTES)
    messages = [(m.queue_id, number // QUEUES, m.body) for number, m in enumerate(made)]
    rows = [_row(lab, name, messages) for name in STORAGES]
    return Findings(
        UNITS, rows, judge(rows), Chart(("written", "written, synced", "read"), logarithmic=True)
    )


def _row(lab: Lab, name: str, messages: Batch) -> Row:
    if name == KEY_VALUE and find_spec("lmdb") is None:
        return Row(name, dict.fromkeys(UNITS), MISSING)
    root = lab.directory / name.partition(" ")[0]
    figures: dict[str, float | None] = {}
    storage: Storage = STORAGES[name](root, synced=False)
    try:
        figures["written"] = _write(storage, messages)
        lab.step()
        figures["read"] = _read(lab, name, storage, messages)
        figures["on disk"] = storage.disk_bytes() / len(messages)
    finally:
        storage.close()
    synced = messages[: SYNCED[lab.size]]
    storage = STORAGES[name](root.with_suffix(".synced"), synced=True)
    try:
        figures["written, synced"] = _write(storage, synced)
        _read(lab, f"{name}, synced", storage, synced)
    finally:
        storage.close()
    lab.step()
    return Row(name, figures)


def _write(storage: Storage, messages: Batch) -> float:
    with Meter() as meter:
        for start in range(0, len(messages), BATCH):
            storage.put(messages[start : start + BATCH])
        storage.settle()
    return meter.rate(len(messages))


def _read(lab: Lab, name: str, storage: Storage, messages: Batch) -> float:
    with Meter() as meter:
        found = [list(storage.bodies(queue_id)) for queue_id in range(QUEUES)]
    wanted = [[body for queue_id, _, body in messages if queue_id == q] for q in range(QUEUES)]
    lab.check(f"{name}: {len(messages)} messages come back as they were", found == wanted)
    return meter.rate(len(messages))


def judge(rows: Sequence[Row]) -> Verdict:
    """Compare how fast each takes messages, as they come and synced."""
    written = {row.name: row.figures["written"] for row in rows}
    synced = {row.name: row.figures["written, synced"] for row in rows}
    seen = "messages/s written (and with each batch synced): " + ", ".join(
        f"{name} {figure_text(written[name])} ({figure_text(synced[name])})"
        if written[name] is not None
        else f"{name} {MISSING}"
        for name in written
    )
    return verdict(seen, CLAIM, {**_parts("", written), **_parts(", synced", synced)})


def _parts(suffix: str, rate: dict[str, float | None]) -> dict[str, bool | None]:
    return {
        f"files against key-value{suffix}": _faster(rate[LOG], rate[KEY_VALUE]),
        f"key-value against relational{suffix}": _faster(rate[KEY_VALUE], rate[RELATIONAL]),
    }


def _faster(one: float | None, other: float | None) -> bool | None:
    return None if one is None or other is None else clearly_more(one, other)


EXPERIMENT: Final = Experiment(
    name="storage",
    features=("F101",),
    about="the same messages in this log, in LMDB and in SQLite",
    claim=CLAIM,
    run=run,
)
