"""Messages that can be told from their number alone, and the acknowledgements that a writer leaves.

A writer process and the checker that looks at its store share only a seed: message `number` is the same
for both, so the checker knows what every record must hold without having seen it being written.
"""

import random
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from orbitmq.files.disk import Disk
from orbitmq.files.state_file import write_state
from orbitmq.format.properties import encode_properties
from orbitmq.message import AppendRequest, Host, SysFlag

TOPICS: Final = ("CrashA", "CrashB", "CrashC", "CrashD")
BATCH_TOPIC: Final = "CrashBatch"  # its queues are BatchCQ, where a store has batches
QUEUES_PER_TOPIC: Final = 3
NUMBER: Final = "NUMBER"  # the property that carries a message's number
BODY_SIZES: Final = (0, 1, 40, 120, 200, 300, 700, 3000)
BORN_HOST: Final = Host(b"\x0a\x00\x00\x07", 4321)

_ACK: Final = struct.Struct(">qqqi")
FLUSHED: Final = -1
OPENED: Final = -2
NOWHERE: Final = -1
ENDLESS: Final = 1_000_000  # messages of one life at most; the numbers of the next one start there
TOGETHER_MAX: Final = 40  # messages of one append


class Ack(NamedTuple):
    """An append that returned PUT_OK; with NOWHERE as its offset, one that was refused.

    Or, with a negative number, a mark. FLUSHED: the store said that everything below `log_offset` is on
    disk. OPENED: it has started.
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


def request(seed: int, number: int, *, batches: bool = False, few: bool = False) -> AppendRequest:
    """Return message `number`; with `batches` some are inner batches, or plain ones beside them.

    `few`: queues, for tests that look at all files again and again.
    """
    chance = random.Random(seed << 32 | number)
    properties = {NUMBER: str(number), "UNIQ_KEY": f"{seed:08X}{number:024X}"}
    if chance.random() < 0.5:
        properties["TAGS"] = chance.choice(("TagA", "TagB", "Aa", "BB"))
    if chance.random() < 0.4:
        properties["KEYS"] = f"one{number} pair{number // 2}"
    kind = chance.random()
    sys_flag = SysFlag.PREPARED if kind < 0.02 else SysFlag.ROLLBACK if kind < 0.03 else SysFlag(0)
    topic = chance.choice(TOPICS[:2] if few else TOPICS)
    if batches and chance.random() < 0.3:
        topic = BATCH_TOPIC
        sys_flag = SysFlag.INNER_BATCH if chance.random() < 0.7 else SysFlag(0)
        if sys_flag:
            properties["INNER_NUM"] = str(chance.randrange(1, 6))
    return AppendRequest(
        topic=topic,
        queue_id=0 if few else chance.randrange(QUEUES_PER_TOPIC),
        body=chance.randbytes(chance.choice(BODY_SIZES)),
        properties=encode_properties(properties),
        flag=chance.randrange(4),
        sys_flag=int(sys_flag),
        born_ms=1_700_000_000_000 + number,
        born_host=BORN_HOST,
    )


def write_topics(root: Path, disk: Disk) -> None:
    """Leave the table of topics that makes BATCH_TOPIC what it is."""
    path = root / "config" / "topics.json"
    if not path.exists():
        row = {"topicName": BATCH_TOPIC, "attributes": {"queue.type": "BatchCQ"}}
        write_state(disk, path, {"topicConfigTable": {BATCH_TOPIC: row}})
