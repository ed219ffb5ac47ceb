"""Idempotence: handle each business key once, however often its message comes.

Messages come at least once. A producer that got no answer sends again, an acknowledgement may be lost,
and a queue that changes hands is read again from the last committed offset. Two copies of a message
have the same business key (by default its KEYS, else its unique id):

    keys = SqliteKeys("handled.db")                # or MemoryKeys()
    handle = Idempotent(charge_customer, keys)     # handle(message) calls charge_customer once per key
                                                   # AsyncIdempotent for a coroutine function

state of a key              | what `handle` does
not seen                    | calls the handler, then remembers the key; an error forgets it again
handled                     | nothing: the message counts as handled
being handled by another    | InProgressError: let the message come again later

A claim ends by itself after `claim_ms`: whoever made it may be gone. Between the handler's effect and
the note that it is done a crash is possible; where even that matters, write the key in the handler's
own database transaction and use that table as a KeyStore.
"""

import asyncio
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from enum import Enum
from pathlib import Path
from typing import Final, Generic, Protocol, TypeVar

from orbitmq.client.core.message import ReceivedMessage
from orbitmq.clock import Clock, SystemClock
from orbitmq.errors import InProgressError
from orbitmq.units import HOUR_MS, MINUTE_MS

R = TypeVar("R")

DAY_MS: Final = 24 * HOUR_MS


class KeyState(Enum):
    """What a store knows of a key."""

    CLAIMED = "CLAIMED"  # by this call: handle it
    IN_PROGRESS = "IN_PROGRESS"
    HANDLED = "HANDLED"


class KeyStore(Protocol):
    """Remembers keys. All methods are atomic, also for several users of one store."""

    def claim(self, key: str) -> KeyState:
        """Claim a key that nobody has claimed or handled; return how it stands."""

    def handled(self, key: str) -> None:
        """Remember that the key is done."""

    def release(self, key: str) -> None:
        """Give a claim back: the next one may try."""


def business_key(message: ReceivedMessage) -> str:
    """Return topic and KEYS of a message, or its unique id where it has no keys."""
    topic = message.properties.get("RETRY_TOPIC") or message.topic
    return f"{topic}:{' '.join(message.keys) or message.message_id}"


class _Once(Generic[R]):
    """A handler and the keys that are done."""

    def __init__(
        self,
        handler: Callable[[ReceivedMessage], R],
        keys: KeyStore,
        *,
        key: Callable[[ReceivedMessage], str] = business_key,
    ) -> None:
        self._handler, self._keys, self._key = handler, keys, key
        self.duplicate_count = 0

    def _is_mine(self, key: str, state: KeyState) -> bool:
        """Return whether to handle the key; False: that was done."""
        if state is KeyState.IN_PROGRESS:
            raise InProgressError(key)
        self.duplicate_count += state is KeyState.HANDLED
        return state is KeyState.CLAIMED


class Idempotent(_Once[R]):
    """A handler that handles each key once. Any thread may call it."""

    def __call__(self, message: ReceivedMessage) -> R | None:
        """Handle the message unless its key is done; return what the handler returns, else None."""
        key = self._key(message)
        if not self._is_mine(key, self._keys.claim(key)):
            return None
        try:
            result = self._handler(message)
        except BaseException:
            self._keys.release(key)
            raise
        self._keys.handled(key)
        return result


class AsyncIdempotent(_Once[Awaitable[R]], Generic[R]):
    """A coroutine function that handles each key once; the store is asked in a thread."""

    async def __call__(self, message: ReceivedMessage) -> R | None:
        """Handle the message unless its key is done; return what the handler returns, else None."""
        key = self._key(message)
        if not self._is_mine(key, await asyncio.to_thread(self._keys.claim, key)):
            return None
        try:
            result = await self._handler(message)
        except BaseException:
            self._keys.release(key)
            raise
        await asyncio.to_thread(self._keys.handled, key)
        return result


class MemoryKeys:
    """Keys of this process, the newest `count_max` of them. Any thread may use it."""

    def __init__(
        self,
        *,
        count_max: int = 1_000_000,
        keep_ms: int = DAY_MS,
        claim_ms: int = 5 * MINUTE_MS,
        clock: Clock | None = None,
    ) -> None:
        self._count_max, self._keep_ms, self._claim_ms = count_max, keep_ms, claim_ms
        self._clock: Clock = clock or SystemClock()
        self._lock = threading.Lock()  # guards the two tables
        self._claims: dict[str, float] = {}  # until when
        self._handled: OrderedDict[str, float] = OrderedDict()  # until when, oldest first

    def __len__(self) -> int:
        return len(self._handled)

    def claim(self, key: str) -> KeyState:
        now = self._clock.monotonic_ms()
        with self._lock:
            self._forget_old(now)
            if key in self._handled:
                return KeyState.HANDLED
            if self._claims.get(key, now) > now:
                return KeyState.IN_PROGRESS
            self._claims[key] = now + self._claim_ms
            return KeyState.CLAIMED

    def handled(self, key: str) -> None:
        with self._lock:
            self._claims.pop(key, None)
            self._handled[key] = self._clock.monotonic_ms() + self._keep_ms
            self._handled.move_to_end(key)
            if len(self._handled) > self._count_max:
                self._handled.popitem(last=False)

    def release(self, key: str) -> None:
        with self._lock:
            self._claims.pop(key, None)

    def _forget_old(self, now: float) -> None:
        while self._handled:
            key, until = next(iter(self._handled.items()))
            if until > now:
                return
            del self._handled[key]


class SqliteKeys:
    """Keys in a file: they outlast the process, and all processes of a machine may share them.

    Any thread may use it. Close it when done.
    """

    _TABLE: Final = (
        "CREATE TABLE IF NOT EXISTS handled_keys"
        " (key TEXT PRIMARY KEY, done INTEGER NOT NULL, until_ms INTEGER NOT NULL) WITHOUT ROWID"
    )
    _CLAIM: Final = (
        "INSERT INTO handled_keys (key, done, until_ms) VALUES (?, 0, ?)"
        " ON CONFLICT (key) DO UPDATE SET done = 0, until_ms = excluded.until_ms"
        " WHERE until_ms <= ?"
    )
    _DONE: Final = (
        "INSERT INTO handled_keys (key, done, until_ms) VALUES (?, 1, ?)"
        " ON CONFLICT (key) DO UPDATE SET done = 1, until_ms = excluded.until_ms"
    )

    def __init__(
        self,
        path: str | Path,
        *,
        keep_ms: int = 7 * DAY_MS,
        claim_ms: int = 5 * MINUTE_MS,
        clock: Clock | None = None,
    ) -> None:
        self._keep_ms, self._claim_ms = keep_ms, claim_ms
        self._clock: Clock = clock or SystemClock()
        self._lock = threading.Lock()  # guards the connection
        self._connection = sqlite3.connect(
            path, timeout=30, isolation_level=None, check_same_thread=False
        )
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=FULL")  # a note that is lost is a duplicate
        self._connection.execute(self._TABLE)

    def claim(self, key: str) -> KeyState:
        now = self._clock.now_ms()
        with self._lock:
            cursor = self._connection.execute(self._CLAIM, (key, now + self._claim_ms, now))
            if cursor.rowcount == 1:
                return KeyState.CLAIMED
            query = "SELECT done FROM handled_keys WHERE key = ?"
            row = self._connection.execute(query, (key,)).fetchone()
        return KeyState.HANDLED if row is not None and row[0] else KeyState.IN_PROGRESS

    def handled(self, key: str) -> None:
        with self._lock:
            self._connection.execute(self._DONE, (key, self._clock.now_ms() + self._keep_ms))

    def release(self, key: str) -> None:
        with self._lock:
            self._connection.execute("DELETE FROM handled_keys WHERE key = ? AND done = 0", (key,))

    def forget_old(self) -> int:
        """Delete what need not be remembered any more; return how many keys."""
        with self._lock:
            query = "DELETE FROM handled_keys WHERE until_ms <= ?"
            return self._connection.execute(query, (self._clock.now_ms(),)).rowcount

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    def __enter__(self) -> "SqliteKeys":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
