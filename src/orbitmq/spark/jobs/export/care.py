"""Care for a lake: how long it keeps the messages of each topic.

Whole days are removed, in a commit as all others are. The export goes on where it was: what was removed does
not come again.
"""

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import msgspec

from orbitmq.errors import ConfigError
from orbitmq.files.disk import Disk
from orbitmq.spark.jobs.export.commit import finish
from orbitmq.spark.jobs.export.lakes.lake import Lake, lake_at
from orbitmq.spark.jobs.export.names import table_name
from orbitmq.spark.jobs.export.notes import Manifest
from orbitmq.spark.jobs.export.options import catalog_of, lake_place
from orbitmq.spark.jobs.export.values import OTHERS
from orbitmq.spark.remote.address import Address

_KEEP: Final = re.compile(r"(.+)=(\d{1,5})d?")


@dataclass(frozen=True, slots=True)
class ExpireReport:
    """What was removed: of which tables the days before which one."""

    lake: Path | Address
    format: str
    commit: int
    expired: Mapping[str, str]


def parse_keep(texts: Sequence[str]) -> dict[str, int]:
    """Return days by topic from `Orders=30d`; `*` is every other topic."""
    found = {text: _KEEP.fullmatch(text.strip()) for text in texts}
    for text, match in found.items():
        if match is None or int(match[2]) < 1:
            raise ConfigError("keep", text, "must be TOPIC=DAYS, as Orders=30d or '*=90d'")
    if not found:
        raise ConfigError("keep", "", "say how long: TOPIC=DAYS, as Orders=30d or '*=90d'")
    return {match[1]: int(match[2]) for match in found.values() if match is not None}


def expire(
    lake: str | Path,
    keep: Mapping[str, int],
    *,
    now_ms: int | None = None,
    dry_run: bool = False,
    catalog: str | None = None,
    disk: Disk | None = None,
) -> ExpireReport:
    """Remove from a lake the days that are older than `keep` says, by topic, for good.

    `catalog` is the database of Iceberg tables at s3://.
    """
    place = opened(lake, catalog, disk)
    if dry_run:
        return _report(place, _expiring(place, newest(place), keep, now_ms))
    with alone(place) as last:
        manifest = _expiring(place, last, keep, now_ms)
        if manifest.expired:
            place.notes.begin(manifest)
            finish(place, manifest)
    return _report(place, manifest)


def opened(lake: str | Path, catalog: str | None, disk: Disk | None) -> Lake:
    """Return a lake that is there."""
    root = lake_place(lake)
    place = lake_at(root, disk)
    return lake_at(root, disk, catalog_of(root, newest(place).format, catalog))


def newest(lake: Lake) -> Manifest:
    """Return the newest commit, done or begun. ConfigError: there is no lake."""
    newest = lake.notes.pending() or lake.notes.last()
    if newest is None:
        rule = "is no directory that `orbitmq spark export` made"
        raise ConfigError("lake", str(lake.root), rule)
    return newest


@contextmanager
def alone(lake: Lake) -> Iterator[Manifest]:
    """Have the lake to oneself, with everything finished that had begun."""
    with lake.alone():
        pending = lake.notes.pending()
        if pending is not None:
            finish(lake, pending)
        yield newest(lake)


def _tables(lake: Lake, topics: Iterable[str]) -> list[str]:
    """Return the tables that these topics have."""
    names = (table_name(topic, dlq=dlq) for topic in topics for dlq in (False, True))
    return [name for name in names if lake.has_table(name)]


def _report(lake: Lake, manifest: Manifest) -> ExpireReport:
    return ExpireReport(lake.root, manifest.format, manifest.number, manifest.expired)


def _expiring(lake: Lake, last: Manifest, keep: Mapping[str, int], now_ms: int | None) -> Manifest:
    """Return the commit that removes what is too old."""
    unknown = sorted(keep.keys() - last.values.keys() - {OTHERS})
    if unknown:
        raise ConfigError("keep", unknown[0], "the lake has no table of this topic")
    now = datetime.fromtimestamp((now_ms or time.time_ns() // 1_000_000) / 1000, tz=UTC)
    expired: dict[str, str] = {}
    for topic in sorted(last.values):
        days = keep.get(topic, keep.get(OTHERS))
        if days is not None:
            day = (now - timedelta(days=days)).date().isoformat()
            expired |= dict.fromkeys(_tables(lake, [topic]), day)
    return msgspec.structs.replace(
        last,
        number=last.number + 1,
        job="expire",
        committed_ms=round(now.timestamp() * 1000),
        files=[],
        expired=expired,
        replaced={},
    )
