"""What a broker counts: messages and bytes per topic and group, and the rates that tools show of them.

Counting is on the path of every send and pull, so it is one look into a dict and a few additions. Rates
come from samples: the owner calls `tick` once a second.

window | samples            | as RocketMQ's
minute | every 10 s, 7 kept | statsMinute
hour   | every 10 min, 7    | statsHour
day    | every hour, 25     | statsDay
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from orbitmq.clock import Clock
from orbitmq.store.statistics import StoreStatistics
from orbitmq.units import HOUR_MS, MINUTE_MS, SECOND_MS

STORE_SAMPLES_MAX: Final = 601  # ten minutes of seconds, and the one before


class Window(NamedTuple):
    """How often a counter is sampled and how many samples are kept."""

    period_ms: int
    samples_max: int


MINUTE: Final = Window(10 * SECOND_MS, 7)
HOUR: Final = Window(10 * MINUTE_MS, 7)
DAY: Final = Window(HOUR_MS, 25)
_WINDOWS: Final = (MINUTE, HOUR, DAY)


class Rate(NamedTuple):
    """What came in within a window: how much, per second, and per call."""

    sum: int = 0
    tps: float = 0.0
    average: float = 0.0


class _Sample(NamedTuple):
    at_ms: float
    messages: int
    size: int
    calls: int


class Counter:
    """One thing that is counted: messages, bytes, and calls that brought them."""

    __slots__ = ("_samples", "calls", "count", "size")

    def __init__(self) -> None:
        self.count = self.size = self.calls = 0
        self._samples: dict[Window, deque[_Sample]] = {}

    def sample(self, window: Window, at_ms: float) -> None:
        """Remember how far the counter is."""
        samples = self._samples.get(window)
        if samples is None:
            samples = self._samples[window] = deque(maxlen=window.samples_max)
            # A counter came into being since the last sample; then it was still at zero.
            samples.append(_Sample(at_ms - window.period_ms, 0, 0, 0))
        samples.append(_Sample(at_ms, self.count, self.size, self.calls))

    def rate(self, window: Window, *, of_bytes: bool = False) -> Rate:
        """Return what came in within a window; zero before its first sample."""
        samples = self._samples.get(window)
        if not samples:
            return Rate()
        first, last = samples[0], samples[-1]
        total = last.size - first.size if of_bytes else last.messages - first.messages
        elapsed, calls = last.at_ms - first.at_ms, last.calls - first.calls
        tps = total * SECOND_MS / elapsed if elapsed > 0 else 0.0
        return Rate(total, tps, total / calls if calls > 0 else 0.0)


class StoreSample(NamedTuple):
    """The store's counters at one moment."""

    at_ms: float
    put: int
    found: int
    missed: int
    transferred: int


class Totals(NamedTuple):
    """Messages since the start, as they were at the last two midnights and are now."""

    yesterday_morning: int = 0
    today_morning: int = 0
    now: int = 0


class BrokerStatistics:
    """Counters of one broker. Only the broker's event loop uses it."""

    def __init__(
        self,
        clock: Clock,
        cluster: str,
        is_system: Callable[[str], bool] = lambda topic: False,
    ) -> None:
        self._clock, self._cluster, self._is_system = clock, cluster, is_system
        self._puts: dict[str, Counter] = {}
        self._gets: dict[tuple[str, str], Counter] = {}
        self._send_backs: dict[tuple[str, str], Counter] = {}
        self._broker_put, self._broker_get = Counter(), Counter()
        self._retired_put = self._retired_get = 0
        self._store: deque[StoreSample] = deque(maxlen=STORE_SAMPLES_MAX)
        self._due = dict.fromkeys(_WINDOWS, clock.monotonic_ms())
        self._today = self._local_day()
        self._put_mornings = self._get_mornings = (0, 0)

    # Counting

    def on_put(self, topic: str, count: int, size: int) -> None:
        """Count messages that were stored by one send."""
        counter = self._puts.get(topic)
        if counter is None:
            counter = self._puts[topic] = Counter()
        counter.count += count
        counter.size += size
        counter.calls += 1

    def on_get(self, topic: str, group: str, count: int, size: int) -> None:
        """Count messages that one pull of a group was given."""
        counter = self._gets.get((topic, group))
        if counter is None:
            counter = self._gets[topic, group] = Counter()
        counter.count += count
        counter.size += size
        counter.calls += 1

    def on_send_back(self, group: str, topic: str) -> None:
        """Count a message that a consumer gave back."""
        counter = self._send_backs.setdefault((topic, group), Counter())
        counter.count += 1
        counter.calls += 1

    # Forgetting what is gone

    def forget_topic(self, topic: str) -> None:
        """Drop the counters of a deleted topic; the broker's totals keep what they counted."""
        if (put := self._puts.pop(topic, None)) and not self._is_system(topic):
            self._retired_put += put.count
        self._forget_pairs(lambda pair: pair[0] == topic)

    def forget_group(self, group: str) -> None:
        """Drop the counters of a deleted group."""
        self._forget_pairs(lambda pair: pair[1] == group)

    def _forget_pairs(self, gone: Callable[[tuple[str, str]], bool]) -> None:
        for pair in [pair for pair in self._gets if gone(pair)]:
            counter = self._gets.pop(pair)
            if not self._is_system(pair[0]):
                self._retired_get += counter.count
        for pair in [pair for pair in self._send_backs if gone(pair)]:
            del self._send_backs[pair]

    # Sampling

    def tick(self, store: StoreStatistics | None = None) -> None:
        """Take the samples that are due; to be called once a second."""
        now = self._clock.monotonic_ms()
        if store is not None:
            counts = store.appended_messages, store.get_found, store.get_missed, store.got_messages
            self._store.append(StoreSample(now, *counts))
        for window in _WINDOWS:
            if now >= self._due[window]:
                self._due[window] = now + window.period_ms - _TICK_EARLY_MS
                self._sample(window, now)
        if (today := self._local_day()) != self._today:
            self._today = today
            self._put_mornings = (self._put_mornings[1], self._put_total())
            self._get_mornings = (self._get_mornings[1], self._get_total())

    def _sample(self, window: Window, now: float) -> None:
        _add_up(self._broker_put, self._puts.values(), self._retired_put)
        _add_up(self._broker_get, self._gets.values(), self._retired_get)
        for counter in self._all():
            counter.sample(window, now)

    def _all(self) -> Iterator[Counter]:
        yield self._broker_put
        yield self._broker_get
        yield from self._puts.values()
        yield from self._gets.values()
        yield from self._send_backs.values()

    def _local_day(self) -> tuple[int, int]:
        local = time.localtime(self._clock.now_ms() / SECOND_MS)
        return local.tm_year, local.tm_yday

    # Reading

    def put_tps(self, topic: str) -> float:
        """Return messages per second that a topic was sent, within the last minute."""
        counter = self._puts.get(topic)
        return counter.rate(MINUTE).tps if counter else 0.0

    def get_tps(self, topic: str, group: str) -> float:
        """Return messages per second that a group was given of a topic, within the last minute."""
        counter = self._gets.get((topic, group))
        return counter.rate(MINUTE).tps if counter else 0.0

    def rates(self, name: str, key: str) -> tuple[Rate, Rate, Rate] | None:
        """Return minute, hour and day of an item by RocketMQ's names; None if there is no such item."""
        counter = self._find(name, key)
        if counter is None:
            return None
        of_bytes = name.endswith("_SIZE")
        minute, hour, day = (counter.rate(window, of_bytes=of_bytes) for window in _WINDOWS)
        return minute, hour, day

    def _find(self, name: str, key: str) -> Counter | None:
        match name:
            case "TOPIC_PUT_NUMS" | "TOPIC_PUT_SIZE":
                return self._puts.get(key)
            case "GROUP_GET_NUMS" | "GROUP_GET_SIZE":
                return self._gets.get(_pair(key))
            case "SNDBCK_PUT_NUMS":
                return self._send_backs.get(_pair(key))
            case "BROKER_PUT_NUMS" if key == self._cluster:
                return self._broker_put
            case "BROKER_GET_NUMS" if key == self._cluster:
                return self._broker_get
        return None

    def put_totals(self) -> Totals:
        """Return messages sent to topics of users."""
        return Totals(*self._put_mornings, self._put_total())

    def get_totals(self) -> Totals:
        """Return messages of users' topics given to consumers."""
        return Totals(*self._get_mornings, self._get_total())

    def _put_total(self) -> int:
        counted = (c.count for topic, c in self._puts.items() if not self._is_system(topic))
        return self._retired_put + sum(counted)

    def _get_total(self) -> int:
        counted = (c.count for pair, c in self._gets.items() if not self._is_system(pair[0]))
        return self._retired_get + sum(counted)

    def store_samples(self, seconds: int) -> tuple[StoreSample, StoreSample] | None:
        """Return the store's counters so many seconds ago and now; None if that was before the start."""
        if len(self._store) <= seconds:
            return None
        return self._store[-1 - seconds], self._store[-1]


_TICK_EARLY_MS: Final = 500  # a tick that comes a little early still takes the sample


def _add_up(total: Counter, counters: Iterable[Counter], retired: int) -> None:
    count, size, calls = retired, 0, 0
    for counter in counters:
        count += counter.count
        size += counter.size
        calls += counter.calls
    total.count, total.size, total.calls = max(total.count, count), size, max(total.calls, calls)


def _pair(key: str) -> tuple[str, str]:
    topic, _, group = key.partition("@")
    return topic, group
