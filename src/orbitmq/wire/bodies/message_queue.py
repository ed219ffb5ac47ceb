"""MessageQueue: the full name of one queue, a value of JSON bodies and a key of their tables."""

import msgspec


class MessageQueue(msgspec.Struct, frozen=True, order=True, rename="camel"):
    """One queue of a topic on one broker. Compared by topic, then broker name, then queue id."""

    topic: str
    broker_name: str
    queue_id: int
