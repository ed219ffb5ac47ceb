"""Header of CONSUMER_SEND_MSG_BACK (36): a message that a consumer could not handle."""

from orbitmq.wire.headers.header import Header


class SendBackHeader(Header):
    """Which message is given back, and when it shall come again. The answer has no fields."""

    offset: int  # log offset of the message
    group: str
    delay_level: int  # below 0: dead letters at once; 0: the broker chooses
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: int | None = None
    bname: str | None = None
