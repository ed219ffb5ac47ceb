"""Read the journal of a quarantine as a person would: lines that a crash tore are passed over."""

import json
from pathlib import Path
from typing import Any


def read_journal(directory: Path) -> list[dict[str, Any]]:
    """Return what was kept, oldest first."""
    entries = []
    for line in (directory / "journal.jsonl").read_text(encoding="utf-8").splitlines():
        try:
            entries.append(json.loads(line))
        except ValueError:
            continue
    return entries


def kept_log(directory: Path, start: int, length: int) -> bytes:
    """Return what of a log lies in a quarantine, from this log offset on; zeros where nothing does."""
    found = bytearray(length)
    for entry in read_journal(directory):
        at = entry["log_offset"] - start
        data = (directory / entry["kept"]).read_bytes()[: max(length - at, 0)]
        found[at : at + len(data)] = data
    return bytes(found)
