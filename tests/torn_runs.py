"""Open every damaged variant of the golden store `crashed` and tell what is left of it.

`python tests/torn_runs.py` prints the table of docs/RECOVERY.md.
"""

import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from golden_stores import Row, damage, settings, torn_results, torn_variant, torn_variants, unpack
from orbitmq.format.record import Record, decode_record
from orbitmq.store.config import StoreConfig
from orbitmq.store.recovery.adopt import RecoveryReport
from orbitmq.store.store import MessageStore
from orbitmq.store.verify.check import CheckReport, check_store
from orbitmq.store.verify.index_entries import list_index_files, read_header


@dataclass(frozen=True)
class Java:
    """What the Java store made of a variant; None: it refused to open."""

    max_offset: int | None
    units: int | None
    index_items: int | None


@dataclass(frozen=True)
class Run:
    """What we made of a variant."""

    before: CheckReport
    report: RecoveryReport
    max_offset: int
    units: int
    index_items: int
    records: dict[int, Record]
    queues: dict[tuple[str, int], tuple[int, int]]
    after: CheckReport
    second: RecoveryReport


def config_of(root: Path) -> StoreConfig:
    return StoreConfig.from_settings(root, settings("crashed"))


def java(variant: str) -> Java:
    results = torn_results(variant)
    opened = next(row for row in results if row["type"] == "opened")
    if not opened["load"]:
        return Java(None, None, None)
    units = sum(row["unitCount"] for row in results if row["type"] == "queue")
    items = sum(row["indexCount"] - 1 for row in results if row["type"] == "indexFileOpened")
    return Java(opened["maxPhyOffset"], units, items)


def damaged(variant: str, directory: Path) -> Path:
    return damage(unpack("crashed", directory), variant)


def run(variant: str, directory: Path) -> Run:
    """Damage a copy, check it, open and close it, check and open it again."""
    root = damaged(variant, directory)
    before = check_store(root, settings("crashed"))
    with MessageStore.open(config_of(root), background=False) as store:
        queues = {q: (store.min_offset(*q), store.max_offset(*q)) for q in store.queues()}
        records = dict(read_all(store))
        report, max_offset = store.recovery_report, store.max_log_offset
    headers = map(read_header, list_index_files(config_of(root).layout()))
    index_items = sum(header.next_item - 1 for header in headers if header is not None)
    after = check_store(root, settings("crashed"))
    with MessageStore.open(config_of(root), background=False) as store:
        second = store.recovery_report
    units = sum(high - low for low, high in queues.values())
    return Run(before, report, max_offset, units, index_items, records, queues, after, second)


def read_all(store: MessageStore) -> Iterator[tuple[int, Record]]:
    """Yield (log offset, record) of everything that reading each queue from its start gives."""
    for topic, queue_id in store.queues():
        offset, end = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
        while offset < end:
            result = store.get(topic, queue_id, offset, 32)
            for log_offset, raw in zip(result.log_offsets, result.records, strict=True):
                yield log_offset, decode_record(bytes(raw))
            assert result.next_offset > offset
            offset = result.next_offset


def table_lines(runs: dict[str, Run]) -> list[str]:
    """Return the rows of the table in docs/RECOVERY.md."""
    lines = [
        "| variant | damage | Java: end of log | units | index | ours: end of log | units | index "
        "| done | check names |",
        "|---|---|--:|--:|--:|--:|--:|--:|---|---|",
    ]
    for variant, done in runs.items():
        theirs = java(variant)
        end, units, items = (
            ("does not open", "", "")
            if theirs.max_offset is None
            else (theirs.max_offset, theirs.units, theirs.index_items)
        )
        kinds = sorted({f"{finding.kind}" for finding in done.before.findings})
        lines.append(
            f"| {variant} | {what(torn_variant(variant))} | {end} | {units} | {items} "
            f"| {done.max_offset} | {done.units} | {done.index_items} "
            f"| {acts(done.report)} | {', '.join(kinds) or 'nothing'} |"
        )
    return lines


def what(variant: Row) -> str:
    return str(variant["what"])


def acts(report: RecoveryReport) -> str:
    """Say in a few words what recovery did."""
    done = [repair.kind.value for repair in report.repairs]
    done += ["resize"] if report.resized else []
    adoption = report.adoption
    units = adoption.queues.missing + adoption.queues.wrong
    done += [f"{units} units"] if units else []
    done += [f"{adoption.queues.beyond} units cut"] if adoption.queues.beyond else []
    entries = adoption.index.added + adoption.index.wrong
    done += [f"{entries} index entries"] if entries else []
    if adoption.index.repaired_files and not entries:
        done.append("index cut" if adoption.index.beyond else "index slots")
    return ", ".join(done) or "nothing to do"


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        runs = {variant: run(variant, Path(directory)) for variant in torn_variants()}
    sys.stdout.write("\n".join(table_lines(runs)) + "\n")


if __name__ == "__main__":
    main()
