"""What options say about a stream: where it starts, how much a batch holds, what becomes of what is gone."""

import json
import logging
import time
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows

from orbitmq.errors import ConfigError, PipelineError
from orbitmq.spark.source.options import OFFSET_MAX, BadRecords, ReadOptions, parse_time
from orbitmq.spark.streams.offsets import Offsets, flat

_log = logging.getLogger(__name__)

UNLIMITED: Final = OFFSET_MAX
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


def default_limit(options: ReadOptions) -> ReadLimit:
    """Return the limit that the options set. Spark knows one kind at a time: see `limits`."""
    if options.max_rows_per_trigger is not None:
        return ReadMaxRows(options.max_rows_per_trigger)
    if options.max_bytes_per_trigger is not None:
        return ReadMaxBytes(options.max_bytes_per_trigger)
    return ReadAllAvailable()


def limits(options: ReadOptions, limit: ReadLimit) -> tuple[int, int]:
    """Return the most rows and the most bytes of a batch for which Spark gives this limit.

    A trigger that wants everything at once (Trigger.Once) says ReadAllAvailable, whatever the options are.
    """
    if isinstance(limit, ReadAllAvailable):
        return UNLIMITED, UNLIMITED
    rows = options.max_rows_per_trigger or UNLIMITED
    bytes_max = options.max_bytes_per_trigger or UNLIMITED
    if isinstance(limit, ReadMaxRows):
        rows = limit.max_rows
    if isinstance(limit, ReadMaxBytes):
        bytes_max = limit.max_bytes
    return rows, bytes_max


def pass_over(
    options: ReadOptions, what: str, next_step: str, cause: Exception | None = None
) -> None:
    """Say that messages were deleted before they were read. PipelineError: the read shall fail."""
    if options.bad_records is BadRecords.FAIL:
        raise PipelineError(what, next_step) from cause
    _log.warning("%s; going on behind that (badRecords=%s)", what, options.bad_records)
