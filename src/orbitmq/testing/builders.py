"""Messages to append: the same number always gives the same message."""

import random
from collections.abc import Iterator, Mapping
from typing import Final

from orbitmq.format.properties import encode_properties
from orbitmq.message import DLQ_PREFIX, RETRY_PREFIX, AppendRequest, Host, Property, SysFlag

BORN_MS: Final = 1_700_000_000_000
HOST_V4: Final = Host(bytes((192, 0, 2, 7)), 10909)
HOST_V6: Final = Host(bytes.fromhex("20010db8000000000000000000000042"), 10909)

TAGS: Final = ("TagA", "TagB", "Aa", "BB", "订单", "polygenelubricants", None)
"""Two with equal Java hashes, one beyond ASCII, one whose hash is the smallest int, none at all."""

LONG_TOPIC: Final = RETRY_PREFIX + "g" * 140
"""Too long for one length byte: its records have version 2."""


def make_request(
    number: int,
    topic: str = "TopicTest",
    queue_id: int | None = None,
    *,
    body: bytes | None = None,
    body_bytes: int | None = None,
    tag: str | None = "TagA",
    keys: str | None = None,
    unique: bool = True,
    properties: Mapping[str, str] | None = None,
    sys_flag: int = 0,
    born_host: Host = HOST_V4,
    store_host: Host | None = None,
) -> AppendRequest:
    """Return message `number`: its body, keys and id follow from the number, unless they are given.

    Without `queue_id` the messages of a topic take turns over four queues. With `unique` it has a
    UNIQ_KEY, as every message of a real client has.
    """
    if body is None:
        body = make_body(number, 100 if body_bytes is None else body_bytes)
    return AppendRequest(
        topic=topic,
        queue_id=number % 4 if queue_id is None else queue_id,
        body=body,
        properties=encode_properties(_properties(number, tag, keys, unique, properties)),
        flag=number % 7,
        sys_flag=sys_flag | _host_flags(born_host, store_host),
        born_ms=BORN_MS + number,
        born_host=born_host,
        store_host=store_host,
    )


def make_body(number: int, length: int) -> bytes:
    """Return bytes that look random and are always the same for this number."""
    return random.Random(number).randbytes(length)


def unique_key(number: int) -> str:
    return f"7F0000010000{number:020X}"


def mixed_requests(count: int, *, seed: int = 0, first: int = 0) -> Iterator[AppendRequest]:
    """Yield messages of every kind that one broker sees, `first` being the number of the first one."""
    for number in range(first, first + count):
        yield mixed_request(number, seed=seed)


def mixed_request(number: int, *, seed: int = 0) -> AppendRequest:
    """Return a message whose kind follows from its number: most are plain, the others of every kind."""
    chance = random.Random(f"{seed}/{number}")
    topic = chance.choice(("OrderTopic", "StockTopic", "LogTopic"))
    tag = chance.choice(TAGS)
    keys = chance.choice(
        (None, f"k{number % 50}", f"k{number % 50} only{number}", f" a  b{number} ")
    )
    body_bytes = chance.choice((0, 1, 20, 100, 300, 1024, 4000))
    match chance.randrange(10):
        case 0:
            return make_request(number, topic, tag=tag, body_bytes=body_bytes, born_host=HOST_V6)
        case 1:
            return make_request(number, topic, born_host=HOST_V6, store_host=HOST_V6, keys=keys)
        case 2:
            return delayed_request(number, topic, level=chance.randint(1, 18))
        case 3:
            return transaction_request(number, topic, step=chance.choice(TRANSACTION_STEPS))
        case 4:
            return make_request(number, LONG_TOPIC, 0, tag=tag, body_bytes=body_bytes)
        case 5:
            return make_request(number, DLQ_PREFIX + "group", 0, tag=None, keys=keys, unique=False)
        case 6:
            many = {f"名{index}": f"值 {index}" for index in range(20)}
            return make_request(number, topic, tag=tag, keys=keys, properties=many)
    return make_request(number, topic, tag=tag, keys=keys, body_bytes=body_bytes)


TRANSACTION_STEPS: Final = (SysFlag.PREPARED, SysFlag.COMMIT, SysFlag.ROLLBACK)


def transaction_request(
    number: int, topic: str = "TopicTest", *, step: SysFlag = SysFlag.PREPARED
) -> AppendRequest:
    """Return one step of a transaction, with the sys_flag that a broker appends it with."""
    extra = {"TRAN_MSG": "true", "PGROUP": "producers"}
    request = make_request(number, topic, properties=extra, sys_flag=step)
    request.prepared_offset = 0 if step is SysFlag.PREPARED else number * 1000
    return request


def delayed_request(number: int, topic: str = "TopicTest", *, level: int = 3) -> AppendRequest:
    """Return a message that asks for a delay level, as a producer sends it."""
    return make_request(number, topic, properties={Property.DELAY: str(level)})


def _properties(
    number: int,
    tag: str | None,
    keys: str | None,
    unique: bool,
    more: Mapping[str, str] | None,
) -> dict[str, str]:
    found = dict(more or {})
    if tag is not None:
        found[Property.TAGS] = tag
    if keys is not None:
        found[Property.KEYS] = keys
    if unique:
        found[Property.UNIQ_KEY] = unique_key(number)
    return found


def _host_flags(born_host: Host, store_host: Host | None) -> int:
    flags = 0
    if len(born_host.address) == 16:
        flags |= SysFlag.BORN_HOST_V6
    if store_host is not None and len(store_host.address) == 16:
        flags |= SysFlag.STORE_HOST_V6
    return int(flags)
