"""The pipeline's jobs that write, each against the way that people have without them, in one run.

    python bench/bench_lake.py [--size full|smoke] [--only load export sink search follow] [--directory DIR]
                               [--json FILE]

Parts: load (a table becomes a store, against sending the same rows to the broker), export (a log becomes
tables of a lake, against Spark writing the same rows to Parquet), sink (rows become messages of a topic,
against RocketMQ's Java client), search (a key, against a full scan), follow (how far an export is behind a
broker that takes 20 000 messages a second).
Every result is checked, so a fast wrong answer fails. bench/README.md has the method and the figures.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import harness
import lake_export
import lake_follow
import lake_load
import lake_search
import lake_sink
from harness import Line

PARTS: dict[str, Callable[[str, Path], list[Line]]] = {
    "load": lake_load.lines,
    "export": lake_export.lines,
    "sink": lake_sink.lines,
    "search": lake_search.lines,
    "follow": lake_follow.lines,
}
SIZES = ("full", "smoke")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--size", choices=SIZES, default="full")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--directory", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    lines: list[Line] = []
    for name in options.only:
        with harness.scratch(options.directory, f"orbitmq-bench-{name}") as directory:
            lines += PARTS[name](options.size, directory)
    sys.stdout.write(f"{harness.machine()}\n\n{harness.table(lines, beside='other way')}\n")
    if options.json is not None:
        told = [asdict(line) | {"ratio": line.ratio} for line in lines]
        options.json.write_text(json.dumps({"lines": told}, indent=1))


if __name__ == "__main__":
    main()
