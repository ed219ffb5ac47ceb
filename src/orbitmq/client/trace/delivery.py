"""TracedDelivery: a message that a loop takes and settles, and that says so in the trace."""

from collections.abc import Callable

from orbitmq.client.consumer.delivery import Delivery, Outcome
from orbitmq.client.trace.consume_tracer import ConsumeTracer, Consumption

Ready = Callable[[list[Delivery]], None]


class TracedDelivery(Delivery):
    """A received message of a consumer whose loops are traced."""

    __slots__ = ("_call", "tracer")

    _call: Consumption | None
    tracer: ConsumeTracer

    def take(self, now_ms: float) -> bool:
        taken = super().take(now_ms)
        if taken:
            self._call = self.tracer.before([self])
        return taken

    def finish(self, now_ms: float, taken_ms: float | None = None) -> bool:
        is_new = super().finish(now_ms, taken_ms)
        if is_new:
            self._settled(Outcome())
        return is_new

    def retry(self, *, level: int | None = None, suspend_ms: int = -1) -> None:
        was_settled = self.is_settled
        super().retry(level=level, suspend_ms=suspend_ms)
        if not was_settled:
            self._settled(Outcome([self]))

    def _settled(self, outcome: Outcome) -> None:
        call, self._call = self._call, None
        self.tracer.after(call, outcome)


def traced(ready: Ready, tracer: ConsumeTracer) -> Ready:
    """Return what hands messages over to loops, with the tracer that each needs."""

    def hand_over(messages: list[Delivery]) -> None:
        for message in messages:
            if isinstance(message, TracedDelivery):
                message.tracer, message._call = tracer, None
        ready(messages)

    return hand_over
