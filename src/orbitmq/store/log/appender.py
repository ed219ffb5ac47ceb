"""The write side of the commit log: queue offsets, store time and bytes, under one lock.

Most messages take the fast path of `append_one` and `append_many`: nothing about them needs more than a
look. All others are prepared by the rules and encoded with care.

The append lock guards everything here that changes. Between taking the store time and writing the
record nothing may wait, except for a new segment.
"""

import struct
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from orbitmq.clock import Clock
from orbitmq.errors import FormatError, StoreError
from orbitmq.format.crc import CRC_MASK, crc32
from orbitmq.format.kernels import Kernels
from orbitmq.format.record import FIXED, MAGIC_V1
from orbitmq.message import AppendRequest, AppendResult, AppendStatus, Host, SysFlag
from orbitmq.store.config import Role, StoreConfig
from orbitmq.store.flags import RunningFlags
from orbitmq.store.log.append_encode import ClientBatch, encode_prepared, unfit
from orbitmq.store.log.append_rules import AppendRules, Prepared, has_zeros, illegal, refuse
from orbitmq.store.log.queue_offsets import QueueOffsets, Route
from orbitmq.store.log.write_head import PREFIX, PREFIX_BYTES, WriteHead
from orbitmq.store.statistics import Counters

if TYPE_CHECKING:
    from orbitmq.format.compiled.sends import SendRun  # imports the compiler

_REST: Final = struct.Struct(">iiiqqiq8sq8siqi")  # the fields between magic and body; hosts IPv4
_STAMPED: Final = struct.Struct(">iiiiiqqiq8s16siqi")  # store time and store host as one
assert PREFIX_BYTES + _REST.size == _STAMPED.size == FIXED.size

_PUT_OK: Final = AppendStatus.PUT_OK
_new: Final = tuple.__new__  # a NamedTuple's own constructor takes twice as long

# Transaction type, IPv6 hosts, unwrap, inner batch: such messages do not take the fast path.
_SPECIAL_FLAGS: Final = 0xFC
_PROPERTIES_FAST_MAX: Final = 32767
_PROPERTIES_SHORT: Final = 500  # only longer ones are looked at for length and rows of zeros
_SAMPLE_MASK: Final = 63  # one append in 64 is timed
_HOSTS_MAX: Final = 100_000  # remembered producers; forgotten when there are more
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
        # What the fast path knows already.
        self._routes = self.offsets.routes
        self._hosts: dict[Host, bytes] = {}
        own = config.store_host
        self._own_host = own.packed()
        self._fast = len(own.address) == 4 and not config.property_crc

    def use(self, config: StoreConfig) -> None:
        """Follow these settings from the next append on."""
        with self._append_lock:
            self._config, self._body_max = config, config.message_bytes_max
            self._rules.use(config)

    def resume(self, end_offset: int, last_store_ms: int) -> None:
        """Go on writing at `end_offset`, where recovery found the end of the log.

        Store times go on from `last_store_ms`: recovery tells a record from stale bytes of an earlier
        life of a segment by its store time, so it must never fall, even if the clock does.
        """
        with self._append_lock:
            self.last_store_ms = max(self.last_store_ms, last_store_ms)
            self._head.resume(end_offset)

    def close(self) -> None:
        """Refuse appends from now on; those that are under way are finished."""
        with self._append_lock:
            self.closed = True
            self._head.stop()

    def remove_topic(self, topic: str) -> None:
        with self._append_lock:
            self.offsets.remove_topic(topic)

    # One message

    def append_one(self, request: AppendRequest) -> AppendResult:
        """Append one message; the result says where it went or why it was refused.

        Returns as soon as the bytes are in the log; waiting for the disk is the store's business.
        """
        counters = self._counters
        started = 0 if counters.appended_messages & _SAMPLE_MASK else time.perf_counter_ns()
        topic, properties, body = request.topic, request.properties, request.body
        sys_flag, queue_id = request.sys_flag, request.queue_id
        route = self._routes.get((topic, queue_id))
        born_host = self._hosts.get(request.born_host)
        # Searching text is three times as fast as searching bytes.
        names = properties.decode("latin-1")
        if (
            route is None
            or not route.tail
            or born_host is None
            or sys_flag & _SPECIAL_FLAGS
            or request.store_host is not None
            or "DELAY\x01" in names
            or "ER_" in names  # INNER_..., TIMER_...
            or names.endswith("\0")
            or (len(properties) > _PROPERTIES_SHORT and _needs_care(properties))
            or body is None
            or len(body) > self._body_max
            or not self._flags.writable
            or (self._lock_since_ms and self._busy_refusal() is not None)
        ):
            return self._append_with_care(request)
        size = route.fixed_bytes + len(body) + len(properties)
        checksum = crc32(body) & CRC_MASK
        head = self._head
        with self._append_lock:
            store_ms = self._lock_since_ms = self._now_ms()
            try:
                if store_ms < self.last_store_ms:  # noqa: PLR1730  (a third of the cost of max)
                    store_ms = self.last_store_ms
                position = head.position
                end = position + size
                if end > head.limit:
                    refusal = self._make_room(size)
                    if refusal is not None:
                        return self._refused(refusal)
                    position = head.position
                    end = position + size
                queue_offset = route.next_offset
                log_offset = head.base + position
                rest = _REST.pack(
                    checksum,
                    queue_id,
                    request.flag,
                    queue_offset,
                    log_offset,
                    sys_flag,
                    request.born_ms,
                    born_host,
                    store_ms,
                    self._own_host,
                    request.reconsume_times,
                    request.prepared_offset,
                    len(body),
                )
                parts = (rest, body, route.tail, len(properties).to_bytes(2, "big"), properties)
                if head.by_file:
                    head.write_shown(b"".join((PREFIX.pack(size, route.magic), *parts)))
                else:
                    target = head.target
                    assert target is not None
                    target[position + PREFIX_BYTES : end] = b"".join(parts)
                    PREFIX.pack_into(target, position, size, route.magic)
                    head.position = head.segment.written = end  # type: ignore[union-attr]
                    head.written_offset = log_offset + size
                route.next_offset = queue_offset + 1
                self.last_store_ms = store_ms  # last: a flusher reads it, then how far is written
                counters.appended_messages += 1
            except struct.error as error:
                return self._refused(unfit(error))
            except StoreError as error:
                return self._refused(_unwritten(error))
            finally:
                self._lock_since_ms = 0
        if started:
            counters.append_time.add(time.perf_counter_ns() - started)
        return _new(AppendResult, (_PUT_OK, log_offset, size, queue_offset, store_ms, queue_id, ""))

    def _append_with_care(self, request: AppendRequest) -> AppendResult:
        """Append a message that needs every check: the first of its topic, delayed, a batch, IPv6."""
        refusal = self._refusal(request)
        if refusal is not None:
            return self._refused(refusal)
        prepared = self._rules.prepare(request)
        if isinstance(prepared, AppendResult):
            return self._refused(prepared)
        with self._append_lock:
            self._lock_since_ms = self._now_ms()
            try:
                return self._append_prepared(prepared, self._store_ms())
            except StoreError as error:
                return self._refused(_unwritten(error))
            finally:
                self._lock_since_ms = 0

    def _append_prepared(self, prepared: Prepared, store_ms: int) -> AppendResult:
        request, light, head = prepared.request, prepared.light_queues, self._head
        if light and not self.offsets.light_room(light, self._config.lmq_count_max):
            reason = f"there are already {self._config.lmq_count_max} light queues"
            return self._refused(refuse(AppendStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED, reason))
        route = self.offsets.route(request.topic, request.queue_id)
        queue_offset = route.next_offset if prepared.advance else 0
        light_offsets = tuple(self.offsets.next_offset(*queue) for queue in light)

        def encode() -> bytes | AppendResult:
            return encode_prepared(
                prepared,
                log_offset=head.base + head.position,
                queue_offset=queue_offset,
                store_ms=store_ms,
                own_host=self._config.store_host,
                light_offsets=light_offsets,
                property_crc=self._config.property_crc,
            )

        record = encode()
        if isinstance(record, AppendResult):
            return self._refused(record)
        size = len(record)
        if head.position + size > head.limit:
            refusal = self._make_room(size)
            if refusal is not None:
                return self._refused(refusal)
            again = encode()  # it starts elsewhere now, and says so
            assert isinstance(again, bytes)
            record = again
        log_offset = head.base + head.position
        head.write(record)
        route.next_offset += prepared.advance
        for queue in light:
            self.offsets.route(*queue).next_offset += 1
        self._remember(prepared, route)
        self.last_store_ms = store_ms
        self._counters.appended_messages += 1
        return AppendResult(_PUT_OK, log_offset, size, queue_offset, store_ms, request.queue_id)

    # Many messages

    def append_many(self, requests: Sequence[AppendRequest]) -> list[AppendResult]:
        """Append messages in this order; one result for each. A refused one does not stop the rest.

        Neighbours in one segment are written by one copy; a killed process leaves the first few, whole.
        """
        started = time.perf_counter_ns()
        refusal = self._unavailable()
        if refusal is not None:
            return [self._refused(refusal) for _ in requests]
        results: list[AppendResult] = []
        with self._append_lock:
            self._lock_since_ms = self._now_ms()
            try:
                self._append_run(requests, results)
            except StoreError as error:
                # Which of them are whole in the log is not known; nobody may hear that all is well.
                results = [self._refused(_unwritten(error)) for _ in requests]
            finally:
                self._lock_since_ms = 0
        elapsed_ns = time.perf_counter_ns() - started
        self._counters.append_time.add(elapsed_ns // max(1, len(results)))
        return results

    def _append_run(self, requests: Sequence[AppendRequest], results: list[AppendResult]) -> None:
        store_ms, head = self._store_ms(), self._head
        routes, hosts = self._routes, self._hosts
        body_max, pack = self._body_max, _STAMPED.pack
        stamp = store_ms.to_bytes(8, "big") + self._own_host
        base, position, limit = head.base, head.position, head.limit
        parts: list[bytes] = []
        prefixes: list[tuple[int, int, int]] = []
        extend = parts.extend
        fast_count = 0
        try:
            for request in requests:
                topic, properties, body = request.topic, request.properties, request.body
                sys_flag, queue_id = request.sys_flag, request.queue_id
                route = routes.get((topic, queue_id))
                born_host = hosts.get(request.born_host)
                names = properties.decode("latin-1")
                if (
                    route is None
                    or not (tail := route.tail)
                    or born_host is None
                    or sys_flag & _SPECIAL_FLAGS
                    or request.store_host is not None
                    or "DELAY\x01" in names
                    or "ER_" in names
                    or names.endswith("\0")
                    or body is None
                    or (
                        (properties_length := len(properties)) > _PROPERTIES_SHORT
                        and _needs_care(properties)
                    )
                    or (body_length := len(body)) > body_max
                    or position + (size := route.fixed_bytes + body_length + properties_length)
                    > limit
                ):
                    head.write_many(b"".join(parts), prefixes)
                    parts.clear()
                    prefixes.clear()
                    results.append(self._append_among_others(request, store_ms))
                    base, position, limit = head.base, head.position, head.limit
                    continue
                queue_offset = route.next_offset
                log_offset = base + position
                try:
                    fixed = pack(
                        0,  # size and magic come last, see WriteHead
                        0,
                        crc32(body) & CRC_MASK,
                        queue_id,
                        request.flag,
                        queue_offset,
                        log_offset,
                        sys_flag,
                        request.born_ms,
                        born_host,
                        stamp,
                        request.reconsume_times,
                        request.prepared_offset,
                        body_length,
                    )
                except struct.error as error:
                    results.append(self._refused(unfit(error)))
                    continue
                extend((fixed, body, tail, properties_length.to_bytes(2, "big"), properties))
                prefixes.append((position, size, route.magic))
                route.next_offset = queue_offset + 1
                position += size
                fast_count += 1
                results.append(
                    _new(
                        AppendResult,
                        (_PUT_OK, log_offset, size, queue_offset, store_ms, queue_id, ""),
                    )
                )
        finally:
            # Also when a request turns out to be no request: what was numbered must be in the log.
            head.write_many(b"".join(parts), prefixes)
            self.last_store_ms = store_ms
            self._counters.appended_messages += fast_count

    def _append_among_others(self, request: AppendRequest, store_ms: int) -> AppendResult:
        prepared = self._rules.prepare(request)
        if isinstance(prepared, AppendResult):
            return self._refused(prepared)
        return self._append_prepared(prepared, store_ms)

    # The sends of one read

    def append_sends(self, run: "SendRun", born_host: Host) -> bool:
        """Append the messages of all sends of a run.

        False if one of them needs more than a look, or a new segment: nothing was done then, and
        `append_many` does it.
        """
        hosts = self._hosts.get(born_host)
        if hosts is None or self._unavailable() is not None:
            return False
        started = time.perf_counter_ns()
        with self._append_lock:
            self._lock_since_ms = self._now_ms()
            try:
                if not self._write_sends(run, hosts + self._own_host):
                    return False
            except StoreError:
                return False  # `append_many` finds that the store has failed, and says so
            finally:
                self._lock_since_ms = 0
        self._counters.append_time.add((time.perf_counter_ns() - started) // run.count)
        return True

    def _write_sends(self, run: "SendRun", hosts: bytes) -> bool:
        head, store_ms = self._head, self._store_ms()
        size, log_offset = run.record_bytes, head.base + head.position
        if head.position + size > head.limit:
            return False
        known = [self._routes.get((queue.topic, queue.queue_id)) for queue in run.queues]
        routes = [route for route in known if route is not None and route.magic == MAGIC_V1]
        if len(routes) < len(known):
            return False
        next_offsets = [route.next_offset for route in routes]
        if head.by_file:
            records = np.empty(size, dtype=np.uint8)
            run.write(records, 0, log_offset, store_ms, hosts, next_offsets)
            run.show()
            head.write_shown(records.data)
        else:
            target = np.frombuffer(head.target, dtype=np.uint8)  # type: ignore[arg-type]
            run.write(target, head.position, log_offset, store_ms, hosts, next_offsets)
            run.show()
            head.advance(size)
        for route, queue in zip(routes, run.queues, strict=True):
            route.next_offset += queue.messages
            self._counters.appended_messages += queue.messages
        self.last_store_ms = store_ms
        return True

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
            return [self._refused(unfit(error))]
        if not batch.sizes:
            return [self._refused(illegal("the batch holds no message"))]
        with self._append_lock:
            self._lock_since_ms = self._now_ms()
            try:
                return self._append_batch_records(prepared, batch)
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

    def _append_batch_records(self, prepared: Prepared, batch: ClientBatch) -> list[AppendResult]:
        request, store_ms, head = prepared.request, self._store_ms(), self._head
        if head.position + batch.total_bytes > head.limit:
            refusal = self._make_room(batch.total_bytes)
            if refusal is not None:
                return [self._refused(refusal)]
        route = self.offsets.route(request.topic, request.queue_id)
        queue_offset = route.next_offset
        log_offset = head.base + head.position
        records = bytearray(
            batch.encode(log_offset=log_offset, queue_offset=queue_offset, store_ms=store_ms)
        )
        head.write_many(records, _hide_prefixes(records, batch.sizes, head.position))
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

    def _store_ms(self) -> int:
        return max(self._now_ms(), self.last_store_ms)

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
        return refusal

    def _remember(self, prepared: Prepared, route: Route) -> None:
        """Let the next message like this one take the fast path."""
        if not self._fast:
            return
        form, born_host = prepared.topic, prepared.request.born_host
        route.tail, route.magic, route.fixed_bytes = form
        if len(born_host.address) == 4:
            if len(self._hosts) >= _HOSTS_MAX:
                self._hosts.clear()
            self._hosts[born_host] = born_host.packed()


def _unwritten(error: StoreError) -> AppendResult:
    return refuse(AppendStatus.SERVICE_NOT_AVAILABLE, f"the log could not be written: {error}")


def _needs_care(properties: bytes) -> bool:
    return len(properties) > _PROPERTIES_FAST_MAX or has_zeros(properties)


def _hide_prefixes(
    records: bytearray, sizes: Sequence[int], position: int
) -> list[tuple[int, int, int]]:
    """Take size and magic out of records that will lie from `position` on; see `WriteHead.write_many`."""
    prefixes = []
    at = 0
    for size in sizes:
        prefixes.append((position + at, *PREFIX.unpack_from(records, at)))
        PREFIX.pack_into(records, at, 0, 0)
        at += size
    return prefixes
