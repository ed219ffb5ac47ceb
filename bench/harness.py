"""What the benchmarks share: the messages, a process of its own for each part, RocketMQ beside us, a table.

Message i is the same here and in the Java program (tests/compat/java, BenchMessages): a body of 1 KiB,
one key, one unique key, one tag, spread over the queues in turn.
"""

import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from doors import AppendRequest, ClientMessage, Host, encode_client_batch, encode_properties

REPOSITORY = Path(__file__).parents[1]
sys.path.insert(0, str(REPOSITORY / "tests"))  # RocketMQ's side is built by tests/compat

QUEUES_PER_TOPIC = 8
BODY_BYTES = 1024
PART_SECONDS_MAX = 3_600
KEY_STRIDE = 7_368_787  # shares no factor with the usual counts: visits keys in a scattered order

Row = dict[str, Any]

_HOST = Host(b"\x7f\x00\x00\x01", 10911)
_BODIES = [
    bytes((body * 131 + j * 31 + j * j) & 0xFF for j in range(BODY_BYTES)) for body in range(64)
]


def topic(i: int, queue_count: int) -> str:
    return f"Bench{i % queue_count // QUEUES_PER_TOPIC:05d}"


def key(i: int) -> str:
    return f"key{i}"


def request(i: int, queue_count: int) -> AppendRequest:
    """Return message number i of a run over so many queues."""
    properties = {"KEYS": key(i), "TAGS": f"Tag{i % 4}", "UNIQ_KEY": f"{i:032X}"}
    return AppendRequest(
        topic=topic(i, queue_count),
        queue_id=i % queue_count % QUEUES_PER_TOPIC,
        body=_BODIES[i % len(_BODIES)],
        properties=encode_properties(properties),
        born_ms=time.time_ns() // 1_000_000,
        born_host=_HOST,
    )


def producer_batch(i: int, count: int, queue_count: int) -> AppendRequest:
    """Return messages i, i+1, ... as a producer sends them in one request, which goes into one queue."""
    made = [request(j, queue_count) for j in range(i, i + count)]
    address = request(i // count, queue_count)
    body = encode_client_batch(ClientMessage(m.body, m.properties, m.flag) for m in made)
    return AppendRequest(
        topic=address.topic,
        queue_id=address.queue_id,
        body=body,
        born_ms=address.born_ms,
        born_host=address.born_host,
    )


def chunks(start: int, end: int, step: int) -> Iterator[range]:
    for first in range(start, end, step):
        yield range(first, min(first + step, end))


@dataclass(frozen=True)
class Line:
    """One measured thing: ours, RocketMQ's if it has it, and what was hoped for."""

    what: str
    ours: float | None
    java: float | None = None
    unit: str = "/s"
    goal: float | None = None
    more_is_better: bool = True
    goal_unit: str = "x"  # "x": ours against RocketMQ's; else the goal is in the line's own unit

    @property
    def ratio(self) -> float | None:
        """Return how many times better we are."""
        if not self.ours or not self.java:
            return None
        return self.ours / self.java if self.more_is_better else self.java / self.ours

    @property
    def reached(self) -> bool | None:
        measured = self.ratio if self.goal_unit == "x" else self.ours
        if measured is None or self.goal is None:
            return None
        if self.goal_unit == "x" or self.more_is_better:
            return measured >= self.goal
        return measured <= self.goal


def table(lines: Iterable[Line], beside: str = "RocketMQ") -> str:
    """Return the lines as a Markdown table; `beside` is the head of the column of the other side."""
    rows = [("what", "ours", beside, "ratio", "goal", "reached")]
    for line in lines:
        ratio = "" if line.ratio is None else f"{line.ratio:.2f}x"
        reached = {None: "", True: "yes", False: "no"}[line.reached]
        values = value_text(line.ours, line.unit), value_text(line.java, line.unit)
        rows.append((line.what, *values, ratio, _goal(line), reached))
    return markdown(rows)


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """Return rows of text as a Markdown table; the first is its head."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    text = ["| " + " | ".join(map(str.ljust, row, widths)) + " |" for row in rows]
    text.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(text)


def value_text(value: float | None, unit: str) -> str:
    """Return a figure with its unit, as short as it may be read."""
    if value is None:
        return ""
    if value >= 1000:
        return f"{value:,.0f} {unit}".replace(",", " ")
    return f"{value:.3g} {unit}"


def _goal(line: Line) -> str:
    if line.goal is None:
        return ""
    if line.goal_unit == "x":
        return f">= {line.goal:g}x"
    return f"{'>=' if line.more_is_better else '<='} {value_text(line.goal, line.unit)}"


def part_command(script: Path, part: str, **options: object) -> list[str]:
    """Return the arguments of Python that run one part of a benchmark, which prints a row."""
    arguments = [f"{name}={value}" for name, value in options.items()]
    return [str(script), "--part", part, *arguments]


def run_part(script: Path, part: str, *, ends_with: int = 0, **options: object) -> Row:
    """Run one part of a benchmark in a fresh Python process and return the row that it prints."""
    return _last_row([sys.executable, *part_command(script, part, **options)], ends_with)


def run_java(what: str, root: Path, *, heap: str = "3g", **options: object) -> Row | None:
    """Run one part of the Java program; None where Java or Maven is missing."""
    from compat.java_store import java_command, why_not

    if why_not() is not None:
        return None
    arguments = [f"{name}={value}" for name, value in options.items()]
    return _last_row(java_command("StoreBench", what, str(root), *arguments, heap=heap))


def _last_row(command: list[str], ends_with: int = 0) -> Row:
    ended = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=PART_SECONDS_MAX
    )
    if ended.returncode != ends_with or not ended.stdout.strip():
        raise SystemExit(f"{' '.join(command[-8:])} failed:\n{ended.stdout}{ended.stderr}")
    return last_row(ended.stdout)


def last_row(output: str) -> Row:
    """Return the row that a part printed as its last line."""
    row: Row = json.loads(output.splitlines()[-1])
    return row


@contextmanager
def scratch(parent: Path, name: str) -> Iterator[Path]:
    """Give a directory that does not exist yet and leave nothing behind."""
    root = parent / name
    shutil.rmtree(root, ignore_errors=True)
    parent.mkdir(parents=True, exist_ok=True)
    try:
        yield root
    finally:
        shutil.rmtree(root, ignore_errors=True)


def forget_pages(root: Path) -> None:
    """Write a directory's files to the disk and drop them from the page cache."""
    os.sync()
    for path in root.rglob("*"):
        if path.is_file():
            fd = os.open(path, os.O_RDONLY)
            try:
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(fd)


def drop_derived(root: Path) -> None:
    """Leave the log alone: no queues, no index, no checkpoint, and the mark of an unclean stop."""
    for name in ("consumequeue", "index", "batchconsumequeue"):
        shutil.rmtree(root / name, ignore_errors=True)
    for name in ("checkpoint", "orbitmq.snapshot"):
        (root / name).unlink(missing_ok=True)
    (root / "abort").write_text("0")


def anonymous_bytes() -> int:
    """Return this process's private memory, page cache apart."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise OSError("this kernel does not tell RssAnon in /proc/self/status")


def process_age() -> float:
    """Return the seconds since this process was started, interpreter and imports included."""
    after_name = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    started = int(after_name[19]) / os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started


def machine() -> str:
    """Return what the figures were made on."""
    names = [
        line for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line
    ]
    processor = names[0].partition(":")[2].strip() if names else platform.machine()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{os.cpu_count()} cores ({processor}), {memory:.0f} GiB memory, "
        f"Linux {platform.release()}, Python {platform.python_version()}"
    )
