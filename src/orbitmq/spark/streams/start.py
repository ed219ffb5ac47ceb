"""Where a new stream starts: what the option startingOffsets says."""

import json
import time
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from orbitmq.errors import ConfigError
from orbitmq.spark.source.options import parse_time
from orbitmq.spark.streams.offsets import Offsets, flat

_OPTION: Final = "startingOffsets"
_TIME: Final = "timestamp:"
_RULE: Final = (
    "must be earliest, latest, timestamp:<time> (timestamp:now-1h, timestamp:2026-11-15T20:31), or for a"
    ' cluster {"topic": {"broker": {"queue": offset}}}'
)


class StartKind(Enum):
    """The ways to say where to start."""

    EARLIEST = "earliest"
    LATEST = "latest"
    TIME = "timestamp"
    QUEUES = "queues"


@dataclass(frozen=True, slots=True)
class Start:
    """Where a new stream starts. With QUEUES, those that are not named start at their first message."""

    kind: StartKind
    time_ms: int = 0
    queues: Offsets = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> "Start":
        """Return what the option says. ConfigError: nothing that can be understood."""
        word = text.strip()
        if word.lower() in (StartKind.EARLIEST.value, StartKind.LATEST.value):
            return cls(StartKind(word.lower()))
        if word.lower().startswith(_TIME):
            now_ms = time.time_ns() // 1_000_000
            return cls(StartKind.TIME, parse_time(_OPTION, word[len(_TIME) :].strip(), now_ms))
        if not word.startswith("{"):
            raise ConfigError(_OPTION, text, _RULE)
        try:
            return cls(StartKind.QUEUES, queues=flat(json.loads(word)))
        except (ValueError, TypeError, AttributeError) as cause:
            raise ConfigError(_OPTION, text, _RULE) from cause
