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
