"""How records and figures of a store look: a JSON line, a line of a table, a page."""

import hashlib
import shlex
from typing import TYPE_CHECKING, Any

import msgspec
import typer

from orbitmq.cli.output import bytes_text, one_line, print_table, time_text
from orbitmq.format.message_id import encode_offset_id
from orbitmq.message import Property
from orbitmq.store.spark_dispatch.handover import dispatch_words

if TYPE_CHECKING:
    from pathlib import Path

    from orbitmq.store.offline.reader import Found
    from orbitmq.store.offline.rebuild import RebuildReport
    from orbitmq.store.offline.repair import RepairReport
    from orbitmq.store.offline.stat import StoreStat
    from orbitmq.store.recovery.plan import Repair
    from orbitmq.store.verify.check import CheckReport

_COLUMNS = "{:>13}  {:>7}  {:24}  {:>5}  {:>9}  {:29}  {:>6}  {:12}  {}"
DUMP_HEADER = _COLUMNS.format(
    "log offset", "size", "topic", "queue", "offset", "stored", "body", "tag", "keys"
).rstrip()
_BODY_SHOWN_BYTES = 400


def dump_value(found: "Found") -> dict[str, Any]:
    """Return a record as the dump prints it. The names are an interface: scripts read them."""
    record, properties = found.record, found.record.property_map
    return {
        "log_offset": found.log_offset,
        "size": record.size,
        "topic": record.topic,
        "queue_id": record.queue_id,
        "queue_offset": record.queue_offset,
        "tag": properties.get(Property.TAGS),
        "keys": [key for key in properties.get(Property.KEYS, "").split(" ") if key],
        "store_ms": record.store_ms,
        "born_ms": record.born_ms,
        "flag": record.flag,
        "sys_flag": record.sys_flag,
        "body_length": len(record.body),
        "body_sha256": hashlib.sha256(record.body).hexdigest(),
        "properties": properties,
        "msg_id": encode_offset_id(record.store_host, found.log_offset),
    }


def dump_json(found: "Found") -> str:
    return msgspec.json.encode(dump_value(found)).decode()


def dump_line(found: "Found") -> str:
    """Return one line of the table; long names push the rest to the right instead of being cut."""
    record = found.record
    return _COLUMNS.format(
        found.log_offset,
        record.size,
        one_line(record.topic),
        record.queue_id,
        record.queue_offset,
        time_text(record.store_ms),
        len(record.body),
        one_line(record.tags or ""),
        one_line(" ".join(record.keys)),
    ).rstrip()


def print_record(found: "Found") -> None:
    """Print all of one record."""
    record, value = found.record, dump_value(found)
    del value["properties"]
    value |= {
        "keys": " ".join(record.keys),
        "store_ms": f"{record.store_ms}  {time_text(record.store_ms)}",
        "born_ms": f"{record.born_ms}  {time_text(record.born_ms)}",
        "store_host": record.store_host.text(),
        "born_host": record.born_host.text(),
        "reconsume_times": record.reconsume_times,
        "prepared_offset": record.prepared_offset,
        "body": _shown_body(record.body),
    }
    print_table(("field", "value"), [(name, one_line(str(v))) for name, v in value.items()])
    properties = [(name, one_line(text)) for name, text in record.property_map.items()]
    print_table(("property", "value"), properties)


def print_stat(found: "StoreStat") -> None:
    """Print the figures of a store as tables."""
    print_table(("store", found.root), _log_rows(found))
    counted = any(topic.records is not None for topic in found.topics)
    columns = ("topic", "kind", "queues", "messages", *(("records", "bytes") if counted else ()))
    rows = [
        (t.topic, t.kind, t.queues, t.messages, *((t.records, t.bytes) if counted else ()))
        for t in found.topics
    ]
    print_table(columns, rows, title="" if rows else "no consume queues")
    index = [
        (i.name, i.items, time_text(i.begin_ms), time_text(i.end_ms), i.end_log_offset)
        for i in found.index
    ]
    columns = ("index file", "items", "first stored", "last stored", "last log offset")
    print_table(columns, index, title="" if index else "no index files")


def check_value(report: "CheckReport") -> dict[str, Any]:
    """Return a check's result as JSON prints it."""
    findings = [
        {
            "severity": finding.severity.value,
            "kind": finding.kind.value,
            "file": str(finding.path),
            "position": finding.position,
            "log_offset": finding.log_offset,
            "cause": finding.cause,
            "advice": finding.advice,
        }
        for finding in report.findings
    ]
    return {
        "sound": report.is_sound,
        "findings": findings,
        "left_out": {kind.value: count for kind, count in report.left_out.items()},
        "records": report.records,
        "fillers": report.fillers,
        "log_start": report.log_start,
        "log_end": report.log_end,
        "live": report.live,
        "lagging": report.lagging,
        "undispatched": report.undispatched,
    }


def print_check(root: "Path | str", report: "CheckReport") -> None:
    """Print the findings, each with what to do, then what was read."""
    rows = [
        (
            finding.severity.value,
            finding.kind.value,
            _below(finding.path, root),
            finding.position,
            f"{one_line(finding.cause)}. {finding.advice}",
        )
        for finding in report.findings
    ]
    if rows:
        print_table(("", "kind", "file", "position", "cause, and what to do"), rows)
    for kind, count in report.left_out.items():
        typer.echo(f"and {count} more of kind {kind.value}")
    span = f"{report.records} records, log offsets {report.log_start} to {report.log_end}"
    typer.echo(f"{len(rows) or 'no'} finding{'' if len(rows) == 1 else 's'}; {span}")
    if report.fillers:
        typer.echo(
            f"{report.fillers} fillers stand where damaged records were; see orbitmq.quarantine"
        )
    if report.live:
        typer.echo("a broker has the store open: what it has not written yet is no finding")
    elif report.lagging and not report.undispatched:
        typer.echo(
            f"{report.lagging} units and index items are not written yet: the next start does it"
        )
    if report.undispatched:
        words = shlex.join(["orbitmq", *dispatch_words(root, live=report.live)])
        typer.echo(f"the last {report.undispatched} bytes of the log wait for `{words}`")


def _below(path: "Path", root: "Path | str") -> str:
    return str(path).removeprefix(f"{str(root).rstrip('/')}/")  # both may be addresses


def _log_rows(found: "StoreStat") -> list[tuple[str, object]]:
    used = found.end_log_offset - found.min_log_offset
    running = f"yes, by process {found.abort_pid}" if found.abort_pid else "yes"
    checkpoint = found.checkpoint
    rows: list[tuple[str, object]] = [
        ("segments", f"{found.segments} of {bytes_text(found.segment_bytes)}"),
        ("log", f"{found.min_log_offset} to {found.end_log_offset} ({bytes_text(used)})"),
        ("first stored", time_text(found.first_store_ms or 0)),
        ("last stored", time_text(found.last_store_ms or 0)),
        ("open, or not stopped cleanly", running if found.abort else "no"),
        ("messages in queues", sum(topic.messages for topic in found.topics)),
        ("index items", sum(file.items for file in found.index)),
        ("quarantined places", found.quarantined),
    ]
    if checkpoint is not None:
        rows += [
            ("checkpoint: log", time_text(checkpoint.physic_ms)),
            ("checkpoint: queues", time_text(checkpoint.logics_ms)),
            ("checkpoint: index", time_text(checkpoint.index_ms)),
        ]
    return rows


def _shown_body(body: bytes) -> str:
    shown = body[:_BODY_SHOWN_BYTES]
    try:
        text = shown.decode()
    except UnicodeDecodeError:
        text = shown.hex(" ")
    return text + (f" ... ({len(body)} bytes)" if len(body) > len(shown) else "")


# --- what `rebuild` and `repair` did, or would do ---


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


def print_rebuild(root: "Path", report: "RebuildReport") -> None:
    if report.check is not None:
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
        "restored": [str(path) for path in report.restored],
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
    for path in report.restored:
        typer.echo(f"{path}: cannot be read, its .bak takes its place")
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


def _print_kept(what: str, kept: "tuple[Path, ...]") -> None:
    if kept:
        typer.echo(f"{what} {', '.join(sorted({str(path) for path in kept})[:10])}")
