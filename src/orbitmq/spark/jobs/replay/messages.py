"""What is replayed: rows of a message table, where each goes, and the message that is sent for it.

property              | of a replayed message
ORBITMQ_REPLAY        | the id of the replay
ORBITMQ_REPLAY_FROM   | address of the broker, queue id and queue offset of the original
ORBITMQ_REPLAY_TOPIC  | its topic
ORBITMQ_REPLAY_ID     | its message id
ORBITMQ_REPLAY_BORN   | when it was sent, epoch milliseconds
ORBITMQ_REPLAY_STORED | when it was stored

Body, tag, keys, flag and the producer's own properties are those of the original.
"""

from typing import Any, Final, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  (Spark's own habit)

from orbitmq.client import Message
from orbitmq.client.core.name_rules import RESERVED_PROPERTIES
from orbitmq.errors import ConfigError, JobFailedError
from orbitmq.message import NO_SEND_TOPICS, TIMER_TOPIC, SysFlag

REPLAY: Final = "ORBITMQ_REPLAY"
FROM: Final = f"{REPLAY}_FROM"
TOPIC: Final = f"{REPLAY}_TOPIC"
ID: Final = f"{REPLAY}_ID"
BORN: Final = f"{REPLAY}_BORN"
STORED: Final = f"{REPLAY}_STORED"
OURS: Final = frozenset((REPLAY, FROM, TOPIC, ID, BORN, STORED))

TARGET: Final = "target"
_COLUMNS: Final = frozenset(
    (
        *("topic", "queue_id", "queue_offset", "log_offset", "size", "store_host", "sys_flag"),
        *("message_id", "offset_id", "born_time", "store_time"),
        *("tags", "keys", "properties", "flag", "body"),
    )
)
ORIGINS: Final = ("DLQ_ORIGIN_TOPIC", "RETRY_TOPIC")
"""Properties by which a dead letter says where it belongs; the first one is of RocketMQ 5."""
_SYSTEM_PREFIX: Final = "rmq_sys_"


class Origin(NamedTuple):
    """A queue that originals lie in."""

    store_host: str
    topic: str
    queue_id: int


def replayed_rows(frame: DataFrame, to_topic: str | None) -> DataFrame:
    """Return the messages among the rows, each with the topic that it goes to.

    Without `to_topic` that is where a dead letter says that it came from, null if it does not.
    """
    missing = sorted(_COLUMNS - set(frame.columns))
    if missing:
        rule = "a replay needs all columns of a message table"
        raise ConfigError("columns", ", ".join(missing), rule)
    topic = F.col("topic")
    inner = topic.isin(*NO_SEND_TOPICS, TIMER_TOPIC) | topic.startswith(_SYSTEM_PREFIX)
    return frame.where(~inner).withColumn(TARGET, _target(to_topic))


def _target(to_topic: str | None) -> Column:
    if to_topic is not None:
        return F.lit(to_topic)
    return F.coalesce(*(F.col("properties").getItem(name) for name in ORIGINS))


def sent_columns(rows: DataFrame) -> DataFrame:
    """Return what the driver needs to send a row."""
    return rows.select(
        TARGET,
        *("topic", "queue_id", "queue_offset", "store_host", "size"),
        F.coalesce("message_id", "offset_id").alias("id"),
        F.unix_millis("born_time").alias("born_ms"),
        F.unix_millis("store_time").alias("store_ms"),
        *("tags", "keys", "properties", "flag", "sys_flag", "body"),
    )


def origin_of(row: Any) -> Origin:
    return Origin(row.store_host, row.topic, row.queue_id)


def message_of(row: Any, replay: str) -> Message:
    """Return the message that is sent for a row."""
    if row.sys_flag & (SysFlag.INNER_BATCH | SysFlag.PREPARED):
        what = f"{row.topic} {row.queue_id}:{row.queue_offset} is an inner batch or a half message"
        raise JobFailedError(what, "Leave such messages out of the selection.")
    if row.body is None:
        what = f"{row.topic} {row.queue_id}:{row.queue_offset} was read without its body"
        raise JobFailedError(what, "Read with includeBody=true.")
    own = {
        name: value
        for name, value in (row.properties or {}).items()
        if name and value and name not in RESERVED_PROPERTIES and name not in OURS
    }
    return Message(
        row.target,
        bytes(row.body),
        tag=row.tags or "",
        keys=list(row.keys or ()),
        flag=row.flag or 0,
        properties=own | _told(row, replay),
    )


def _told(row: Any, replay: str) -> dict[str, str]:
    """Return the properties that tell of the original."""
    times = {BORN: row.born_ms, STORED: row.store_ms}
    return {
        REPLAY: replay,
        FROM: f"{row.store_host} {row.queue_id} {row.queue_offset}",
        TOPIC: row.topic,
        ID: row.id,
        **{name: str(value) for name, value in times.items() if value is not None},
    }


def told_origin(properties: dict[str, str]) -> tuple[Origin, int] | None:
    """Return the queue and the queue offset of a replayed message's original; None: it tells nothing."""
    words = properties.get(FROM, "").rsplit(" ", 2)
    if len(words) != 3 or not words[1].isdecimal() or not words[2].isdecimal():
        return None
    return Origin(words[0], properties.get(TOPIC, ""), int(words[1])), int(words[2])
