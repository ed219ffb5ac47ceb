"""ConsumeTracer: what a consumer's trace says before and after each call of a handler."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter

from orbitmq.client.consumer.delivery import Delivery, Outcome
from orbitmq.client.consumer.handling import Handler, RetryLater
from orbitmq.client.consumer.process_queue import ProcessQueue
from orbitmq.client.core.message import ReceivedMessage
from orbitmq.client.producer.unique_id import unique_ids
from orbitmq.client.trace.records import ConsumeCode, TraceKind, TraceRecord
from orbitmq.client.trace.writer import TraceWriter
from orbitmq.clock import Clock
from orbitmq.message import Property


@dataclass(frozen=True, slots=True)
class Consumption:
    """One call of a handler: what was written before it."""

    topic: str
    messages: Sequence[ReceivedMessage]  # those that are traced
    count: int  # of all
    time_ms: int
    records: Sequence[TraceRecord]


class ConsumeTracer:
    """Traces one consumer. Any thread may use it."""

    def __init__(
        self, group: str, writer: TraceWriter, clock: Clock, client_ip: str, timeout_ms: float
    ) -> None:
        self._group, self.writer, self._clock = group, writer, clock
        self._ids, self._timeout_ms = unique_ids(client_ip), timeout_ms

    def before(self, messages: Sequence[ReceivedMessage]) -> Consumption | None:
        """Note that a handler gets messages of one topic; None: nobody wants a trace of them."""
        traced = [one for one in messages if self._is_traced(one)]
        if not traced:
            return None
        topic, time_ms, request_id = traced[0].topic, self._clock.now_ms(), self._ids.next_id()
        records = [
            TraceRecord(
                kind=TraceKind.SUB_BEFORE,
                time_ms=time_ms,
                region=message.properties[Property.REGION],
                group=self._group,
                request_id=request_id,
                message_id=message.message_id,
                retry_times=message.reconsume_times,
                keys=message.properties.get(Property.KEYS),
            )
            for message in traced
        ]
        self.writer.append(topic, records)
        return Consumption(topic, traced, len(messages), time_ms, records)

    def _is_traced(self, message: ReceivedMessage) -> bool:
        # A message without region was stored by a broker that knows nothing of traces.
        properties = message.properties
        wanted = properties.get(Property.TRACE_ON) != "false" and Property.REGION in properties
        return wanted and not self.writer.is_own(message.topic)

    def after(self, call: Consumption | None, outcome: Outcome) -> None:
        """Note what the handler said of the messages."""
        if call is None or outcome.abandoned:
            return
        now_ms = self._clock.now_ms()
        spent_ms = max(now_ms - call.time_ms, 0)
        failed, good = {id(one) for one in outcome.failed}, ConsumeCode.SUCCESS
        bad = _failure_code(outcome)
        if spent_ms >= self._timeout_ms:
            good = ConsumeCode.TIME_OUT
            bad = bad if bad is ConsumeCode.EXCEPTION else ConsumeCode.TIME_OUT
        records = []
        for message, before in zip(call.messages, call.records, strict=True):
            has_failed = id(message) in failed
            record = replace(
                before,
                kind=TraceKind.SUB_AFTER,
                cost_ms=spent_ms // call.count,
                success=not has_failed,
                code=bad if has_failed else good,
                time_ms=now_ms,
            )
            records.append(record)
        self.writer.append(call.topic, records)

    def polled(self, messages: Sequence[ReceivedMessage]) -> None:
        """Note messages that a poll returned: nobody says later what became of them."""
        for _, group in groupby(messages, attrgetter("topic")):
            self.after(self.before(list(group)), Outcome())

    def around(self, handler: Handler) -> Handler:
        """Return a handler that does the same and is traced."""

        async def handle(messages: list[Delivery], held: ProcessQueue | None) -> Outcome:
            call = self.before(messages)
            outcome = await handler(messages, held)
            self.after(call, outcome)
            return outcome

        return handle


def _failure_code(outcome: Outcome) -> ConsumeCode:
    raised = outcome.error is not None and not isinstance(outcome.error, RetryLater)
    return ConsumeCode.EXCEPTION if raised else ConsumeCode.FAILED
