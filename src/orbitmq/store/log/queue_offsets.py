"""The next queue offset of every queue (RocketMQ: topicQueueTable)."""

from collections.abc import Iterable

from orbitmq.message import LMQ_PREFIX

QueueKey = tuple[str, int]


class Route:
    """Where a queue's next message goes, and how its records spell the topic.

    `tail` is empty until a message of this queue has passed the rules.
    """

    __slots__ = ("fixed_bytes", "magic", "next_offset", "tail")

    def __init__(self, next_offset: int = 0) -> None:
        self.next_offset = next_offset
        self.tail = b""  # length field and name of the topic
        self.magic = 0
        self.fixed_bytes = 0  # of a record without body and properties, both hosts IPv4


class QueueOffsets:
    """A route for each (topic, queue id). Guarded by the append lock.

    `routes` is open to the appender, which looks one up for every message.
    """

    def __init__(self) -> None:
        self.routes: dict[QueueKey, Route] = {}
        self._light_count = 0

    def route(self, topic: str, queue_id: int) -> Route:
        """Return the route of a queue, a new one if it was not known."""
        route = self.routes.get((topic, queue_id))
        if route is None:
            route = self.routes[topic, queue_id] = Route()
            self._light_count += topic.startswith(LMQ_PREFIX)
        return route

    def next_offset(self, topic: str, queue_id: int) -> int:
        route = self.routes.get((topic, queue_id))
        return route.next_offset if route is not None else 0

    def remove_topic(self, topic: str) -> None:
        """Forget a topic's queues: if it comes back, it starts at 0."""
        for key in [key for key in self.routes if key[0] == topic]:
            del self.routes[key]
            self._light_count -= topic.startswith(LMQ_PREFIX)

    def light_room(self, queues: Iterable[QueueKey], count_max: int) -> bool:
        """Tell whether the light queues among these fit below the limit."""
        new = {key for key in queues if key[0].startswith(LMQ_PREFIX) and key not in self.routes}
        return self._light_count + len(new) <= count_max
