"""Messages that can be told from their number alone, and the acknowledgements that a writer leaves.

A writer process and the checker that looks at its store share only a seed: message `number` is the same
for both, so the checker knows what every record must hold without having seen it being written.
"""

import random
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from orbitmq.format.properties import encode_properties
from orbitmq.message import AppendRequest, Host, SysFlag

TOPICS: Final = ("CrashA", "CrashB", "CrashC", "CrashD")
QUEUES_PER_TOPIC: Final = 3
NUMBER: Final = "NUMBER"  # the property that carries a message's number
BODY_SIZES: Final = (0, 1, 40, 120, 200, 300, 700, 3000)
BORN_HOST: Final = Host(b"\x0a\x00\x00\x07", 4321)

_ACK: Final = struct.Struct(">qqqi")
FLUSHED: Final = -1
OPENED: Final = -2


class Ack(NamedTuple):
    """An append that returned PUT_OK; or, with a negative number, a mark.

    FLUSHED: the store said that everything below `log_offset` is on disk. OPENED: it has started.
    """

    number: int
    log_offset: int
    queue_offset: int = 0
    size: int = 0

    def packed(self) -> bytes:
        return _ACK.pack(*self)


def read_acks(path: Path) -> Iterator[Ack]:
    """Yield the acknowledgements that a writer left; one that was cut by a kill does not count."""
    data = path.read_bytes() if path.exists() else b""
    for position in range(0, len(data) - _ACK.size + 1, _ACK.size):
        yield Ack(*_ACK.unpack_from(data, position))


def request(seed: int, number: int) -> AppendRequest:
    """Return message `number`."""
    chance = random.Random(seed << 32 | number)
    properties = {NUMBER: str(number), "UNIQ_KEY": f"{seed:08X}{number:024X}"}
    if chance.random() < 0.5:
        properties["TAGS"] = chance.choice(("TagA", "TagB", "Aa", "BB"))
    if chance.random() < 0.4:
        properties["KEYS"] = f"one{number} pair{number // 2}"
    kind = chance.random()
    sys_flag = SysFlag.PREPARED if kind < 0.02 else SysFlag.ROLLBACK if kind < 0.03 else 0
    return AppendRequest(
        topic=chance.choice(TOPICS),
        queue_id=chance.randrange(QUEUES_PER_TOPIC),
        body=chance.randbytes(chance.choice(BODY_SIZES)),
        properties=encode_properties(properties),
        flag=chance.randrange(4),
        sys_flag=int(sys_flag),
        born_ms=1_700_000_000_000 + number,
        born_host=BORN_HOST,
    )
