"""What a rebuild is asked for, and what it tells."""

from dataclasses import dataclass, field
from pathlib import Path

from orbitmq.log_read import SPLIT_BYTES
from orbitmq.store.offline.exchange import Scope


@dataclass(frozen=True, slots=True)
class RebuildOptions:
    """What to make anew, and where it goes."""

    scope: Scope = field(default_factory=Scope)
    to: Path | None = None  # another directory; the store stays as it is
    dry_run: bool = False
    split_bytes: int = SPLIT_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildReport:
    """What a rebuild made, or (dry run) would make."""

    dry_run: bool
    root: Path
    records: int
    log_bytes: int
    queues: int
    units: int
    index_files: int
    index_entries: int
    conflicts: int  # records whose queue offset another record has; they are in no queue
    trusted: bool  # whether the next start trusts the files without reading the log
    kept: tuple[Path, ...]  # where the old files are now
    shuffle_bytes: int  # between tasks
    seconds: dict[str, float]  # per stage
