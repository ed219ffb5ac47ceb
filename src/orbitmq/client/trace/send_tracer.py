"""SendTracer: what a producer writes of sends, of ends of transactions and of messages that it took back."""

from typing import Final

from orbitmq.client.producer.send_request import SendRequest
from orbitmq.client.producer.send_result import SendResult, batch_results
from orbitmq.client.trace.records import MessageKind, TraceKind, TraceRecord
from orbitmq.client.trace.writer import TraceWriter
from orbitmq.clock import Clock
from orbitmq.format.client_batch import decode_client_batch
from orbitmq.format.properties import decode_properties
from orbitmq.message import Property

DEFAULT_REGION: Final = "DefaultRegion"

_STATES: Final = {8: "COMMIT_MESSAGE", 12: "ROLLBACK_MESSAGE"}
"""How RocketMQ's clients call what a request says in its field commitOrRollback."""


class SendTracer:
    """Traces the sends of one producer. Belongs to the loop's thread."""

    def __init__(self, group: str, writer: TraceWriter, clock: Clock) -> None:
        self._group, self._writer, self._clock = group, writer, clock

    def stored(
        self, request: SendRequest, address: str, started_ms: float, result: SendResult
    ) -> None:
        """Note a send that a broker answered; `started_ms` of this try by the monotonic clock.

        Each message of a batch gets a record of its own, so that each is found by its id.
        """
        writer = self._writer
        if writer.is_own(request.topic) or not result.trace_on:
            return
        cost_ms = max(round(self._clock.monotonic_ms() - started_ms), 0)
        time_ms = self._clock.now_ms() - cost_ms
        if request.message_ids is None:
            parts = [(request.properties.encode("utf-8", "replace"), len(request.body), result)]
        else:
            inner = decode_client_batch(request.body)
            results = batch_results(result, request.message_ids)
            parts = [
                (one.properties, len(one.body), each)
                for one, each in zip(inner, results, strict=True)
            ]
        for properties, body_bytes, each in parts:
            named = decode_properties(properties)
            record = TraceRecord(
                kind=TraceKind.PUB,
                time_ms=time_ms,
                region=result.region or DEFAULT_REGION,
                group=self._group,
                topic=request.topic,
                message_id=each.message_id,
                tag=named.get(Property.TAGS),
                keys=named.get(Property.KEYS),
                store_host=address,
                body_bytes=body_bytes,
                cost_ms=cost_ms,
                message_kind=_message_kind(named),
                offset_id=each.offset_id,
                success=result.is_ok,
            )
            writer.append(request.topic, [record])

    def end_transaction(
        self,
        *,
        topic: str,
        message_id: str,
        properties: dict[str, str],
        address: str,
        transaction_id: str | None,
        state: int,
        from_check: bool,
    ) -> None:
        """Note what a broker is told of a transaction (37): commit 8, rollback 12, unknown 0.

        `properties` are those of the half message, as it was sent or as the broker's check brought it.
        """
        if self._writer.is_own(topic):
            return
        record = TraceRecord(
            kind=TraceKind.END_TRANSACTION,
            time_ms=self._clock.now_ms(),
            region=properties.get(Property.REGION) or DEFAULT_REGION,
            group=self._group,
            topic=topic,
            message_id=message_id,
            tag=properties.get(Property.TAGS),
            keys=properties.get(Property.KEYS),
            store_host=address,
            message_kind=MessageKind.TRANSACTION_END,
            transaction_id=transaction_id,
            state=_STATES.get(state, "UNKNOW"),
            from_check=from_check,
        )
        self._writer.append(topic, [record])

    def recalled(self, topic: str, message_id: str, *, success: bool) -> None:
        """Note that a waiting message was taken back, or that its broker refused."""
        if self._writer.is_own(topic):
            return
        record = TraceRecord(
            kind=TraceKind.RECALL,
            time_ms=self._clock.now_ms(),
            region=DEFAULT_REGION,
            group=self._group,
            topic=topic,
            message_id=message_id,
            success=success,
        )
        self._writer.append(topic, [record])


def _message_kind(properties: dict[str, str]) -> MessageKind:
    if Property.DELAY in properties or "__STARTDELIVERTIME" in properties:
        return MessageKind.DELAYED
    return MessageKind.HALF if properties.get("TRAN_MSG") == "true" else MessageKind.NORMAL
