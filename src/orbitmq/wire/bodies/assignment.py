"""Bodies of assignment by the broker: 400, 401, 402, and messageRequestMode.json."""

import msgspec

from orbitmq.wire.bodies.body import Body
from orbitmq.wire.bodies.message_queue import MessageQueue

PULL = "PULL"
POP = "POP"
BROADCASTING = "BROADCASTING"


class AssignmentQuestion(Body):
    """Body of QUERY_ASSIGNMENT (400): which queues are mine?"""

    topic: str
    consumer_group: str
    client_id: str
    strategy_name: str = "AVG"
    message_model: str = "CLUSTERING"


class QueueAssignment(Body):
    """A queue, or with queue id -1 all of a broker, and how it is read."""

    message_queue: MessageQueue
    mode: str = PULL
    attachments: dict[str, str] | None = None


class Assignments(Body):
    """Answer of QUERY_ASSIGNMENT; without a list the client keeps what it has."""

    message_queue_assignments: list[QueueAssignment] | None = None


class RequestMode(Body):
    """Body of SET_MESSAGE_REQUEST_MODE (401): how a group reads a topic."""

    topic: str
    consumer_group: str
    mode: str = PULL
    pop_share_queue_num: int = 0


class RequestModes(Body):
    """Answer of GET_ALL_MESSAGE_REQUEST_MODE (402): by topic, then by group."""

    message_request_mode_map: dict[str, dict[str, RequestMode]] = msgspec.field(
        default_factory=dict
    )
