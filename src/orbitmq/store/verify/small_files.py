"""Check the small files of a store: the checkpoint, and the JSON files of config/."""

from orbitmq.files.layout import StoreLayout
from orbitmq.files.state_file import parse_state
from orbitmq.format.checkpoint import Checkpoint
from orbitmq.store.recovery.walk import WalkResult
from orbitmq.store.verify.facts import StoreFacts
from orbitmq.store.verify.findings import OPEN_STEP, Findings, Kind
from orbitmq.units import HOUR_MS


def check_checkpoint(
    facts: StoreFacts, result: WalkResult, findings: Findings, *, last_ms: int
) -> None:
    """Compare the checkpoint with the log that was read; `last_ms` is its last store time."""
    checkpoint, path = facts.checkpoint, facts.layout.checkpoint
    if not result.records or (checkpoint is None and facts.live):
        return  # a new store writes it with its first flush
    cause, position = None, 0
    if checkpoint is None:
        cause = "there is no checkpoint; a Java broker would read the whole log"
    elif checkpoint == Checkpoint():
        cause = "the checkpoint is all zero; a Java broker would read the whole log"
    elif checkpoint.physic_ms > last_ms + HOUR_MS:
        cause = f"names a flushed message of {checkpoint.physic_ms}, the newest is of {last_ms}"
    elif not facts.abort and not facts.live and _is_behind(checkpoint, result, last_ms):
        cause = "is older than the log although the store was closed (no abort file)"
        position = 8
    if cause is not None:
        findings.add(Kind.CHECKPOINT, path, position, cause, advice=OPEN_STEP)


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
