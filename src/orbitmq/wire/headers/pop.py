"""Headers of pop consumption: requests 200050 to 200055, and their answers."""

from orbitmq.wire.headers.header import Header


class PopHeader(Header):
    """POP_MESSAGE (200050): some messages of a topic, for a limited time."""

    consumer_group: str
    topic: str
    queue_id: int  # -1: any
    max_msg_nums: int
    invisible_time: int
    poll_time: int  # so long it may wait for a message
    born_time: int = 0  # when the client asked; 0: it does not say
    init_mode: int = 0  # where a new group begins: 0 at the first message, 1 at the last
    exp_type: str | None = None
    exp: str | None = None
    order: bool | None = None
    attempt_id: str | None = None
    bname: str | None = None


class PopAnswer(Header):
    """How a pop ended; refusals have the first four as 0."""

    pop_time: int = 0
    invisible_time: int = 0
    revive_qid: int = 0
    rest_num: int = 0
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None


class AckHeader(Header):
    """ACK_MESSAGE (200051): a popped message is done with."""

    consumer_group: str
    topic: str  # where it lies: the retry topic, if it came from there
    queue_id: int
    extra_info: str  # its receipt
    offset: int
    bname: str | None = None


class PeekHeader(Header):
    """PEEK_MESSAGE (200052): as a pop, and nothing changes."""

    consumer_group: str
    topic: str
    queue_id: int
    max_msg_nums: int
    bname: str | None = None


class ChangeInvisibleHeader(Header):
    """CHANGE_MESSAGE_INVISIBLETIME (200053): a popped message comes again at another time."""

    consumer_group: str
    topic: str
    queue_id: int
    extra_info: str
    offset: int
    invisible_time: int
    bname: str | None = None


class ChangeInvisibleAnswer(Header):
    """What the new receipt is made of."""

    pop_time: int = 0
    invisible_time: int = 0
    revive_qid: int = 0


class NotificationHeader(Header):
    """NOTIFICATION (200054): tell me when there is something to pop."""

    consumer_group: str
    topic: str
    queue_id: int
    poll_time: int
    born_time: int = 0
    order: bool | None = None
    attempt_id: str | None = None
    bname: str | None = None


class NotificationAnswer(Header):
    """Whether there is something, or too many wait already."""

    has_msg: bool
    polling_full: bool = False


class PollingInfoHeader(Header):
    """POLLING_INFO (200055): how many pops wait?"""

    consumer_group: str
    topic: str
    queue_id: int
    bname: str | None = None


class PollingInfoAnswer(Header):
    """So many."""

    polling_num: int
