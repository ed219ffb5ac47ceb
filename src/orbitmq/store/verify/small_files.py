"""Check the small files of a store: the checkpoint, and the JSON files of config/."""

from orbitmq.errors import FormatError
from orbitmq.files.disk import Disk
from orbitmq.files.layout import StoreLayout
from orbitmq.files.replace import read_whole
from orbitmq.files.state_file import parse_state
from orbitmq.format import checkpoint as checkpoint_format
from orbitmq.format.checkpoint import Checkpoint
from orbitmq.store.recovery.walk import WalkResult
from orbitmq.store.verify.findings import OPEN_STEP, Findings, Kind
from orbitmq.units import HOUR_MS


def read_checkpoint(layout: StoreLayout, findings: Findings) -> Checkpoint | None:
    """Return the checkpoint, an empty one if it is damaged, None if there is none."""
    data = read_whole(Disk(), layout.checkpoint)
    if data is None:
        return None
    try:
        return checkpoint_format.decode(data)
    except FormatError as error:
        findings.add(
            Kind.CHECKPOINT, layout.checkpoint, error.position, error.reason, advice=OPEN_STEP
        )
        return Checkpoint()


def check_checkpoint(
    checkpoint: Checkpoint | None,
    layout: StoreLayout,
    result: WalkResult,
    findings: Findings,
    *,
    last_ms: int,
    live: bool,
    abort: bool,
) -> None:
    """Compare the checkpoint with the log that was read; `last_ms` is its last store time."""
    if not result.records or (checkpoint is None and live):
        return  # a new store writes it with its first flush
    cause, position = None, 0
    if checkpoint is None:
        cause = "there is no checkpoint; a Java broker would read the whole log"
    elif checkpoint == Checkpoint():
        cause = "the checkpoint is all zero; a Java broker would read the whole log"
    elif checkpoint.physic_ms > last_ms + HOUR_MS:
        cause = f"names a flushed message of {checkpoint.physic_ms}, the newest is of {last_ms}"
    elif not abort and not live and _is_behind(checkpoint, result, last_ms):
        cause = "is older than the log although the store was closed (no abort file)"
        position = 8
    if cause is not None:
        findings.add(Kind.CHECKPOINT, layout.checkpoint, position, cause, advice=OPEN_STEP)


def _is_behind(checkpoint: Checkpoint, result: WalkResult, last_ms: int) -> bool:
    if checkpoint.extension is not None:
        return checkpoint.extension.dispatched_offset < result.end_offset
    return checkpoint.logics_ms < last_ms


def check_state_files(layout: StoreLayout, findings: Findings) -> None:
    """Report JSON files that cannot be read."""
    for path in sorted(layout.config_directory.glob("*.json")):
        try:
            parse_state(path.read_text(encoding="utf-8"))
        except (ValueError, OSError) as error:
            backup = path.with_name(path.name + ".bak")
            step = f"Restore it from {backup.name} or from a backup."
            findings.add(Kind.STATE, path, 0, f"is not readable as JSON: {error}", advice=step)
