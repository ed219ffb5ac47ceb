"""Mend a store offline: what opening it does, with a dry run, and without trusting any snapshot.

The log is mended as recovery does it, queues and index are compared with it unit by unit, and what was
cut or replaced lies in the quarantine afterwards. A segment that is missing in the middle, which opening
refuses, is bridged here. A state file that cannot be read is made again from its .bak.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from orbitmq.clock import Clock, SystemClock
from orbitmq.files.disk import Disk
from orbitmq.files.layout import StoreLayout
from orbitmq.files.replace import bak_path, read_whole, replace_file
from orbitmq.files.state_file import is_whole_state
from orbitmq.format.columns import ScanOptions
from orbitmq.format.kernels import Kernels, compiled
from orbitmq.log_read import Progress, open_log
from orbitmq.store.checkpoint import CheckpointFile
from orbitmq.store.config import StoreConfig
from orbitmq.store.offline.tools import config_of, locked
from orbitmq.store.recovery.adopt import RecoveryReport
from orbitmq.store.recovery.lost_records import FillStyle
from orbitmq.store.recovery.mend import Mender
from orbitmq.store.recovery.plan import WalkOptions
from orbitmq.store.recovery.quarantine import Quarantine
from orbitmq.store.recovery.queue_units import file_units
from orbitmq.store.recovery.torn_records import whole_from
from orbitmq.store.recovery.walk import WalkResult, plan_recovery
from orbitmq.store.store import MessageStore
from orbitmq.store.topic_types import read_topic_types

DISTRUST_GROUP = "before-repair"


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairReport:
    """What has to be mended in the log (dry run), or what was mended in all."""

    dry_run: bool
    plan: WalkResult
    resized: tuple[Path, ...]  # segments of wrong length, missing or empty
    restored: tuple[Path, ...] = ()  # state files, from their .bak
    recovery: RecoveryReport | None = None
    kept: tuple[Path, ...] = ()

    @property
    def is_clean(self) -> bool:
        adoption_clean = self.recovery is None or self.recovery.adoption.is_clean
        return not (self.plan.repairs or self.resized or self.restored) and adoption_clean


def repair_store(
    root: Path,
    settings: Mapping[str, str] | None = None,
    *,
    dry_run: bool = False,
    kernels: Kernels | None = None,
    progress: Progress | None = None,
    clock: Clock | None = None,
    disk: Disk | None = None,
) -> RepairReport:
    """Mend log, queues, index and state files of a store, or tell what would be done to log and state.

    StoreLockedError: somebody has the store open (a dry run does not mind).
    """
    config = config_of(root, settings)
    disk, clock = disk or Disk(), clock or SystemClock()
    options = WalkOptions(
        kernels=kernels or compiled(),
        scan=ScanOptions(
            check_crc=True,
            check_property_crc=config.force_property_crc,
            delay_ms=config.delay_ms,
        ),
        style=FillStyle(config.store_host, config.property_crc),
        units_between=file_units(config.layout(), disk),
        topic_type=read_topic_types(config.layout().config("topics.json"), disk),
        whole_from=whole_from(CheckpointFile(config.layout().checkpoint, disk).load()),
        progress=progress,
    )
    plan, resized = _plan(config, disk, options)
    restored = _broken_states(config.layout(), disk)
    if dry_run:
        return RepairReport(dry_run=True, plan=plan, resized=resized, restored=restored)
    kept = _prepare(config, disk, clock)
    with MessageStore.open(config, clock=clock, disk=disk, background=False) as store:
        recovery = store.recovery_report
    return RepairReport(
        dry_run=False,
        plan=plan,
        resized=resized,
        restored=restored,
        recovery=recovery,
        kept=(*kept, *recovery.kept),
    )


def _plan(
    config: StoreConfig, disk: Disk, options: WalkOptions
) -> tuple[WalkResult, tuple[Path, ...]]:
    with open_log(config.layout(), disk, missing_allowed=True) as log:
        resized = [segment.path for segment in (*log.short, *log.missing)]
        return plan_recovery(log, log.min_offset, options), (*resized, *log.empty)


def _prepare(config: StoreConfig, disk: Disk, clock: Clock) -> list[Path]:
    """Give segments their length, make missing ones, and put the snapshot away: nothing is trusted."""
    layout = config.layout()
    with locked(layout, disk):
        quarantine = Quarantine(layout.quarantine, layout.root, disk, clock)
        with open_log(layout, disk, missing_allowed=True) as log:
            Mender(log, disk, quarantine).set_lengths()
        if layout.snapshot.exists():
            cause = "repair compares queues and index with the log itself"
            quarantine.keep_path(layout.snapshot, DISTRUST_GROUP, cause)
        _restore_states(layout, disk, quarantine)
        return quarantine.kept


def _broken_states(layout: StoreLayout, disk: Disk) -> tuple[Path, ...]:
    """Return the state files that cannot be read although the version before them can."""
    return tuple(
        path
        for path in sorted(layout.config_directory.glob("*.json"))
        if not is_whole_state(disk, path) and is_whole_state(disk, bak_path(path))
    )


def _restore_states(layout: StoreLayout, disk: Disk, quarantine: Quarantine) -> None:
    for path in _broken_states(layout, disk):
        before = read_whole(disk, bak_path(path))
        assert before is not None
        # Cut short here, a reader takes the .bak: the broken file is gone, which is enough.
        quarantine.keep_path(path, DISTRUST_GROUP, "it cannot be read; its .bak takes its place")
        replace_file(disk, path, before)
