"""Every kind of message that a store can hold, so that RocketMQ can be asked whether it reads them all."""

import random
from collections.abc import Iterator
from typing import Final

from orbitmq.format.client_batch import ClientMessage, encode_client_batch
from orbitmq.format.properties import encode_properties
from orbitmq.message import AppendRequest, Host, SysFlag

IPV4: Final = Host(bytes((10, 1, 2, 3)), 40001)
IPV6: Final = Host(bytes.fromhex("20010db8000000000000000000c0ffee"), 40002)
LONG_TOPIC: Final = "%RETRY%" + "long_group_name_" * 9  # more than 127: version 2 records
BATCH_TOPIC: Final = "BatchT"  # its queues are BatchCQ
BORN_MS: Final = 1_700_000_000_000
BODY_BYTES_MAX: Final = 20_000

TAGS: Final = ("", "TagA", "Aa", "BB", "订单", "\U0001f600", "polygenelubricants")
TOPICS: Final = ("KindsA", "KindsB", "KindsAa", "KindsBB", "%DLQ%some_group", LONG_TOPIC)


def single_messages(count: int, seed: int) -> Iterator[AppendRequest]:
    """Yield messages that go in one by one; each has a unique key with its number."""
    chance = random.Random(seed)
    for number in range(count):
        yield AppendRequest(
            topic=chance.choice(TOPICS),
            queue_id=chance.randrange(3),
            body=_body(chance),
            properties=encode_properties(_properties(chance, number)),
            flag=chance.choice((0, 0, 1, -1, 2**31 - 1)),
            sys_flag=_sys_flag(chance),
            born_ms=BORN_MS + number,
            born_host=chance.choice((IPV4, IPV4, IPV6)),
            store_host=chance.choice((None, None, None, IPV4, IPV6)),
            reconsume_times=chance.choice((0, 0, 3)),
            prepared_offset=chance.choice((0, 0, 12345)),
        )


def _body(chance: random.Random) -> bytes:
    lengths = (0, 1, 10, 100, 100, 500, 500, 2000, 5000, BODY_BYTES_MAX)
    return chance.randbytes(chance.choice(lengths))


def _sys_flag(chance: random.Random) -> int:
    flags = [0] * 12 + [SysFlag.COMMIT, SysFlag.PREPARED, SysFlag.ROLLBACK]
    # As producers mark bodies that they compressed with LZ4 and ZSTD; the store never looks inside.
    return int(chance.choice([*flags, 0x101, 0x201]))


def _properties(chance: random.Random, number: int) -> dict[str, str]:
    properties = {"UNIQ_KEY": f"7F000001{number:024X}"}
    if tag := chance.choice(TAGS):
        properties["TAGS"] = tag
    if chance.random() < 0.5:
        keys = [f"one{number}", f"pair{number // 2}", "schlüssel-键"]
        properties["KEYS"] = chance.choice((" ", "  ")).join(keys[: chance.randrange(1, 4)])
        # A key that everybody has would be cut at 64 hits; some dozens are enough to see the order.
        if number > 60:
            properties["KEYS"] = properties["KEYS"].replace(" schlüssel-键", "")
    if chance.random() < 0.1:
        properties["DELAY"] = str(chance.choice((1, 3, 18, 99)))
    if chance.random() < 0.1:
        properties |= {f"name-{i}-имя": "value " * i + "\x01 ☃" for i in range(1, 20)}
    return properties


def client_batches(count: int, seed: int) -> Iterator[AppendRequest]:
    """Yield producers' batches: each becomes several records."""
    chance = random.Random(seed)
    for number in range(count):
        messages = [
            ClientMessage(
                chance.randbytes(chance.randrange(300)),
                encode_properties({"KEYS": f"batch{number}-{i}", "TAGS": "TagA"}),
                flag=i,
            )
            for i in range(chance.randrange(2, 9))
        ]
        yield AppendRequest(
            topic="KindsBatch",
            queue_id=number % 2,
            body=encode_client_batch(messages),
            properties=encode_properties({"WAIT": "true", "UNIQ_KEY": f"BA7C{number:028X}"}),
            born_ms=BORN_MS,
            born_host=IPV4,
        )


def inner_batches(count: int, seed: int) -> Iterator[AppendRequest]:
    """Yield messages of the BatchCQ topic: batches that stay one record, and single messages."""
    chance = random.Random(seed)
    for number in range(count):
        size = chance.randrange(1, 8)
        properties = {"UNIQ_KEY": f"1AAE{number:028X}"}
        body, flags = chance.randbytes(50), 0
        if size > 1:
            messages = [ClientMessage(chance.randbytes(40)) for _ in range(size)]
            body, flags = encode_client_batch(messages), SysFlag.NEED_UNWRAP | SysFlag.INNER_BATCH
            properties["INNER_NUM"] = str(size)
        yield AppendRequest(
            topic=BATCH_TOPIC,
            queue_id=number % 2,
            body=body,
            properties=encode_properties(properties),
            sys_flag=int(flags),
            born_ms=BORN_MS,
            born_host=IPV4,
        )
