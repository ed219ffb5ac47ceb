"""Which files of a lake become which: groups of files of one table and day."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from orbitmq.spark.jobs.compact.options import CompactOptions
from orbitmq.spark.jobs.export.names import DLQ
from orbitmq.spark.jobs.export.parts import Place
from orbitmq.spark.jobs.query.lake import LakePart
from orbitmq.units import HOUR_MS

_DAY_MS: Final = 24 * HOUR_MS


class Group(NamedTuple):
    """Files whose rows go into new ones, together."""

    place: Place
    table: str
    parts: tuple[LakePart, ...]

    @property
    def bytes(self) -> int:
        return sum(part.bytes for part in self.parts)


def planned(parts: Sequence[LakePart], options: CompactOptions) -> list[Group]:
    """Return what is to be rewritten; nothing of a day that is as it shall be."""
    wanted = [part for part in parts if not options.topics or part.topic in options.topics]
    # What another engine has put together may be of several days, and stays as it is.
    ordered = sorted((one for one in wanted if _day(one.first_ms) == _day(one.last_ms)), key=_order)
    made = []
    for _, found in groupby(ordered, key=lambda part: (part.table, _day(part.first_ms))):
        day = list(found)
        groups = _whole(day, options) if options.cluster_by else _small(day, options.target_bytes)
        made += [Group(_place(day[0]), day[0].table, tuple(group)) for group in groups]
    return made


def _whole(day: Sequence[LakePart], options: CompactOptions) -> Iterator[Sequence[LakePart]]:
    """Yield all files of a day, unless all are sorted already."""
    if any(part.order != options.cluster_by for part in day):
        yield day


def _small(day: Sequence[LakePart], target_bytes: int) -> Iterator[Sequence[LakePart]]:
    """Yield neighbours in the log that are small, so many that they make a file of good size.

    Files that are sorted stay so.
    """
    group: list[LakePart] = []
    for part in day:
        if part.order or part.bytes * 2 >= target_bytes:
            continue
        group.append(part)
        if sum(one.bytes for one in group) >= target_bytes:
            yield group
            group = []
    if len(group) > 1:
        yield group


def _order(part: LakePart) -> tuple[str, int, int]:
    day = _day(part.first_ms)
    return part.table, -1 if day is None else day, part.first_log_offset


def _day(milliseconds: int | None) -> int | None:
    return None if milliseconds is None else milliseconds // _DAY_MS


def _place(part: LakePart) -> Place:
    return Place(part.topic, _day(part.first_ms), part.table.endswith(DLQ))
