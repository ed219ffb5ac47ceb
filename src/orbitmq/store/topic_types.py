"""Which kind of consume queue a topic has, from the broker's table of topics."""

from collections.abc import Callable
from pathlib import Path

from orbitmq.errors import StateFileError
from orbitmq.files.disk import Disk
from orbitmq.files.state_file import read_state
from orbitmq.message import QueueType

TopicTypes = Callable[[str], QueueType]

_ATTRIBUTE = "queue.type"


def all_simple(_: str) -> QueueType:
    """Where nothing is known of topics."""
    return QueueType.SIMPLE


def read_topic_types(path: Path, disk: Disk) -> TopicTypes:
    """Return the lookup that `config/topics.json` describes; a topic that is not in it is simple.

    StateFileError: the file is there and cannot be understood.
    """
    batch = read_batch_topics(path, disk)

    def topic_type(topic: str) -> QueueType:
        return QueueType.BATCH if topic in batch else QueueType.SIMPLE

    return topic_type


def read_batch_topics(path: Path, disk: Disk) -> frozenset[str]:
    """Return the topics whose queues are batch queues. StateFileError as above."""
    table = read_state(path, disk=disk).get("topicConfigTable", {})
    if not isinstance(table, dict):
        raise _wrong(path, "topicConfigTable is not a table")
    return frozenset(topic for topic, row in table.items() if _is_batch(path, topic, row))


def _is_batch(path: Path, topic: str, row: object) -> bool:
    attributes = row.get("attributes") if isinstance(row, dict) else None
    if attributes is None and isinstance(row, dict):
        return False
    if not isinstance(attributes, dict):
        raise _wrong(path, f"topic {topic!r} has no attributes that can be read")
    return attributes.get(_ATTRIBUTE) == QueueType.BATCH.value


def _wrong(path: Path, what: str) -> StateFileError:
    step = "Restore the file from a backup, or move it away to start with an empty table."
    return StateFileError(path, what, step)
