"""A topic in memory beside a topic on disk, on one broker, by turns.

    python bench/bench_memory.py [--size full|smoke] [--flush async|sync] [--directory DIR] [--json FILE]
    python bench/bench_memory.py --overload 600 [--limit-mb 512]

Sends at several depths, client batches, pulls: the ratio is memory to disk (goal of sends: 1.2). The topic
in memory is at its limit soon, as one in use is: each send makes older messages go. `--overload` sends for so
long, far above the limit, and tells by how much memory and disk have grown.
"""

import argparse
import json
import statistics
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from broker_drive import Row, drive
from broker_sides import UPDATE_AND_CREATE_TOPIC, Side, ask
from doors import Command

GET_BROKER_RUNTIME_INFO = 28
DELETE_TOPIC_IN_BROKER = 215
GOAL = 1.2
MEMORY_GOAL = 0.10  # so much above the limit at most


@dataclass(frozen=True)
class Size:
    """How long a run takes."""

    depths: tuple[int, ...]
    rounds: int
    seconds: float
    warm: float
    segment_bytes: int
    warm_up: bool = True  # both topics load what they need: else figures say nothing


SIZES = {
    "full": Size((1, 16, 64), 5, 3, 1, 1 << 30),
    "smoke": Size((4,), 1, 0.15, 0.05, 64 << 20, warm_up=False),
}


@dataclass
class Ratio:
    """One measured thing: messages a second in memory and on disk."""

    what: str
    memory: float
    disk: float
    ratio: float
    goal: float | None = None
    p50_ms: tuple[float, float] | None = None
    cpu_per_million: tuple[float, float] | None = None


def new_topic(side: Side, name: str, *, memory: bool) -> str:
    """Create a topic of 8 queues and return its name."""
    fields = {
        "topic": name,
        "defaultTopic": "TBW102",
        "readQueueNums": "8",
        "writeQueueNums": "8",
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "order": "false",
    }
    if memory:
        fields["attributes"] = "+memory.topic=true"
    answer = ask(side.address, Command(UPDATE_AND_CREATE_TOPIC, fields))
    if answer.code != 0:
        raise SystemExit(f"no topic {name}: {answer.code} {answer.remark}")
    return name


def by_turns(side: Side, what: str, size: Size, goal: float | None, **options: object) -> Ratio:
    """Send to both topics by turns; the median of the rounds' ratios counts."""
    rows: dict[str, list[Row]] = {"Memory": [], "Disk": []}
    for number in range(size.rounds):
        for topic in ("Memory", "Disk") if number % 2 else ("Disk", "Memory"):
            given = {"seconds": size.seconds, "warm": size.warm, **options}
            rows[topic].append(drive(side, "send", topic, **given))
    pairs = zip(rows["Memory"], rows["Disk"], strict=True)
    ratio = statistics.median(memory["rate"] / disk["rate"] for memory, disk in pairs)
    rate, p50_ms, cpu = (
        (median(rows["Memory"], name), median(rows["Disk"], name))
        for name in ("rate", "p50_ms", "cpu_per_million")
    )
    return shown(Ratio(what, *rate, ratio, goal, p50_ms, cpu))


def median(rows: list[Row], name: str) -> float:
    return statistics.median(row[name] for row in rows)


def pulls(side: Side, size: Size) -> Ratio:
    """Send the same to a topic of each kind, and read all of it."""
    ask(side.address, Command(DELETE_TOPIC_IN_BROKER, {"topic": "Memory"}))  # makes room
    rates: dict[str, float] = {}
    for topic, memory in (("PullDisk", False), ("PullMemory", True)):
        new_topic(side, topic, memory=memory)
        drive(side, "send", topic, depth=16, batch=16, seconds=size.seconds, warm=0)
        rates[topic] = drive(side, "pull", topic, queues=8)["rate"]
    ratio = rates["PullMemory"] / rates["PullDisk"]
    return shown(Ratio("pulls of all, 8 queues", rates["PullMemory"], rates["PullDisk"], ratio))


def shown(line: Ratio) -> Ratio:
    goal = "" if line.goal is None else f"  goal {line.goal:g}"
    rates = f"{line.memory:12,.0f}/s memory {line.disk:12,.0f}/s disk"
    print(f"{line.what:34} {rates}  ratio {line.ratio:.2f}{goal}", flush=True)
    for name, pair in (("p50, ms", line.p50_ms), ("CPU s a million", line.cpu_per_million)):
        if pair is not None:
            print(f"  {name:32} {pair[0]:12.2f}   memory {pair[1]:12.2f}   disk", flush=True)
    return line


def compare(side: Side, size: Size) -> list[Ratio]:
    new_topic(side, "Memory", memory=True)
    new_topic(side, "Disk", memory=False)
    for topic in ("Memory", "Disk") if size.warm_up else ():
        for batch in (1, 16):
            drive(side, "send", topic, depth=16, batch=batch, seconds=size.seconds, warm=size.warm)
    lines = [
        by_turns(side, f"sends, {depth} in flight", size, GOAL, depth=depth)
        for depth in size.depths
    ]
    lines.append(by_turns(side, "batches of 16, 4 in flight", size, None, depth=4, batch=16))
    lines.append(pulls(side, size))
    return lines


def overload(side: Side, size: Size, seconds: float) -> Row:
    """Send above the limit for so long; return what memory and disk have grown by."""
    new_topic(side, "Memory", memory=True)
    # Kernels are loaded.
    drive(side, "send", "Memory", depth=16, seconds=size.seconds, warm=size.warm)
    held = figures(side)
    anonymous, disk = side.memory_bytes()[0] - held["memoryTopicBytesAllocated"], disk_bytes(side)
    peak, messages, ends = 0, 0, time.monotonic() + seconds
    while (left := ends - time.monotonic()) > 0:
        messages += drive(side, "send", "Memory", depth=64, seconds=min(left, 10), warm=0)[
            "messages"
        ]
        peak = max(peak, side.memory_bytes()[0] - anonymous)
    now = figures(side)
    return {
        "seconds": seconds,
        "messages": messages,
        "evicted": now["memoryTopicMessagesEvicted"],
        "limit_bytes": now["memoryTopicBytesMax"],
        "counted_bytes": now["memoryTopicBytes"],
        "allocated_bytes": now["memoryTopicBytesAllocated"],
        "memory_growth_bytes": peak,
        "of_limit": peak / now["memoryTopicBytesMax"],
        "disk_growth_bytes": disk_bytes(side) - disk,
    }


def figures(side: Side) -> dict[str, int]:
    """Return what the broker tells about its topics in memory."""
    table = json.loads(ask(side.address, Command(GET_BROKER_RUNTIME_INFO)).body)["table"]
    return {name: int(text) for name, text in table.items() if name.startswith("memoryTopic")}


def disk_bytes(side: Side) -> int:
    """Return what the store's files take on disk, the small state in `config` apart."""
    files = (path for path in side.root.rglob("*") if path.is_file())
    return sum(path.stat().st_blocks * 512 for path in files if path.parent.name != "config")


def show_overload(row: Row) -> None:
    growth, limit = row["memory_growth_bytes"] / 1e6, row["limit_bytes"] / 1e6
    print(f"{row['messages']:,} messages in {row['seconds']:g} s, {row['evicted']:,} evicted")
    print(
        f"memory grew by {growth:.1f} MB, limit {limit:.1f} MB: {row['of_limit']:.1%}"
        f" (goal: at most {1 + MEMORY_GOAL:.0%})"
    )
    print(f"disk grew by {row['disk_growth_bytes']:,} bytes (goal: 0)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=SIZES, default="full")
    parser.add_argument("--overload", type=float, metavar="SECONDS")
    parser.add_argument("--limit-mb", type=int, default=512, help="of topics in memory")
    parser.add_argument(
        "--flush", choices=("async", "sync"), default="async", help="of the disk topic"
    )
    parser.add_argument("--directory", type=Path)
    parser.add_argument("--json", type=Path, metavar="FILE")
    given = parser.parse_args()
    size = SIZES[given.size]
    settings = {
        "memoryTopicEnable": "true",
        "mappedFileSizeCommitLog": str(size.segment_bytes),
        "flushDiskType": f"{given.flush.upper()}_FLUSH",
    }
    settings["memoryTopicBytesMax"] = str(given.limit_mb << 20)
    with (
        tempfile.TemporaryDirectory(dir=given.directory, prefix="bench-memory-") as root,
        Side("ours", Path(root), settings).running() as side,
    ):
        if given.overload:
            row = overload(side, size, given.overload)
            show_overload(row)
            result: object = row
        else:
            result = [asdict(line) for line in compare(side, size)]
    if given.json:
        given.json.write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
