"""Runs `orbitmq lab` and writes its figures into docs/LAB.md and its pictures into docs/lab.

tools/lab_doc.py [NAME ...] [--size small|full] [--dir DIR]       names: only these are renewed

Tables and sentences stand between marks in the document; what they mean is written by hand around them.
Run it on an idle machine: a busy one doubles the times of everything that waits for the disk.
"""

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
DOCUMENT = ROOT / "docs" / "LAB.md"
PICTURES = ROOT / "docs" / "lab"
MACHINE = "machine"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--size", default="full")
    parser.add_argument("--dir", default=None)
    options = parser.parse_args()
    text = DOCUMENT.read_text(encoding="utf-8")
    for result in run_lab(options.names, options.size, options.dir):
        text = put(text, result["name"], section(result))
        text = put(text, MACHINE, machine_line(result))
        print(f"{result['name']}: {result['seconds']:.1f} s")
    DOCUMENT.write_text(text, encoding="utf-8")
    return 0


def run_lab(names: list[str], size: str, directory: str | None) -> list[dict[str, Any]]:
    """Run the command; it ends with an error if one check failed, and then nothing is written."""
    command = [str(Path(sys.executable).with_name("orbitmq")), "lab", *names, "--size", size]
    command += ["--output", "json", "--plot", str(PICTURES)]
    command += ["--dir", directory] if directory else []
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def put(text: str, name: str, content: str) -> str:
    """Return the text with other lines between the marks of this name."""
    start, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    if start not in text or end not in text:
        raise SystemExit(f"{DOCUMENT.name} has no marks for {name}")
    before, _, rest = text.partition(start)
    return before + start + content + end + rest.partition(end)[2]


def section(result: dict[str, Any]) -> str:
    """Return the table of an experiment in Markdown, and its sentence."""
    heads = [(one["name"], one["unit"]) for one in result["rows"][0]["figures"]]
    lines = [
        "| | " + " | ".join(f"{name}, {unit}" if unit else name for name, unit in heads) + " |"
    ]
    lines.append("|---|" + "---:|" * len(heads))
    for row in result["rows"]:
        cells = [
            row["note"] or "-" if one["value"] is None else shown(one["value"])
            for one in row["figures"]
        ]
        lines.append(f"| {row['name']} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", result["sentence"], ""])


def shown(value: float) -> str:
    """Return a figure as the command's table shows it."""
    from orbitmq.lab.experiment import figure_text

    return figure_text(value)


def machine_line(result: dict[str, Any]) -> str:
    facts = result["machine"]
    kernel = re.sub(r"^(\w+ \d+\.\d+).*", r"\1", facts["kernel"])
    return (
        f"{facts['cpus']} virtual cores ({facts['cpu']}), {facts['memory_gib']:.0f} GiB of memory, {kernel}, "
        f"{facts['file_system']} on a disk of the kind {facts['disk']} that reads ahead "
        f"{facts['read_ahead_kib']} KiB, Python {facts['python']}, size {result['size']}.\n"
    )


if __name__ == "__main__":
    sys.exit(main())
