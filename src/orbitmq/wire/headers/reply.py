"""Header of PUSH_REPLY_MESSAGE_TO_CLIENT (326): a reply on its way from the broker to who asked."""

from orbitmq.wire.headers.header import Header


class ReplyHeader(Header):
    """A reply, everything but its body; as it was sent, and what the broker knows of it."""

    producer_group: str | None = None  # of the replier
    topic: str
    default_topic: str | None = None
    default_topic_queue_nums: int | None = None
    queue_id: int
    sys_flag: int
    born_timestamp: int
    flag: int
    properties: str | None = None
    reconsume_times: int | None = None
    unit_mode: bool = False
    born_host: str | None = None  # "ip:port" of the replier
    store_host: str | None = None
    store_timestamp: int
