"""Sends a batch of a write, once: by one process, at the commit, however often that is begun.

    note    which files the batch has, and how far the queues of its targets reach (`state`)
    send    each queue its requests in order, one at a time; all queues side by side
    done    noted; the rows are removed

what happened                        | then
busy                                 | the same request again, with longer and longer pauses
refused                              | the write fails, and says why
no answer, the connection broke      | nobody knows: settle, look, and send what is not there
killed                               | the next commit of the same batch does that

Settle: a process that is gone may have left requests on the way, and a broker has them for certain only
when it has seen the connection end (`targets.wait_settled`). Look: the messages that came since the note,
by their ids, which are in the rows that wait and never change.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final, NamedTuple

from orbitmq.client import Admin, MessageQueue
from orbitmq.client.producer.producer import AsyncProducer
from orbitmq.client.producer.send_request import SendRequest
from orbitmq.client.producer.sending import QueueSelector, RetryRule
from orbitmq.errors import (
    ClientError,
    JobFailedError,
    OrbitError,
    RequestTimeoutError,
    ResponseError,
    SendFailedError,
    UnreachableError,
    WireError,
)
from orbitmq.format.client_batch import ClientMessage, encode_client_batch, iter_client_batch
from orbitmq.format.properties import decode_properties
from orbitmq.message import SCHEDULE_TOPIC, TIMER_TOPIC, Property
from orbitmq.spark.sink.options import WriteOptions
from orbitmq.spark.sink.staged import Request, StagedFile
from orbitmq.spark.sink.state import SinkState, Staging
from orbitmq.spark.sink.task import Staged
from orbitmq.spark.targets import ends_of, is_busy, messages_since, served, wait_settled
from orbitmq.wire.codes import RequestCode, ResponseCode

IN_FLIGHT: Final = 16
"""Requests on their way at once, of different queues."""
_FIRST_PAUSE_S: Final = 0.05
_LAST_PAUSE_S: Final = 2.0
_ONE_TRY: Final = RetryRule(1)
_WAIT: Final = f"{Property.WAIT}\x01true\x02"


class _UnknownError(Exception):
    """Whether a request was stored is not known; `__cause__` says why."""


class _Waiting(NamedTuple):
    """A request and the file that it lies in."""

    file: StagedFile
    request: Request

    @property
    def place(self) -> str:
        """Say which rows these are."""
        partition, request = self.file.index.partition, self.request
        return f"partition {partition}, {request.messages} messages from row {request.row} on"


def deliver(staging: Staging, batch: int, parts: Iterable[Staged], options: WriteOptions) -> None:
    """Send a batch unless it is sent. JobFailedError: a broker refused it, or none took it."""
    with staging.held():
        state = staging.load()
        if state is None or state.batch < batch:
            _require_finished(state)
            found = sorted((part for part in parts if part.path), key=lambda part: part.partition)
            state = SinkState(batch, [part.path for part in found])
            state.messages = sum(part.messages for part in found)
        if state.batch == batch and not state.done:
            if state.files:
                _Delivery(staging, state, options).run()
            staging.save(SinkState(batch, [], messages=state.messages, done=True))
        staging.remove_rows(batch)


def _require_finished(state: SinkState | None) -> None:
    if state is not None and not state.done:
        what = f"batch {state.batch} of this write was begun and is not sent whole"
        raise JobFailedError(what, "Run it again from its checkpoint before the next one.")


class _Delivery:
    """One batch on its way. Not thread-safe."""

    def __init__(self, staging: Staging, state: SinkState, options: WriteOptions) -> None:
        self._staging, self._state, self._options = staging, state, options
        self._files: list[StagedFile] = []
        self._heard = time.monotonic()  # when a broker last took something

    def run(self) -> None:
        try:
            self._files = [StagedFile(path) for path in self._state.files]
            failures = 0
            while True:
                begun = time.monotonic()
                try:
                    return self._try()
                except (_UnknownError, WireError, ClientError) as error:
                    self._require_time(error)
                failures = 1 if self._heard > begun else failures + 1
                time.sleep(min(_FIRST_PAUSE_S * 2 ** min(failures, 10), _LAST_PAUSE_S))
        finally:
            for file in self._files:
                file.close()

    def _require_time(self, error: Exception) -> None:
        cause = error.__cause__ if isinstance(error, _UnknownError) else error
        if time.monotonic() - self._heard > self._options.retry_ms / 1000:
            what = f"no broker took the rows for {self._options.retry_ms} ms: {cause}"
            step = "Run it again: it goes on behind what was sent (a batch write with writeId)."
            raise JobFailedError(what, step) from error

    def _try(self) -> None:
        """Send what is not there yet; the first time that is everything."""
        with Admin(self._options.namesrv) as admin:
            sent = self._look(admin)
        asyncio.run(self._send_all(sent))

    def _topics(self) -> list[str]:
        """Return where messages of this batch may be; delayed ones wait in topics of the broker."""
        targets = {topic for file in self._files for topic, _, _ in file.index.queues}
        inner = (SCHEDULE_TOPIC, TIMER_TOPIC) if any(f.index.delayed for f in self._files) else ()
        return [*sorted(targets), *inner]

    def _look(self, admin: Admin) -> set[str]:
        """Return the ids of what an earlier try sent; the first one notes from where on to look."""
        topics, state = self._topics(), self._state
        if not state.client_id:
            state.note_ends(ends_of(admin, served(admin, topics)))
            return set()
        brokers = {broker for file in self._files for _, broker, _ in file.index.queues}
        wait_settled(admin, topics, brokers, self._options.group, state.client_id)
        found = messages_since(admin, served(admin, topics), state.noted_ends())
        return {message.message_id for message in found}

    async def _send_all(self, sent: set[str]) -> None:
        options = self._options
        timeout_ms = options.timeout_ms
        async with AsyncProducer(
            options.namesrv, options.group, send_timeout_ms=timeout_ms
        ) as producer:
            # `_look` of a later try asks the brokers for this client.
            await producer.announce(MessageQueue(*q) for f in self._files for q in f.index.queues)
            self._state.client_id = producer.client_id
            self._staging.save(self._state)
            room = asyncio.Semaphore(IN_FLIGHT)
            queues = (
                self._send_queue(producer, queue, waiting, sent, room)
                for queue, waiting in self._by_queue().items()
            )
            await _all_or_first_error(queues)

    def _by_queue(self) -> dict[MessageQueue, list[_Waiting]]:
        """Return what waits for each queue, in the order of the rows."""
        found: dict[MessageQueue, list[_Waiting]] = defaultdict(list)
        for file in self._files:
            for request in file.index.requests:
                found[file.index.queue(request)].append(_Waiting(file, request))
        return found

    # --- one queue ---

    async def _send_queue(
        self,
        producer: AsyncProducer,
        queue: MessageQueue,
        waiting: list[_Waiting],
        sent: set[str],
        room: asyncio.Semaphore,
    ) -> None:
        for one in waiting:
            async with room:
                for request in _requests(one, queue.topic, sent):
                    await self._send(producer, request, queue, one)

    async def _send(
        self, producer: AsyncProducer, request: SendRequest, queue: MessageQueue, one: _Waiting
    ) -> None:
        """Send one request, as often as its broker says that it is busy."""
        pause, until = _FIRST_PAUSE_S, time.monotonic() + self._options.retry_ms / 1000
        while True:
            try:
                await producer.send_request(request, _ONE_TRY, None, _to(queue))
            except OrbitError as error:
                if not is_busy(error):
                    raise _judged(error, one) from error
                if time.monotonic() > until:
                    what = f"{queue.topic}: the broker was busy for {self._options.retry_ms} ms"
                    step = "Run it again when it has less to do, or raise the option retryMs."
                    raise JobFailedError(f"{what} ({one.place})", step) from error
            else:
                self._heard = time.monotonic()
                return
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LAST_PAUSE_S)


async def _all_or_first_error(works: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Run all side by side; after an error the others end where they are."""
    try:
        async with asyncio.TaskGroup() as tasks:
            for work in works:
                tasks.create_task(work)
    except BaseExceptionGroup as group:
        # That a broker refuses something says more than that others did not answer.
        refused = (e for e in group.exceptions if not isinstance(e, _UnknownError))
        error = next(refused, group.exceptions[0])
        raise error from error.__cause__


def _to(queue: MessageQueue) -> QueueSelector:
    return lambda _: queue


def _judged(error: OrbitError, one: _Waiting) -> Exception:
    """Return what a failed request means: it was refused for good, or nobody knows."""
    attempts = [cause for _, cause in error.attempts] if isinstance(error, SendFailedError) else []
    cause = attempts[-1] if attempts else error
    unknown = isinstance(cause, UnreachableError | RequestTimeoutError)
    if isinstance(cause, ResponseError):
        unknown = cause.code == ResponseCode.SYSTEM_ERROR
    if unknown:
        return _UnknownError()
    return JobFailedError(f"{one.place}: {cause}", "")


def _requests(one: _Waiting, topic: str, sent: set[str]) -> list[SendRequest]:
    """Return the requests for what is not there of these messages: one, or none."""
    body = one.file.body(one.request)
    if sent:
        messages = list(iter_client_batch(body))
        left = [message for message in messages if _id(message) not in sent]
        if not left:
            return []
        body = body if len(left) == len(messages) else encode_client_batch(left)
    make: Callable[[bytes, str], SendRequest] = _single if one.request.alone else _batch
    return [make(body, topic)]


def _id(message: ClientMessage) -> str:
    return decode_properties(message.properties).get(Property.UNIQ_KEY, "")


def _single(body: bytes, topic: str) -> SendRequest:
    (message,) = iter_client_batch(body)
    text, now = message.properties.decode("utf-8", "replace"), time.time_ns() // 1_000_000
    request = SendRequest(topic, RequestCode.SEND_MESSAGE_V2, message.body, text, _id(message), now)
    request.flag = message.flag
    return request


def _batch(body: bytes, topic: str) -> SendRequest:
    now = time.time_ns() // 1_000_000
    request = SendRequest(topic, RequestCode.SEND_BATCH_MESSAGE, body, _WAIT, "", now)
    request.message_ids = []
    return request
