"""A store with a timer wheel, time under the test's control: what is put in, what comes out, when.

with TimerWorld(tmp_path) as world:
    world.send(b"hello", deliver_ms=world.now + 5_000)
    world.later(5_000)
    assert world.delivered() == [b"hello"]
"""

from pathlib import Path
from types import TracebackType
from typing import Any, Self

from orbitmq.files.disk import Disk
from orbitmq.format.properties import encode_properties
from orbitmq.format.record import Record, decode_record
from orbitmq.message import TIMER_TOPIC, AppendRequest, AppendResult
from orbitmq.store.config import StoreConfig
from orbitmq.store.store import MessageStore
from orbitmq.store.timer.timer_store import TimerStore
from orbitmq.testing.fake_clock import FakeClock
from orbitmq.units import KiB

SMALL = {"segment_bytes": 256 * KiB, "cq_file_bytes": 2000, "index_slots": 64, "index_items": 256}


class TimerWorld:
    """One store directory; `reopen` and `kill` begin a new life in it."""

    def __init__(
        self,
        root: Path,
        *,
        clock: FakeClock | None = None,
        disk: Disk | None = None,
        **config: Any,
    ) -> None:
        self.clock = clock or FakeClock(1_700_000_000_400)
        self.disk = disk or Disk()
        self.config = StoreConfig(root=root, **{**SMALL, **config})
        self._open()

    def _open(self) -> None:
        self.store = MessageStore.open(
            self.config, clock=self.clock, disk=self.disk, background=False
        )
        self.timers = TimerStore.open(self.store, self.clock, self.disk)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.timers.close()
        self.store.close()

    @property
    def now(self) -> int:
        return self.clock.now_ms()

    def send(
        self, body: bytes = b"hello", *, topic: str = "Orders", queue_id: int = 0, **given: Any
    ) -> AppendResult:
        """Append a message with these properties; `deliver_ms`, `delay_ms`, `delay_s` are the timer's."""
        short = {"deliver_ms": "TIMER_DELIVER_MS", "delay_ms": "TIMER_DELAY_MS"}
        short |= {"delay_s": "TIMER_DELAY_SEC", "key": "UNIQ_KEY", "cancels": "TIMER_DEL_UNIQKEY"}
        properties = {short.get(name, name): str(value) for name, value in given.items()}
        request = AppendRequest(topic, queue_id, body, encode_properties(properties))
        return self.store.append(request)

    def work(self, enqueue_max: int = 256, deliver_max: int = 64) -> None:
        """Do everything that is due now."""
        for _ in range(10_000):
            self.store.wait_dispatched()
            if not self.timers.turn(enqueue_max, deliver_max):
                return
        raise AssertionError("there is no end of it")

    def later(self, milliseconds: int) -> None:
        self.clock.advance(milliseconds)
        self.work()

    def save(self) -> None:
        """Make everything durable, as a flush round does."""
        self.timers.flush_now()

    def reopen(self) -> None:
        """Stop in order, and start again."""
        self.timers.flush_now()
        self.timers.close()
        self.store.close()
        self._open()

    def kill(self) -> None:
        """End without saving progress, and start again; what was written is there."""
        self.timers.close()
        self.store.close()  # the commit log is whole in any case: its own tests see to that
        self._open()

    def records(self, topic: str = "Orders", queue_id: int = 0) -> list[Record]:
        self.store.wait_dispatched()
        end = self.store.max_offset(topic, queue_id)
        found: list[Record] = []
        while len(found) < end:
            got = self.store.get(topic, queue_id, len(found), 32)
            found += [decode_record(raw) for raw in got.records]
        return found

    def delivered(self, topic: str = "Orders", queue_id: int = 0) -> list[bytes]:
        return [record.body for record in self.records(topic, queue_id)]

    def in_wheel_topic(self) -> list[Record]:
        return self.records(TIMER_TOPIC)
