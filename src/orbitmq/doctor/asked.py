"""What the doctor is asked to look at."""

from dataclasses import dataclass

from orbitmq.units import SECOND_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One question. Without topic and group all of them are looked at."""

    target: str
    config: str = ""  # broker.conf, as it was given
    topic: str | None = None
    group: str | None = None
    key: str | None = None  # with a topic
    scan: bool = False  # read all messages for the key
    thorough: bool = False  # read all of a store
    stuck_ms: int = 60 * SECOND_MS  # a member that does nothing for so long is stuck

    def wants_topic(self, topic: str) -> bool:
        return self.topic is None or self.topic == topic

    def wants_group(self, group: str) -> bool:
        return self.group is None or self.group == group
