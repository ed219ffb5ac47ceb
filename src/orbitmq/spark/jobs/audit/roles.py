"""What an audit makes of each topic: whose messages count, whose retries and dead letters they are."""

from collections.abc import Collection
from dataclasses import dataclass

from orbitmq.client.admin.base import is_system_topic
from orbitmq.message import DLQ_PREFIX, RETRY_PREFIX


@dataclass(frozen=True, slots=True)
class Roles:
    """Which topics and groups were asked for. Immutable; travels to tasks."""

    topics: frozenset[str]  # empty: all but those that brokers made for themselves
    groups: frozenset[str]  # empty: all
    known_groups: frozenset[str]
    trace_topic: str

    def counts(self, topic: str) -> bool:
        """Return whether messages of this topic are counted."""
        if self.topics:
            return topic in self.topics
        return topic != self.trace_topic and not is_system_topic(topic)

    def returned_to(self, topic: str) -> tuple[str, bool] | None:
        """Return whose retries or dead letters (True) a topic holds; None: nobody's who is asked for."""
        for prefix, dead in ((RETRY_PREFIX, False), (DLQ_PREFIX, True)):
            if topic.startswith(prefix):
                group = group_of(topic.removeprefix(prefix), self.known_groups)
                return (group, dead) if not self.groups or group in self.groups else None
        return None


def group_of(name: str, known: Collection[str]) -> str:
    """Return the group of a retry topic. Those of pops name their topic too: group+topic, group_topic."""
    if name in known:
        return name
    if "+" in name:
        return name.partition("+")[0]
    before = (group for group in known if name.startswith(f"{group}_"))
    return max(before, key=len, default=name)
