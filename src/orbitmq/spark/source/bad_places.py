"""What a read does where the log holds no valid record: fail, count and go on, or show the place as a row."""

import logging
from collections.abc import Sequence
from typing import Final

from orbitmq.errors import CorruptRecordError
from orbitmq.log_read import BadPlace
from orbitmq.spark.source.options import BadRecords

logger = logging.getLogger(__name__)

NEXT_STEP: Final = (
    "Read with badRecords=skip or badRecords=keep to go on without it;"
    " `orbitmq store check` lists everything that is wrong with the store."
)
_LOGGED_MAX: Final = 5  # per task: a broken disk has millions


class BadPlaces:
    """Is told of every bad place of one task. Not thread-safe."""

    def __init__(self, mode: BadRecords) -> None:
        self._mode = mode
        self._kept: list[BadPlace] = []
        self.count = 0
        self.byte_count = 0

    def __call__(self, place: BadPlace) -> None:
        """Take note. CorruptRecordError: the read shall fail."""
        if self._mode is BadRecords.FAIL:
            raise CorruptRecordError(place.path, place.position, place.reason, NEXT_STEP)
        self.count += 1
        self.byte_count += place.length
        if self._mode is BadRecords.KEEP:
            self._kept.append(place)
        elif self.count <= _LOGGED_MAX:
            logger.warning("%s: skipped", describe(place))

    def take(self) -> Sequence[BadPlace]:
        """Return the places to be shown since the last call."""
        kept, self._kept = self._kept, []
        return kept

    def say_total(self) -> None:
        """Log how many places were skipped."""
        if self._mode is BadRecords.SKIP and self.count:
            logger.warning("skipped %s bad places of %s bytes", self.count, self.byte_count)


def describe(place: BadPlace) -> str:
    """Return what is wrong and where, as the column `error` shows it."""
    return f"{place.path}, position {place.position}: {place.reason} ({place.length} bytes)"
