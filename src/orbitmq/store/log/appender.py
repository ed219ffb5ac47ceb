"""The write side of the commit log: queue offsets, store time and bytes, under one lock.

Two ways: messages that kernels found in frames (`append_sends`) or in records of timer messages
(`append_due`), and one for all others: the rules, one encoder (`record_parts`), the write head. An ordinary
message (`is_ordinary`) of a queue and a host that passed the rules before needs no second look at them.

The append lock guards everything here that changes. Between taking the store time and writing the
record nothing may wait, except for a new segment.
"""

import struct
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import numpy as np

from orbitmq.clock import Clock
from orbitmq.errors import FormatError, StoreClosedError, StoreError
from orbitmq.format.kernels import Kernels
from orbitmq.format.ordinary import (
    is_ordinary,
    is_ordinary_when_committed,
    is_ordinary_when_due,
)
from orbitmq.format.record import FIXED, MAGIC_V1, record_parts
from orbitmq.message import (
    TIMER_TOPIC,
    AppendRequest,
    AppendResult,
    AppendStatus,
    Host,
    SysFlag,
)
from orbitmq.store.config import Role, StoreConfig
from orbitmq.store.flags import RunningFlags
from orbitmq.store.log.append_encode import ClientBatch, SingleRecord
from orbitmq.store.log.append_rules import AppendRules, Prepared, TimerGate, illegal, refuse
from orbitmq.store.log.queue_offsets import QueueOffsets, Route
from orbitmq.store.log.run import Run, TimedRun
from orbitmq.store.log.write_head import WriteHead
from orbitmq.store.statistics import Counters

_PUT_OK: Final = AppendStatus.PUT_OK
_new: Final = tuple.__new__  # a NamedTuple's own constructor takes twice as long

_SAMPLE_MASK: Final = 63  # one append in 64 is timed
_TIMED: Final = b"TIMER_"
_HOSTS_MAX: Final = 100_000  # remembered producers; forgotten when there are more
_TOPICS_MAX: Final = 100_000
_BUSY_MS_MAX: Final = 10_000_000  # a lock held for longer is no lock but a clock that was set


class Appender:
    """Appends records. Any thread may call it; the append lock puts them in order."""

    def __init__(
        self,
        config: StoreConfig,
        head: WriteHead,
        rules: AppendRules,
        *,
        clock: Clock,
        kernels: Kernels,
        flags: RunningFlags,
        counters: Counters,
    ) -> None:
        self.offsets = QueueOffsets()
        self.kernels = kernels
        self.closed = False
        self.last_store_ms = 0
        self._config, self._rules, self._flags, self._counters = config, rules, flags, counters
        self._head = head
        self._now_ms = clock.now_ms
        self._append_lock = threading.Lock()
        self._lock_since_ms = 0  # when the holder of the append lock got it; 0: nobody holds it
        self._is_replica = config.role is Role.REPLICA
        self._body_max = config.message_bytes_max
        # Queues and hosts that passed the rules; of a store whose records are ordinary themselves.
        self._routes = self.offsets.routes
        self._hosts: dict[Host, bytes] = {}
        self._timed_topics: set[str] = set()  # those for which messages have waited
        own = config.store_host
        self._own_host = own.packed()
        self._remembers = len(own.address) == 4 and not config.property_crc

    def use(self, config: StoreConfig) -> None:
        """Follow these settings from the next append on."""
        with self._append_lock:
            self._config, self._body_max = config, config.message_bytes_max
            self._rules.use(config)

    def use_timer(self, gate: TimerGate) -> None:
        """Have messages rewritten that ask for a delivery time."""
        with self._append_lock:
            self._rules.timer = gate

    def resume(self, end_offset: int, last_store_ms: int) -> None:
        """Go on writing at `end_offset`, where recovery found the end of the log.

        Store times go on from `last_store_ms`: recovery tells a record from stale bytes by its store
        time, so it must never fall, even if the clock does.
        """
        with self._append_lock:
            self.last_store_ms = max(self.last_store_ms, last_store_ms)
            self._head.resume(end_offset)

    def close(self) -> None:
        """Refuse appends from now on; those that are under way are finished."""
        with self._append_lock:
            self.closed = True
            self._head.stop()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the append lock, for who writes the log of a replica. StoreClosedError: it is closed."""
        with self._append_lock:
            if self.closed:
                raise StoreClosedError(self._config.root, "the store is closed", "Open it again.")
            yield

    def remove_topic(self, topic: str) -> None:
        with self._append_lock:
            self.offsets.remove_topic(topic)

    # Messages

    def append_one(self, request: AppendRequest) -> AppendResult:
        """Append one message; the result says where it went or why it was refused.

        Returns as soon as the bytes are in the log; waiting for the disk is the store's business.
        """
        counters = self._counters
        started = 0 if counters.appended_messages & _SAMPLE_MASK else time.perf_counter_ns()
        if self._lock_since_ms or self.closed or self._is_replica or not self._flags.writable:
            refusal = self._refusal(request)
            if refusal is not None:
                return self._refused(refusal)
        results: list[AppendResult] = []
        with self._append_lock:
            store_ms = self._hold()
            try:
                if self._append_ordinary((request,), results, store_ms) is not None:
                    return self._append_single(request, store_ms)
            except StoreError as error:
                return self._refused(_unwritten(error))
            finally:
                self._lock_since_ms = 0
        if started:
            counters.append_time.add(time.perf_counter_ns() - started)
        return results[0]

    def append_many(self, requests: Sequence[AppendRequest]) -> list[AppendResult]:
        """Append messages in this order; one result for each. A refused one does not stop the rest.

        Neighbours in one segment are written by one copy; a killed process leaves the first few, whole.
        """
        started = time.perf_counter_ns()
        refusal = self._unavailable() or self._busy_refusal()
        if refusal is not None:
            return [self._refused(self._refusal(request) or refusal) for request in requests]
        results: list[AppendResult] = []
        with self._append_lock:
            store_ms = self._hold()
            left = iter(requests)
            try:
                while (special := self._append_ordinary(left, results, store_ms)) is not None:
                    results.append(self._append_single(special, store_ms))
                    store_ms = max(store_ms, self.last_store_ms)
            except StoreError as error:
                # Which of them are whole in the log is not known; nobody may hear that all is well.
                results = [self._refused(_unwritten(error)) for _ in requests]
            finally:
                self._lock_since_ms = 0
        elapsed_ns = time.perf_counter_ns() - started
        self._counters.append_time.add(elapsed_ns // max(1, len(results)))
        return results

    # Below, up to the sends: only with the append lock held

    def _append_ordinary(
        self, requests: Iterable[AppendRequest], results: list[AppendResult], store_ms: int
    ) -> AppendRequest | None:
        """Append ordinary messages of known queues by one copy; return the first that is none.

        None: all were appended. One that needs another segment is returned as well.
        """
        head, own_host, body_max = self._head, self._own_host, self._body_max
        base, position, limit = head.base, head.position, head.limit
        routes, host, packed = self._routes, None, None
        parts: list[bytes] = []
        prefixes: list[tuple[int, int, int]] = []
        try:
            for request in requests:
                body, properties, queue_id = request.body, request.properties, request.queue_id
                sys_flag, route = request.sys_flag, routes.get((request.topic, queue_id))
                if host is not request.born_host:
                    host = request.born_host
                    packed = self._hosts.get(host)
                if (
                    route is None
                    or not route.tail
                    or packed is None
                    or request.store_host is not None
                    or body is None
                    or (length := len(body)) > body_max
                    or not (
                        is_ordinary(sys_flag, properties)
                        or (request.due and is_ordinary_when_due(sys_flag, properties))
                        or (sys_flag and is_ordinary_when_committed(sys_flag, properties))
                    )
                    or position + (size := route.fixed_bytes + length + len(properties)) > limit
                ):
                    return request
                number, offset = route.next_offset, base + position
                # Size and magic are zero for now: they come last, see WriteHead.
                parts += record_parts(
                    request,
                    FIXED,
                    0,
                    0,
                    sys_flag,
                    number,
                    offset,
                    packed,
                    store_ms,
                    own_host,
                    route.tail,
                    properties,
                )
                prefixes.append((position, size, route.magic))
                route.next_offset = number + 1
                position += size
                stored = (_PUT_OK, offset, size, number, store_ms, queue_id, "")
                results.append(_new(AppendResult, stored))
        except struct.error:
            return request  # a number does not fit its field: `_append_single` says so
        finally:
            # Also when a request turns out to be no request: what was numbered must be in the log.
            if parts:
                head.write(b"".join(parts), prefixes)
                self.last_store_ms = store_ms  # last: a flusher reads it, then how far is written
                self._counters.appended_messages += len(prefixes)
        return None

    def _append_single(self, request: AppendRequest, store_ms: int) -> AppendResult:
        """Append a message with every check: the first of its queue, delayed, an inner batch, IPv6."""
        prepared = self._rules.prepare(request)
        if isinstance(prepared, AppendResult):
            return self._refused(prepared)
        if _TIMED in request.properties:
            # If it is due, that was decided later than the lock was taken.
            store_ms = max(store_ms, self._now_ms())
        self._note_timed(request, prepared)
        request, light, head = prepared.request, prepared.light_queues, self._head
        if light and not self.offsets.light_room(light, self._config.lmq_count_max):
            reason = f"there are already {self._config.lmq_count_max} light queues"
            return self._refused(refuse(AppendStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED, reason))
        route = self.offsets.route(request.topic, request.queue_id)
        queue_offset = route.next_offset if prepared.advance else 0
        light_offsets = tuple(self.offsets.next_offset(*queue) for queue in light)
        config = self._config
        try:
            record = SingleRecord(
                prepared,
                config.store_host,
                queue_offset,
                light_offsets,
                property_crc=config.property_crc,
            )
        except FormatError as error:
            return self._refused(refuse(AppendStatus.PROPERTIES_SIZE_EXCEEDED, str(error)))
        if head.position + record.size > head.limit:
            refusal = self._make_room(record.size)
            if refusal is not None:
                return self._refused(refusal)
        log_offset = head.base + head.position
        try:
            encoded = record.encode(log_offset=log_offset, store_ms=store_ms)
        except (struct.error, OverflowError) as error:
            return self._refused(_unfit(error))
        head.write_whole(encoded, (record.size,))
        route.next_offset += prepared.advance
        for queue in light:
            self.offsets.route(*queue).next_offset += 1
        self._remember(prepared, route)
        self.last_store_ms = store_ms
        self._counters.appended_messages += 1
        return AppendResult(
            _PUT_OK, log_offset, record.size, queue_offset, store_ms, request.queue_id
        )

    # The sends of one read

    def append_sends(self, run: TimedRun, born_host: Host) -> bool:
        """Append the messages of all sends of a run.

        False if one of them needs more than a look, or a new segment: nothing was done then, and
        `append_many` does it, or refuses it.
        """
        hosts = self._hosts.get(born_host)
        if hosts is None or (run.waiting and not self._may_wait(run)):
            return False
        return self._append_run(run, hosts + self._own_host)

    def _may_wait(self, run: TimedRun) -> bool:
        """Tell whether all messages of a run that ask for a time may wait for it; if so, say where."""
        if any(queue.waiting and queue.topic not in self._timed_topics for queue in run.queues):
            return False
        slots = self._rules.slots(*run.times)
        if slots is not None:
            run.wait_in(slots)
        return slots is not None

    def append_due(self, run: Run) -> bool:
        """Append messages whose time has come, with the producers that their records name.

        False: nothing was done, as with `append_sends`.
        """
        return self._append_run(run, self._own_host)

    def _append_run(self, run: Run, hosts: bytes) -> bool:
        if self._unavailable() or self._busy_refusal():
            return False
        started = time.perf_counter_ns()
        with self._append_lock:
            store_ms = self._hold()
            try:
                if not self._write_run(run, hosts, store_ms):
                    return False
            except StoreError:
                return False  # `append_many` finds that the store has failed, and says so
            finally:
                self._lock_since_ms = 0
        self._counters.append_time.add((time.perf_counter_ns() - started) // run.count)
        return True

    def _write_run(self, run: Run, hosts: bytes, store_ms: int) -> bool:
        head = self._head
        size, log_offset = run.record_bytes, head.base + head.position
        if not head.fits(size):
            return False
        goals = self._goals(run)
        if goals is None:
            return False
        next_offsets = [route.next_offset for route, _ in goals]
        if run.waiting:
            run.waiting_offset = next_offsets.pop()
        if head.by_file:
            records = np.empty(size, dtype=np.uint8)
            run.write(records, 0, log_offset, store_ms, hosts, next_offsets)
            run.publish()
            head.write_by_file(records.data)
        else:
            target = np.frombuffer(head.target, dtype=np.uint8)  # type: ignore[arg-type]
            run.write(target, head.position, log_offset, store_ms, hosts, next_offsets)
            run.publish()
            head.advance(size)
        for route, count in goals:
            route.next_offset += count
            self._counters.appended_messages += count
        self.last_store_ms = store_ms
        return True

    def _goals(self, run: Run) -> list[tuple[Route, int]] | None:
        """Return the queues of a run, last that of those who wait, and how many messages each gets.

        None: one of them had no message yet.
        """
        queues = [
            (queue.topic, queue.queue_id, queue.messages - queue.waiting) for queue in run.queues
        ]
        if run.waiting:
            queues.append((TIMER_TOPIC, 0, run.waiting))
        goals = []
        for topic, queue_id, count in queues:
            # If all messages wait for it, a queue needs no route yet.
            route = self._routes.get((topic, queue_id)) if count else Route()
            if route is None or (count and route.magic != MAGIC_V1):
                return None
            goals.append((route, count))
        return goals

    # A client batch

    def append_client_batch(self, request: AppendRequest) -> list[AppendResult]:
        """Append the messages of a batch body as one unit; one result for each, or one refusal.

        The request's properties are added to each message's own. All records go into one segment.
        """
        prepared = self._prepare_client_batch(request)
        if isinstance(prepared, AppendResult):
            return [self._refused(prepared)]
        try:
            batch = ClientBatch(
                prepared,
                self.kernels,
                self._config.store_host,
                property_crc=self._config.property_crc,
            )
        except FormatError as error:
            return [self._refused(illegal(f"the batch cannot be taken apart: {error}"))]
        except OverflowError as error:
            return [self._refused(_unfit(error))]
        if not batch.sizes:
            return [self._refused(illegal("the batch holds no message"))]
        with self._append_lock:
            store_ms = self._hold()
            try:
                return self._append_batch_records(prepared, batch, store_ms)
            except StoreError as error:
                return [self._refused(_unwritten(error))]
            finally:
                self._lock_since_ms = 0

    def _prepare_client_batch(self, request: AppendRequest) -> Prepared | AppendResult:
        refusal = self._refusal(request)
        if refusal is not None:
            return refusal
        prepared = self._rules.prepare(request)
        if isinstance(prepared, AppendResult):
            return prepared
        if request.sys_flag & SysFlag.TRANSACTION:
            return illegal("a client batch cannot be part of a transaction")
        if prepared.request.topic != request.topic:
            return illegal("a client batch cannot be delayed")
        if prepared.inner_batch or prepared.light_queues:
            return illegal("a client batch cannot be an inner batch or go to light queues")
        return prepared

    def _append_batch_records(
        self, prepared: Prepared, batch: ClientBatch, store_ms: int
    ) -> list[AppendResult]:
        request, head = prepared.request, self._head
        if head.position + batch.total_bytes > head.limit:
            refusal = self._make_room(batch.total_bytes)
            if refusal is not None:
                return [self._refused(refusal)]
        route = self.offsets.route(request.topic, request.queue_id)
        queue_offset = route.next_offset
        log_offset = head.base + head.position
        records = batch.encode(log_offset=log_offset, queue_offset=queue_offset, store_ms=store_ms)
        head.write_whole(records, batch.sizes)
        route.next_offset += len(batch.sizes)
        self._remember(prepared, route)
        self.last_store_ms = store_ms
        self._counters.appended_messages += len(batch.sizes)
        results = []
        for number, size in enumerate(batch.sizes):
            at = queue_offset + number
            results.append(AppendResult(_PUT_OK, log_offset, size, at, store_ms, request.queue_id))
            log_offset += size
        return results

    # Below: only with the append lock held

    def _hold(self) -> int:
        """Note since when the lock is held; return the time of what is appended, which never falls."""
        now_ms = self._lock_since_ms = self._now_ms()
        return now_ms if now_ms > self.last_store_ms else self.last_store_ms

    def _make_room(self, size: int) -> AppendResult | None:
        return self._unavailable() if self.closed else self._head.make_room(size)

    # Refusals

    def _refusal(self, request: AppendRequest) -> AppendResult | None:
        """Return why nothing is taken now: steps 1 to 4 of the rules, in their order."""
        unavailable = self._unavailable()
        if unavailable is not None:
            return unavailable
        form = self._rules.topic_form(request.topic)
        if isinstance(form, AppendResult):
            return form
        body: object = request.body
        if body is None:
            return illegal("the message has no body")
        return self._busy_refusal()

    @property
    def lock_held_ms(self) -> int:
        """How long the append that is under way has taken so far."""
        since = self._lock_since_ms
        return self._now_ms() - since if since else 0

    def _busy_refusal(self) -> AppendResult | None:
        held = self.lock_held_ms
        if not self._config.page_cache_busy_ms < held < _BUSY_MS_MAX:
            return None
        reason = f"another append has been waiting for the disk for {held} ms"
        return refuse(AppendStatus.OS_PAGE_CACHE_BUSY, reason)

    def _unavailable(self) -> AppendResult | None:
        if self.closed:
            return refuse(AppendStatus.SERVICE_NOT_AVAILABLE, "the store is closed")
        if self._is_replica:
            reason = "this store is a replica; send to the primary"
            return refuse(AppendStatus.SERVICE_NOT_AVAILABLE, reason)
        if not self._flags.writable:
            return refuse(AppendStatus.SERVICE_NOT_AVAILABLE, self._flags.refusal())
        return None

    def _refused(self, refusal: AppendResult) -> AppendResult:
        self._counters.refused_messages += 1
        self._counters.busy_messages += refusal.status is AppendStatus.OS_PAGE_CACHE_BUSY
        return refusal

    def _note_timed(self, request: AppendRequest, prepared: Prepared) -> None:
        """Let the next message that waits for this topic do without the rules, too."""
        if prepared.request.topic != request.topic and prepared.request.topic == TIMER_TOPIC:
            if len(self._timed_topics) >= _TOPICS_MAX:
                self._timed_topics.clear()
            self._timed_topics.add(request.topic)

    def _remember(self, prepared: Prepared, route: Route) -> None:
        """Let the next message of this queue and host do without the rules, if it is ordinary."""
        if not self._remembers:
            return
        form, born_host = prepared.topic, prepared.request.born_host
        route.tail, route.magic, route.fixed_bytes = form
        if len(born_host.address) == 4:
            if len(self._hosts) >= _HOSTS_MAX:
                self._hosts.clear()
            self._hosts[born_host] = born_host.packed()


def _unwritten(error: StoreError) -> AppendResult:
    return refuse(AppendStatus.SERVICE_NOT_AVAILABLE, f"the log could not be written: {error}")


def _unfit(error: Exception) -> AppendResult:
    return illegal(f"a number of the message does not fit its field: {error}")
