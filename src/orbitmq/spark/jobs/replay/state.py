"""How far a replay is, in a file, so that a second run goes on where the first one stopped.

The file is written before the first message is sent and every few seconds after that. What was sent since is
found in the topics themselves: replayed messages carry the id of the replay and the place of their original
(`messages`), and the file says from where on to look. So a message is sent again only if it is not there.
"""

import json
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orbitmq.errors import ConfigError, StateFileError
from orbitmq.files.disk import Disk
from orbitmq.files.replace import read_whole, replace_file
from orbitmq.spark.jobs.replay.messages import Origin
from orbitmq.wire.bodies.message_queue import MessageQueue


@dataclass(slots=True)
class ReplayState:
    """One replay, as it is known. `marks` are queue offsets of the last originals that were sent."""

    what: str
    """Which messages go where; another selection cannot go on with this state."""
    replay: str = field(default_factory=lambda: uuid.uuid4().hex)
    sent: int = 0
    finished: bool = False
    marks: dict[Origin, int] = field(default_factory=dict)
    ends: dict[MessageQueue, int] = field(default_factory=dict)
    """From where on the queues of the targets may hold replayed messages that are not in `marks`."""
    client_id: str = ""
    """Who sends, or did so last."""

    def is_sent(self, origin: Origin, queue_offset: int) -> bool:
        return queue_offset <= self.marks.get(origin, -1)

    def note(self, origin: Origin, queue_offset: int) -> None:
        """Remember that an original was sent; those of a queue are sent in order."""
        self.marks[origin] = max(queue_offset, self.marks.get(origin, -1))


class StateFile:
    """The file of a state. Not thread-safe."""

    def __init__(self, path: Path, disk: Disk | None = None) -> None:
        self.path, self._disk = path, disk or Disk()

    def load(self, what: str) -> ReplayState | None:
        """Return the state of this replay, None if there is none yet. ConfigError: it is another's."""
        data = read_whole(self._disk, self.path)
        if data is None:
            return None
        try:
            state = _decoded(json.loads(data))
        except (ValueError, KeyError, TypeError) as cause:
            step = "Move it away: the replay then starts from its beginning, with an id of its own."
            raise StateFileError(self.path, f"is no state of a replay ({cause})", step) from cause
        if state.what != what:
            rule = f"is the state of another replay ({state.what}); give another file"
            raise ConfigError("--state", str(self.path), rule)
        return state

    def save(self, state: ReplayState) -> None:
        """Write a state; durable when this returns."""
        replace_file(self._disk, self.path, json.dumps(_encoded(state), indent=1).encode())


def _encoded(state: ReplayState) -> dict[str, Any]:
    return {
        "what": state.what,
        "replay": state.replay,
        "sent": state.sent,
        "finished": state.finished,
        "marks": [[*origin, offset] for origin, offset in sorted(state.marks.items())],
        "ends": [
            [queue.topic, queue.broker_name, queue.queue_id, offset]
            for queue, offset in sorted(state.ends.items())
        ],
        "client_id": state.client_id,
    }


def _decoded(value: dict[str, Any]) -> ReplayState:
    return ReplayState(
        str(value["what"]),
        str(value["replay"]),
        int(value["sent"]),
        bool(value["finished"]),
        {
            Origin(host, topic, int(queue)): int(offset)
            for host, topic, queue, offset in value["marks"]
        },
        {
            MessageQueue(topic, broker, int(queue)): int(offset)
            for topic, broker, queue, offset in value["ends"]
        },
        str(value.get("client_id", "")),
    )
