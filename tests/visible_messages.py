"""What consumers of a topic can see: each message that its queues hold, from the first on."""

import time
from collections import Counter
from collections.abc import Collection

from orbitmq.client import PullConsumer

PATIENCE_S = 30.0


def visible(namesrv: str, topic: str) -> Counter[str]:
    """Return how often each body is in the topic."""
    found: Counter[str] = Counter()
    with PullConsumer(namesrv, "visible-messages", auto_commit=False) as consumer:
        for queue in consumer.topic_queues(topic):
            offset = 0
            while messages := consumer.pull(queue, offset, count=32).messages():
                found.update(message.body.decode() for message in messages)
                offset += len(messages)
    return found


def await_visible(namesrv: str, topic: str, bodies: Collection[str]) -> Counter[str]:
    """Wait until all of these are there; return what is there then."""
    deadline = time.monotonic() + PATIENCE_S
    while missing := set(bodies) - (seen := visible(namesrv, topic)).keys():
        assert time.monotonic() < deadline, f"not there: {sorted(missing)[:5]}"
        time.sleep(0.1)
    return seen
