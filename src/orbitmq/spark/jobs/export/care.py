"""Care for a lake: how long it keeps the messages of each topic, and few files instead of many small ones.

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
from orbitmq.files.lock import StoreLock
from orbitmq.spark.jobs.export.commit import finish
from orbitmq.spark.jobs.export.lake_rows import LakeRows
from orbitmq.spark.jobs.export.names import table_name
from orbitmq.spark.jobs.export.notes import Manifest, Notes
from orbitmq.spark.jobs.export.options import Format
from orbitmq.spark.jobs.export.tables import tables_of
from orbitmq.spark.jobs.export.values import OTHERS

_KEEP: Final = re.compile(r"(.+)=(\d{1,5})d?")


@dataclass(frozen=True, slots=True)
class ExpireReport:
    """What was removed: of which tables the days before which one."""

    lake: Path
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
    disk: Disk | None = None,
) -> ExpireReport:
    """Remove from a lake the days that are older than `keep` says, by topic, for good."""
    root, disk = Path(lake).absolute(), disk or Disk()
    notes = Notes(root, disk)
    _newest(notes)
    if dry_run:
        return _report(root, _expiring(root, _newest(notes), keep, now_ms))
    with _alone(notes, disk) as last:
        manifest = _expiring(root, last, keep, now_ms)
        if manifest.expired:
            notes.begin(manifest)
            finish(notes, manifest, disk)
    return _report(root, manifest)


def compact(lake: str | Path, *, disk: Disk | None = None) -> dict[str, tuple[int, int]]:
    """Make few files of many small ones; return by table how many were replaced, and by how many.

    ConfigError: tables of this format cannot be changed so.
    """
    root, disk = Path(lake).absolute(), disk or Disk()
    notes = Notes(root, disk)
    _newest(notes)
    with _alone(notes, disk) as last:
        tables = tables_of(Format(last.format), root, LakeRows(last.values))
        done = {name: tables.compact(name) for name in _tables(root, sorted(last.values))}
        tables.sync(disk)
    return done


def _newest(notes: Notes) -> Manifest:
    newest = notes.pending() or notes.last()
    if newest is None:
        rule = "is no directory that `orbitmq spark export` made"
        raise ConfigError("lake", str(notes.root), rule)
    return newest


@contextmanager
def _alone(notes: Notes, disk: Disk) -> Iterator[Manifest]:
    """Have the lake to oneself, with everything finished that had begun."""
    with StoreLock(disk, notes.lock):
        pending = notes.pending()
        if pending is not None:
            finish(notes, pending, disk)
        yield _newest(notes)


def _tables(root: Path, topics: Iterable[str]) -> list[str]:
    """Return the tables that these topics have."""
    names = (table_name(topic, dlq=dlq) for topic in topics for dlq in (False, True))
    return [name for name in names if (root / name).is_dir()]


def _report(root: Path, manifest: Manifest) -> ExpireReport:
    return ExpireReport(root, manifest.format, manifest.number, manifest.expired)


def _expiring(root: Path, last: Manifest, keep: Mapping[str, int], now_ms: int | None) -> Manifest:
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
            expired |= dict.fromkeys(_tables(root, [topic]), day)
    return msgspec.structs.replace(
        last,
        number=last.number + 1,
        job="expire",
        committed_ms=round(now.timestamp() * 1000),
        files=[],
        expired=expired,
    )
