"""A message store: everything of one store directory, joined. The only class that a broker sees.

with MessageStore.open(StoreConfig(root=Path("store"))) as store:
    store.append(AppendRequest("Orders", 0, b"hello"))
"""

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Self

from orbitmq.clock import Clock, SystemClock
from orbitmq.errors import StoreError
from orbitmq.files.disk import Disk
from orbitmq.format.kernels import Kernels
from orbitmq.message import AppendRequest, AppendResult, AppendStatus, Host, Property
from orbitmq.store.assembly import Dependencies, StoreParts
from orbitmq.store.background import Background
from orbitmq.store.clean import DiskRatio, disk_ratio
from orbitmq.store.closing import Closing
from orbitmq.store.config import Role, StoreConfig, WaitFor
from orbitmq.store.dispatch import Extra
from orbitmq.store.dispatch_service import OnDispatched
from orbitmq.store.flags import RunningFlags
from orbitmq.store.log.append_rules import TimerGate
from orbitmq.store.log.flush import GroupCommit
from orbitmq.store.log.run import Run
from orbitmq.store.opening import open_parts
from orbitmq.store.readers import Readers
from orbitmq.store.recovery.adopt import RecoveryReport
from orbitmq.store.replication import Replication
from orbitmq.store.statistics import StoreStatistics, snapshot
from orbitmq.store.store_reads import StoreReads
from orbitmq.store.topic_types import TopicTypes
from orbitmq.units import SECOND_MS

if TYPE_CHECKING:
    from orbitmq.wire.fast import SendRun

_log = logging.getLogger(__name__)

_NO_WAIT = f"{Property.WAIT}\x01false\x02".encode()


class MessageStore(StoreReads):
    """An open store. Any thread may use it; `close` ends it."""

    def __init__(self, deps: Dependencies, parts: StoreParts, *, background: bool) -> None:
        """Use `MessageStore.open`."""
        config = deps.config
        super().__init__(config, parts)
        self._deps = deps
        self._clock = deps.clock
        self._dispatch, self._flusher = parts.dispatch, parts.flusher
        self._opened_ms = self._clock.monotonic_ms()
        self._waits = config.sync_flush
        self._group = GroupCommit(parts.flusher, self._clock, config.sync_flush_timeout_ms)
        self._background = Background(config, parts, self._clock)
        self._in_background = background
        self._append_one = parts.log.append_one
        self._appended, self._grown = self._background.appended, self._background.grown
        self._replication = Replication(parts.log, parts.flusher, self._appended)
        parts.flusher.on_committed = self._background.committed
        parts.flusher.on_flushed.append(self._dispatch.notify)
        if background:
            self._background.start()

    def reconfigure(self, config: StoreConfig) -> None:
        """Follow settings that only change behaviour: limits, flush, retention (`LIVE_KEYS`).

        What the files are made of has to be as it was: it is decided when a store is opened.
        """
        self.config = config
        self._parts.log.use(config)
        self._parts.cleaner.use(config)
        self._background.use(config)
        self._group.timeout_ms = config.sync_flush_timeout_ms
        self._make_readers()

    @classmethod
    def open(
        cls,
        config: StoreConfig,
        *,
        clock: Clock | None = None,
        disk: Disk | None = None,
        topic_types: TopicTypes | None = None,
        dispatchers: Sequence[Extra] = (),
        background: bool = True,
        disk_ratio: DiskRatio = disk_ratio,
    ) -> Self:
        """Open the store in `config.root`, a new one if there is none, and recover what it holds.

        `topic_types` tells BatchCQ topics; by default `config/topics.json` does. `dispatchers` see each
        record that is dispatched from now on. Without `background` there are no threads: the owner
        calls `tick`.
        """
        deps = Dependencies(
            config=config,
            layout=config.layout(),
            clock=clock or SystemClock(),
            disk=disk or Disk(),
            topic_types=topic_types,
            dispatchers=dispatchers,
            disk_ratio=disk_ratio,
        )
        return cls(deps, open_parts(deps), background=background)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        try:
            self.close()
        except StoreError:
            if error is None:
                raise
            _log.exception("%s: not closed in order", self.config.root)

    # Appending

    def append(self, request: AppendRequest) -> AppendResult:
        """Append one message. With sync flush this returns when it is on disk (unless WAIT is false)."""
        result = self._append_one(request)
        if self._waits:
            return self._synced([result], [request])[0]
        self._appended()
        return result

    def append_many(self, requests: Sequence[AppendRequest]) -> list[AppendResult]:
        """Append messages in this order; one result for each. A refused one does not stop the rest."""
        results = self._log.append_many(requests)
        if self._waits:
            return self._synced(results, requests)
        self._appended()
        return results

    def append_client_batch(self, request: AppendRequest) -> list[AppendResult]:
        """Append a producer's batch as one unit; one result for each message, or one refusal."""
        results = self._log.append_client_batch(request)
        if self._waits:
            return self._synced(results, [request])
        self._appended()
        return results

    def _synced(
        self, results: list[AppendResult], requests: Sequence[AppendRequest]
    ) -> list[AppendResult]:
        """Wait until what was stored is on disk; a failure is told in every result."""
        stored = [result for result in results if result.status is AppendStatus.PUT_OK]
        if not stored:
            return results
        if all(_NO_WAIT in request.properties for request in requests):
            self._appended()
            return results
        last = stored[-1]
        status, reason = self._group.wait(last.log_offset + last.size)
        if status is AppendStatus.PUT_OK:
            return results
        return [
            result._replace(status=status, reason=reason)
            if result.status is AppendStatus.PUT_OK
            else result
            for result in results
        ]

    # Appending for those who must not wait for the disk, an event loop for example

    def append_nowait(self, request: AppendRequest, *, flush: bool = True) -> AppendResult:
        """Append one message and do not wait for the disk, whatever the flush mode.

        With sync flush PUT_OK only means "written": it is safe when `flushed_offset` has reached its
        end, and `on_flushed` tells when to look. The flush thread syncs at once, one sync for all who
        wait; with `flush` false the caller sees to that (`flush`, `wake_flush`). Only a new segment
        that is not ready yet can hold this up.
        """
        result = self._append_one(request)
        (self._appended if flush else self._grown)()
        return result

    def append_many_nowait(
        self, requests: Sequence[AppendRequest], *, flush: bool = True
    ) -> list[AppendResult]:
        """Append like `append_many`, and like `append_nowait` do not wait for the disk."""
        results = self._log.append_many(requests)
        (self._appended if flush else self._grown)()
        return results

    def append_client_batch_nowait(
        self, request: AppendRequest, *, flush: bool = True
    ) -> list[AppendResult]:
        """Append like `append_client_batch`, and like `append_nowait` do not wait for the disk."""
        results = self._log.append_client_batch(request)
        (self._appended if flush else self._grown)()
        return results

    def append_sends_nowait(self, run: "SendRun", born_host: Host, *, flush: bool = True) -> bool:
        """Append the messages of a run of sends, and like `append_nowait` do not wait for the disk.

        False: nothing was done, and the messages have to be appended one by one.
        """
        done = self._log.append_sends(run, born_host)
        if done:
            (self._appended if flush else self._grown)()
        return done

    def append_due_nowait(self, run: Run) -> bool:
        """Append the messages of a run whose time has come; False as with `append_sends_nowait`."""
        done = self._log.append_due(run)
        if done:
            self._appended()
        return done

    def flush_log(self) -> None:
        """Sync the log in the caller's thread. StoreError: it failed, and the store takes no more."""
        self._flusher.flush(0)

    def wake_flush(self) -> None:
        """Have the flush thread sync now."""
        self._background.wake_flush()

    def prepare(self) -> None:
        """Have the first segment of a new store made in the background, for an append that must not wait."""
        self._require_open()
        self._log.prepare()

    def on_flushed(self, callback: Callable[[], None]) -> None:
        """Have `callback` called whenever `flushed_offset` has moved, and when the store has failed.

        It runs in the thread that flushed, mostly the flush thread, and must be quick: hand over to
        your own thread, compare `flushed_offset` with what waits there, and look at `failure`.
        """
        self._flusher.on_flushed.append(callback)
        self.flags.on_failure.append(callback)

    def on_dispatched(self, callback: OnDispatched) -> None:
        """Have `callback` called after each dispatched chunk with the numbers of the queues that grew.

        It runs in the dispatching thread and must be quick. See `queue_number`; what was dispatched
        can be read when it is called.
        """
        self._dispatch.on_dispatched.append(callback)

    def watch_dispatch(self, watched: Callable[[], bool]) -> None:
        """Have dispatch ask whether anybody waits for what it publishes; if not, its rounds come rarely."""
        self._dispatch.watch(watched)

    def offer_dispatch(self, taken_over: Callable[[], bool]) -> None:
        """Have `taken_over` asked after each append, in its thread, whether `catch_up` is called soon."""
        self._dispatch.offer(taken_over)

    def catch_up(self, bytes_max: int) -> bool:
        """Dispatch what was appended last, if it is no more than that; tell whether there is more to read."""
        return self._dispatch.catch_up(bytes_max)

    def is_undispatched(self, topic: str, queue_id: int, offset: int) -> bool:
        """Tell whether the log may have messages of a queue, from this offset on, that no read sees yet."""
        if not self._dispatch.behind_bytes:
            return False
        # A replica gets its log as bytes: nobody counts its messages before they are dispatched.
        is_replica = self.config.role is Role.REPLICA
        return is_replica or self.next_queue_offset(topic, queue_id) > offset

    def wake_dispatch(self, topic: str = "", queue_id: int = 0, offset: int = 0) -> None:
        """Say that somebody waits for what has been appended, and for what comes next.

        With a topic: for messages of one of its queues from this offset on.
        """
        if self._dispatch.behind_bytes and (
            not topic or self.is_undispatched(topic, queue_id, offset)
        ):
            self._dispatch.wake_now()
        else:
            self._dispatch.wait_no_longer()

    def wait_flushed(self, log_offset: int | None = None) -> bool:
        """Make everything before the offset durable, by default all; False if the disk did not in time."""
        target = self._log.written_offset if log_offset is None else log_offset
        if self._log.flushed_offset >= target:
            return True
        return self._group.wait(target)[0] is AppendStatus.PUT_OK

    @property
    def replication(self) -> Replication:
        """The log as bytes, for replicas and for a store that is one."""
        return self._replication

    # How far everything is

    @property
    def min_log_offset(self) -> int:
        return self._log.min_offset

    @property
    def max_log_offset(self) -> int:
        """Log offset behind the last record that was appended."""
        return self._log.written_offset

    @property
    def flushed_offset(self) -> int:
        return self._log.flushed_offset

    @property
    def dispatched_offset(self) -> int:
        return self._dispatch.dispatched_offset

    @property
    def flags(self) -> RunningFlags:
        return self._parts.flags

    @property
    def failure(self) -> StoreError | None:
        """Why the store takes no more appends until it is opened again, or None. See `flags`."""
        return self._parts.flags.failure

    @property
    def recovery_report(self) -> RecoveryReport:
        """What recovery found and did when the store was opened."""
        return self._parts.report

    def wait_dispatched(self, log_offset: int | None = None, timeout: float = 60.0) -> bool:
        """Wait until everything before the offset is in queues and index, by default all; in seconds."""
        target = self._log.written_offset if log_offset is None else log_offset
        if not self._in_background:
            self._dispatch.dispatch_now()
            return self._dispatch.dispatched_offset >= target
        self._background.wake_dispatch()
        return self._dispatch.wait_dispatched(target, timeout * SECOND_MS)

    @property
    def kernels(self) -> Kernels:
        """The kernels in use: plain ones at first, compiled ones later."""
        return self._parts.kernels

    def wait_kernels(self) -> None:
        """Load the compiled kernels if nobody has yet, and wait until they are in use."""
        self._background.wait_kernels()

    def statistics(self) -> StoreStatistics:
        """Return counts, times and lags since the store was opened."""
        return snapshot(
            self._counters,
            uptime_ms=round(self._clock.monotonic_ms() - self._opened_ms),
            opened_offset=self._parts.report.end_offset,
            min_log_offset=self.min_log_offset,
            max_log_offset=self.max_log_offset,
            flushed_offset=self.flushed_offset,
            dispatched_offset=self.dispatched_offset,
            visible_offset=self._log.visible_offset(),
            queue_count=len(self._parts.dispatcher.queues.names),
            append_lock_ms=self._log.appender.lock_held_ms,
            free_buffers=None if self._log.pool is None else self._log.pool.free_count,
            mapped=self._deps.disk.mappings.total(),
            waits_for=self.flags.waits_for,
            refusal=self.flags.refusal(),
        )

    def services(self) -> dict[str, str]:
        """Return what works in the background, by name, and whether it does."""
        return self._background.states()

    # Care

    def tick(self) -> None:
        """Do one round of everything that is due by the clock (a store without threads)."""
        self._require_open()
        self._background.tick()

    def flush(self) -> None:
        """Make everything durable now: the log, then queues and index with snapshot and checkpoint."""
        self._require_open()
        self._flusher.flush(0)
        self._background.flush_queues()

    def delete_expired_now(self) -> None:
        """Delete expired segments now whatever the hour: a round now, and the next 19 rounds."""
        self._require_open()
        self._parts.cleaner.request_rounds()
        if self._in_background:
            self._background.wake_cleaner()
        else:
            self._parts.cleaner.tick()

    def wait_for_readers(self, readers: Readers) -> None:
        """Keep what these readers need, if the settings say so (waitForReaders=groups)."""
        if self.config.wait_for_readers is WaitFor.GROUPS:
            self._parts.cleaner.readers = readers

    def use_timer(self, gate: TimerGate) -> None:
        """Take timer messages from now on: somebody keeps them in a wheel and delivers them."""
        self._log.appender.use_timer(gate)

    def delete_topic(self, topic: str) -> None:
        """Remove the queues of a topic. Its records stay in the log until their segments expire."""
        self._require_open()
        with self._dispatch.alone():
            dispatcher, disk = self._parts.dispatcher, self._deps.disk
            self._dispatch.dispatch_now()  # else its last records would make the queues anew
            with dispatcher.lock:
                self._log.appender.remove_topic(topic)
                dispatcher.delete_topic(topic, disk)
            # The last snapshot still names those queues: after a crash they would be taken for lost.
            self._background.flush_queues()

    def close(self) -> None:
        """Flush, dispatch and close. A store that failed stays marked as not cleanly stopped.

        StoreFailedError tells that, after everything was closed. A second call does nothing.
        """
        if self._closed:
            return
        self._closed = True
        Closing(self._deps, self._parts, self._background).run()
