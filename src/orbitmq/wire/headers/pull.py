"""Headers of pulling: requests 11 and 361, and their answer."""

from dataclasses import field

from orbitmq.wire.headers.header import Header


class PullHeader(Header):
    """What a consumer wants of one queue. The bits of `sys_flag` are `PullFlag`s."""

    consumer_group: str
    topic: str
    queue_id: int
    queue_offset: int  # the first that is wanted
    max_msg_nums: int
    sys_flag: int
    commit_offset: int
    suspend_timeout_millis: int
    sub_version: int
    subscription: str | None = None  # only with PullFlag.SUBSCRIPTION
    expression_type: str | None = None  # TAG or SQL92; none means TAG
    max_msg_bytes: int | None = None
    request_source: int | None = None
    proxy_client_id: str | None = field(
        default=None,
        metadata={"wire": "proxyFrowardClientId"},  # sic
    )
    bname: str | None = None


class PullAnswer(Header):
    """How a pull ended; the first four stand in every answer with code 0, 19, 20 or 21."""

    suggest_which_broker_id: int
    next_begin_offset: int
    min_offset: int
    max_offset: int
    topic_sys_flag: int | None = None
    group_sys_flag: int | None = None
    offset_delta: int | None = None
    forbidden_type: int | None = None
