"""How long a lake keeps the messages of each topic: whole days, removed in a commit as all others are.

The export goes on where it was: what a lake has removed it does not bring again.
"""

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import msgspec

from orbitmq.errors import ConfigError
from orbitmq.files.disk import Disk
from orbitmq.files.lock import StoreLock
from orbitmq.spark.jobs.export.commit import finish
from orbitmq.spark.jobs.export.names import table_name
from orbitmq.spark.jobs.export.notes import Manifest, Notes
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
    if notes.last() is None and notes.pending() is None:
        raise ConfigError("lake", str(root), "is no directory that `orbitmq spark export` made")
    if dry_run:
        last = notes.pending() or notes.last()
        assert last is not None
        return _report(root, _expiring(root, last, keep, now_ms))
    with StoreLock(disk, notes.lock):
        pending = notes.pending()
        if pending is not None:
            finish(notes, pending, disk)
        last = notes.last()
        assert last is not None
        manifest = _expiring(root, last, keep, now_ms)
        if manifest.expired:
            notes.begin(manifest)
            finish(notes, manifest, disk)
    return _report(root, manifest)


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
            tables = (table_name(topic, dlq=dlq) for dlq in (False, True))
            expired |= {table: day for table in tables if (root / table).is_dir()}
    return msgspec.structs.replace(
        last,
        number=last.number + 1,
        job="expire",
        committed_ms=round(now.timestamp() * 1000),
        files=[],
        expired=expired,
    )
