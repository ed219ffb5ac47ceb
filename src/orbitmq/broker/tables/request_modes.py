"""RequestModeTable: which groups pop which topics instead of pulling them, as operators set it.

Saved as config/messageRequestMode.json at every change.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from orbitmq.errors import FieldError, StateFileError
from orbitmq.wire.bodies.assignment import RequestMode, RequestModes

MODES_FILE: Final = "messageRequestMode.json"


class RequestModeTable:
    """Modes by topic and group. Belongs to the event loop's thread."""

    def __init__(self) -> None:
        self._table: dict[str, dict[str, RequestMode]] = {}
        self.changes = 0
        self.on_change: list[Callable[[], None]] = []

    def get(self, topic: str, group: str) -> RequestMode | None:
        return self._table.get(topic, {}).get(group)

    def put(self, mode: RequestMode) -> None:
        """Set how a group reads a topic."""
        self._table.setdefault(mode.topic, {})[mode.consumer_group] = mode
        self.changes += 1
        for listener in self.on_change:
            listener()

    def take_over(self, told: RequestModes) -> None:
        """Become the table that a primary tells."""
        if told.message_request_mode_map == self._table:
            return
        self._table = told.message_request_mode_map
        self.changes += 1
        for listener in self.on_change:
            listener()

    def body(self) -> RequestModes:
        return RequestModes(message_request_mode_map=self._table)

    def snapshot(self) -> dict[str, Any]:
        """Return what messageRequestMode.json holds."""
        rows = {topic: dict(row) for topic, row in self._table.items()}
        return {"messageRequestModeMap": rows}

    def load(self, state: Mapping[str, Any], path: Path) -> None:
        """Take over what messageRequestMode.json holds. StateFileError: it cannot be understood."""
        try:
            self._table = RequestModes.of(state).message_request_mode_map
        except FieldError as cause:
            step = "Move it away, and set the modes again with `mqadmin setConsumeMode`."
            raise StateFileError(path, f"is no table of request modes: {cause}", step) from cause
