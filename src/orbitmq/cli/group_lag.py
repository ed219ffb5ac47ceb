"""How sure the lag of a group is: messages that its filter passes over are not its own.

what is known of a queue                            | shown | as JSON
the broker counted what the filter lets through     | 17    | exact
it counted in a part, and took that for the whole   | ~1700 | estimate
the group filters, and the broker does not count    | <=42  | at most
nobody is online to say what the group filters      | 42    | at most
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from orbitmq.client.admin.results import GroupProgress, QueueLag, SubscriptionInfo

EXACT: Final = "exact"
ESTIMATE: Final = "estimate"
AT_MOST: Final = "at most"

_SIGNS: Final = {EXACT: "", ESTIMATE: "~", AT_MOST: "<="}


class GroupLag:
    """What there is to say about the lag of one group."""

    def __init__(
        self, progress: "GroupProgress", wanted: "Iterable[SubscriptionInfo]", *, online: bool
    ) -> None:
        self._queues, self._online = progress.queues, online
        self._filtered = {one.topic for one in wanted if one.expression.strip() not in ("", "*")}

    def kind(self, one: "QueueLag") -> str:
        """Tell how sure the lag of a queue is."""
        if one.matching is not None:
            return ESTIMATE if one.is_estimate else EXACT
        known = not one.lag or (self._online and one.queue.topic not in self._filtered)
        return EXACT if known else AT_MOST

    def text(self, one: "QueueLag") -> str | int:
        """Return the lag of a queue as people see it."""
        return self._shown(one.wanted_lag, self.kind(one))

    @property
    def total(self) -> int:
        return sum(one.wanted_lag for one in self._queues)

    @property
    def total_is(self) -> str:
        """As sure as the least sure queue."""
        kinds = {self.kind(one) for one in self._queues}
        return next((kind for kind in (AT_MOST, ESTIMATE) if kind in kinds), EXACT)

    @property
    def total_text(self) -> str | int:
        return self._shown(self.total, self.total_is)

    def _shown(self, lag: int, kind: str) -> str | int:
        sign = _SIGNS[kind] if self._online else ""
        return f"{sign}{lag}" if sign else lag

    @property
    def remark(self) -> str:
        """What has to be said beside the figures."""
        if not self._online and self.total:
            return "no member is online: the lag counts all messages, whatever the group filters"
        return {
            AT_MOST: "<= counts all messages: this broker does not say how many pass the filter",
            ESTIMATE: "~ is an estimate: the share of matches at the beginning, taken for all",
        }.get(self.total_is, "")
