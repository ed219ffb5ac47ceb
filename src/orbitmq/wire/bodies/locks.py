"""Bodies of queue locks: which queues an orderly consumer wants for itself."""

import msgspec

from orbitmq.wire.bodies.body import Body
from orbitmq.wire.bodies.message_queue import MessageQueue


class LockRequest(Body):
    """Body of LOCK_BATCH_MQ (41) and UNLOCK_BATCH_MQ (42)."""

    consumer_group: str
    client_id: str
    mq_set: list[MessageQueue] = []
    only_this_broker: bool = False


class LockAnswer(Body):
    """Answer of LOCK_BATCH_MQ: the queues that the client holds now."""

    locked: list[MessageQueue] = msgspec.field(default_factory=list, name="lockOKMQSet")
