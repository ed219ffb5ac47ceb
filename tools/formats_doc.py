"""Makes docs/FORMATS.md out of the tables in the module headers of `orbitmq.format`.

tools/formats_doc.py            write the document
tools/formats_doc.py --check    fail when it is not what the headers say
"""

import argparse
import importlib
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path
from types import ModuleType

DOCUMENT = Path(__file__).parents[1] / "docs" / "FORMATS.md"

MODULES = {
    "record": "Commit log record",
    "properties": "Properties",
    "property_crc": "Property CRC",
    "compression": "Packed bodies",
    "client_batch": "Client batch",
    "filler": "Filler record",
    "cq_unit": "Consume queue unit",
    "cq_ext_unit": "Consume queue ext unit",
    "batch_unit": "Batch consume queue unit",
    "index_file": "Index file",
    "checkpoint": "Checkpoint",
    "timer_log": "Timer log unit",
    "timer_wheel": "Timer wheel",
    "timer_checkpoint": "Timer checkpoint",
    "snapshot": "Snapshot",
    "handover": "Handover to a Spark job",
    "ha_frame": "Replication frames",
    "message_id": "Message ids",
    "segment_name": "File names",
    "java_hash": "Java's string hash",
    "crc": "Checksum",
}

INTRODUCTION = """# Formats

Every byte of a store, made by `tools/formats_doc.py` from the headers of the modules in
[`src/orbitmq/format`](../src/orbitmq/format): change it there. A test compares each table with the
structure that the code uses. Numbers are big-endian and signed unless the type says u; "i64" has 64
bits; "at" counts bytes from the start of the structure. The JSON state files are not described here.
"""

CAPTION = re.compile(r"Layout of (?P<name>\w+), (?P<size>\d+) bytes")


@dataclass(frozen=True)
class Field:
    """One row of a table."""

    at: int
    size: int
    type: str
    name: str


@dataclass(frozen=True)
class Layout:
    """One table with a caption: the structure it describes and that structure's fields."""

    name: str
    size: int
    fields: tuple[Field, ...]


def load(module: str) -> ModuleType:
    return importlib.import_module(f"orbitmq.format.{module}")


def blocks(docstring: str) -> Iterator[list[str]]:
    """Yield the paragraphs and tables of a docstring, each as its lines."""
    for is_text, lines in groupby(docstring.strip().splitlines(), key=bool):
        if is_text:
            yield list(lines)


def is_table(block: list[str]) -> bool:
    return block[0].split("|")[0].strip() == "at"


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("|")]


def layouts(docstring: str) -> list[Layout]:
    """Return every table that stands behind a "Layout of NAME, N bytes" line."""
    found = []
    parts = list(blocks(docstring))
    for caption, table in pairwise(parts):
        match = CAPTION.match(caption[-1])
        if match and is_table(table):
            rows = [cells(line) for line in table[1:]]
            fields = tuple(
                Field(int(at), int(size), kind, name) for at, size, kind, name, *_ in rows
            )
            found.append(Layout(match["name"], int(match["size"]), fields))
    return found


def markdown_table(block: list[str]) -> str:
    rows = [cells(line) for line in block]
    width = len(rows[0])
    lines = ["| " + " | ".join(row + [""] * (width - len(row))) + " |" for row in rows]
    return "\n".join([lines[0], "| " + " | ".join(["---"] * width) + " |", *lines[1:]])


def section(module: str, title: str) -> str:
    docstring = load(module).__doc__ or ""
    texts = [
        markdown_table(block) if is_table(block) else "\n".join(block)
        for block in blocks(docstring)
    ]
    source = f"[`format/{module}.py`](../src/orbitmq/format/{module}.py)"
    return "\n\n".join([f"## {title}", source, *texts]) + "\n"


def document() -> str:
    """Return the whole text of docs/FORMATS.md."""
    return "\n".join([INTRODUCTION, *(section(*item) for item in MODULES.items())])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--check", action="store_true", help="change nothing; exit code 1 if it differs"
    )
    text = document()
    if not parser.parse_args().check:
        DOCUMENT.write_text(text, encoding="utf-8")
    elif not DOCUMENT.exists() or DOCUMENT.read_text(encoding="utf-8") != text:
        print(
            f"{DOCUMENT.name} is not what the modules say: run tools/formats_doc.py",
            file=sys.stderr,
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
