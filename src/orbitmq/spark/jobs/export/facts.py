"""What a task tells the driver."""

from dataclasses import dataclass, field

from orbitmq.spark.jobs.export.notes import Anchor
from orbitmq.spark.jobs.export.parts import Part


@dataclass(slots=True)
class TaskFacts:
    """What one task has read and written. Travels to the driver."""

    number: int
    rows: dict[str, int] = field(default_factory=dict)  # by topic
    parts: list[Part] = field(default_factory=list)
    left_out: int = 0  # of topics that brokers made for themselves
    bad_places: int = 0
    anchor: Anchor | None = None

    def add_rows(self, topic: str, count: int) -> None:
        """Count messages of a topic."""
        self.rows[topic] = self.rows.get(topic, 0) + count
