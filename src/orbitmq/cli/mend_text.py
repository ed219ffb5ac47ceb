"""What `rebuild` and `repair` did, or would do, in words and as JSON."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from orbitmq.cli.output import print_table

if TYPE_CHECKING:
    from orbitmq.store.offline.rebuild import RebuildReport
    from orbitmq.store.offline.repair import RepairReport
    from orbitmq.store.recovery.plan import Repair


def rebuild_value(report: "RebuildReport") -> dict[str, Any]:
    """Return a rebuild's result as JSON prints it."""
    return {
        "dry_run": report.dry_run,
        "records": report.records,
        "queues": report.queues,
        "units": report.units,
        "index_files": report.index_files,
        "index_entries": report.index_entries,
        "kept": [str(path) for path in report.kept],
        "findings": len(report.check.findings) if report.check else 0,
    }


def print_rebuild(root: Path, report: "RebuildReport") -> None:
    if report.check is not None:
        from orbitmq.cli.store_text import print_check

        print_check(root, report.check)
        typer.echo("dry run: nothing was changed. A rebuild makes all queues and index files anew.")
        return
    made = f"{report.queues} queues with {report.units} units"
    index = f"{report.index_files} index files with {report.index_entries} entries"
    typer.echo(f"rebuilt from {report.records} records: {made}, {index}")
    _print_kept("the old files are in", report.kept)


def repair_value(report: "RepairReport") -> dict[str, Any]:
    """Return a repair's result as JSON prints it."""
    recovery = report.recovery
    return {
        "dry_run": report.dry_run,
        "clean": report.is_clean,
        "log_end": recovery.end_offset if recovery else report.plan.end_offset,
        "records": report.plan.records,
        "repairs": [_repair_value(repair) for repair in report.plan.repairs],
        "resized": [str(path) for path in report.resized],
        "queues_and_index_agree": recovery.adoption.is_clean if recovery else None,
        "kept": [str(path) for path in report.kept],
    }


def print_repair(report: "RepairReport") -> None:
    rows = [
        (
            repair.kind.value,
            repair.path.name,
            repair.position,
            repair.end - repair.start,
            len(repair.lost),
            repair.cause,
        )
        for repair in report.plan.repairs
    ]
    if rows:
        print_table(("repair", "segment", "position", "bytes", "lost", "cause"), rows)
    for path in report.resized:
        typer.echo(f"{path}: wrong length, missing or empty")
    typer.echo(f"log: {report.plan.records} records, up to {report.plan.end_offset}")
    if report.dry_run:
        typer.echo(
            "dry run: nothing was changed. `orbitmq store check` also looks at queues and index."
        )
    elif report.recovery is not None:
        agreed = "agreed with the log" if report.recovery.adoption.is_clean else "were put right"
        typer.echo(f"queues and index {agreed}")
    _print_kept("kept before it was cut or replaced:", report.kept)


def _repair_value(repair: "Repair") -> dict[str, Any]:
    return {
        "kind": repair.kind.value,
        "file": str(repair.path),
        "position": repair.position,
        "start": repair.start,
        "end": repair.end,
        "cause": repair.cause,
        "lost_records": len(repair.lost),
        "removed": [str(path) for path in repair.removed],
    }


def _print_kept(what: str, kept: tuple[Path, ...]) -> None:
    if kept:
        typer.echo(f"{what} {', '.join(sorted({str(path) for path in kept})[:10])}")
