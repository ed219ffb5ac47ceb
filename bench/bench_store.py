"""The store against RocketMQ's own, and against itself as it grows.

    python bench/bench_store.py [--size full|smoke] [--directory DIR] [--json FILE] [--only NAME ...]

Each part runs in a process of its own (of the size smoke, most run in one); every result is checked (counts,
hits), so a fast wrong answer fails. Messages are made before the clock starts, on both sides. bench/README.md
says which situation each part stands for and keeps the figures.
"""

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import harness
from doors import AppendStatus, FlushMode, MessageStore, StoreConfig, compiled, rebuild_store
from harness import Line, Row, run_java, run_part, scratch
from orbitmq.units import MiB

SCRIPT = Path(__file__)
BATCH = 64
QUEUES = 16
RECORD_BYTES = 1192  # what a message of the benchmark takes in the log, about


@dataclass(frozen=True)
class Size:
    """How much work a run does."""

    appends: int
    warm: int
    chunk: int
    sync_appends: int
    sync_warm: int
    log_bytes: int  # of the log that is recovered
    queries: int
    growth_appends: int
    growth_queues: tuple[int, ...]
    growth_logs: tuple[int, ...]
    memory_queues: tuple[int, ...]
    files: dict[str, int]
    shares_process: bool = (
        False  # one for most parts: to start Python and load kernels takes seconds
    )

    @property
    def recovery_count(self) -> int:
        return self.log_bytes // RECORD_BYTES


SMALL_FILES = {"segment_bytes": 4 * MiB, "index_slots": 50_000, "index_items": 200_000}
SIZES = {
    "full": Size(
        appends=409_600,  # whole batches, for both sides
        warm=204_800,
        chunk=51_200,
        sync_appends=12_000,
        sync_warm=4_000,
        log_bytes=2_000_000_000,
        queries=50_000,
        growth_appends=320_000,
        growth_queues=(1, 100, 10_000, 80_000),
        growth_logs=(100_000_000, 1_000_000_000, 4_000_000_000),
        memory_queues=(100, 80_000),
        files={},
    ),
    "smoke": Size(
        appends=1_280,
        warm=640,
        chunk=640,
        sync_appends=100,
        sync_warm=50,
        log_bytes=5_000_000,
        queries=200,
        growth_appends=500,
        growth_queues=(1, 100),
        growth_logs=(1_000_000, 6_000_000),
        memory_queues=(100,),
        files=SMALL_FILES,
        shares_process=True,
    ),
}
JAVA_KEYS = {
    "segment_bytes": "mappedFileSizeCommitLog",
    "index_slots": "maxHashSlotNum",
    "index_items": "maxIndexNum",
}


# Parts: each runs alone in a process and returns one row.


def part_append(root: Path, size: Size, *, batch: int = 1, sync: int = 0, producer: int = 0) -> Row:
    """Append until dispatch has caught up, one by one, many in a call, or as producers' batches."""
    warm, count = (size.sync_warm, size.sync_appends) if sync else (size.warm, size.appends)
    chunk = size.sync_warm if sync else size.chunk
    spent = 0.0
    with _open(root, size, sync=bool(sync)) as store:
        for numbers in harness.chunks(0, warm + count, chunk):
            append = _append_producer_batches if producer else _append
            seconds = append(store, numbers, QUEUES, batch)
            spent += seconds if numbers.start >= warm else 0.0
        _require_units(store, warm + count)
    return {"rate": count / spent, "seconds": spent}


def part_make_log(root: Path, size: Size) -> Row:
    """Write the log that is recovered, queried and opened; close it cleanly."""
    with _open(root, size) as store:
        for numbers in harness.chunks(0, size.recovery_count, 12_800):
            _append(store, numbers, QUEUES, BATCH)
        log_bytes = store.max_log_offset - store.min_log_offset
    return {"log_bytes": log_bytes}


def part_open(root: Path, size: Size, *, warm: int = 0) -> Row:
    """Open a store and check that every message is in its queue.

    `warm`: the kernels are loaded before the clock starts, as RocketMQ's side has its code compiled.
    """
    if warm:
        compiled()
    start = time.perf_counter()
    with MessageStore.open(_config(root, size)) as store:
        _require(store.wait_dispatched(timeout=600), "dispatch does not keep up")
        seconds, ready = time.perf_counter() - start, harness.process_age()
        _require_units(store, size.recovery_count)
        log_bytes = store.max_log_offset - store.min_log_offset
        _query(store, size.recovery_count, 100)
    return {"open_seconds": seconds, "ready_seconds": ready, "log_bytes": log_bytes}


def part_kill(root: Path, size: Size) -> Row:
    """Write the log that is recovered and die in the middle of work: nothing is closed, nothing saved."""
    store = _open(root, size)
    for numbers in harness.chunks(0, size.recovery_count, 12_800):
        _append(store, numbers, QUEUES, BATCH)
    print(json.dumps({"log_bytes": store.max_log_offset - store.min_log_offset}), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("a killed process goes on")


def part_recover(root: Path, size: Size, *, alone: int = 0) -> Row:
    """Make a store and open it again, the log in memory: after a kill, or with nothing but its log."""
    name = next(name for name, each in SIZES.items() if each is size)
    if alone:
        run_part(SCRIPT, "make-log", size=name, root=root)
        harness.drop_derived(root)
    else:
        run_part(SCRIPT, "kill", ends_with=-signal.SIGKILL, size=name, root=root)
    os.sync()
    row = part_open(root, size, warm=1)
    return {**row, "rate": row["log_bytes"] / 1e6 / row["open_seconds"]}


def part_rebuild(root: Path, size: Size) -> Row:
    """Build queues and index from the log alone, as the offline tool does."""
    kernels = compiled()
    settings = {JAVA_KEYS[name]: str(value) for name, value in size.files.items()}
    start = time.perf_counter()
    rebuild_store(root, settings, kernels=kernels)
    return {"open_seconds": time.perf_counter() - start}


def part_query(root: Path, size: Size) -> Row:
    with _open(root, size) as store:
        _query(store, size.recovery_count, size.queries // 5)
        seconds = _query(store, size.recovery_count, size.queries)
    return {"rate": size.queries / seconds, "seconds": seconds}


def part_memory(root: Path, size: Size, *, queues: int) -> Row:
    """Memory of a process that appends to so many queues, a few messages in hand at a time."""
    count = max(size.growth_appends, 2 * queues)
    with _open(root, size) as store:
        for numbers in harness.chunks(0, count, 640):
            _append(store, numbers, queues, BATCH)
        _require_units(store, count)
        written = harness.anonymous_bytes()
        store.flush()
        return {"anonymous_bytes": max(written, harness.anonymous_bytes())}


def part_growth(root: Path, size: Size, *, queues: int = QUEUES, log_bytes: int = 0) -> Row:
    """Cost per append when there already are so many queues, or so long a log."""
    before = max(log_bytes // RECORD_BYTES, queues)
    with _open(root, size) as store:
        for numbers in harness.chunks(0, before, 12_800):
            _append(store, numbers, queues, BATCH)
        # The first write-out makes the files of all queues; that is not a cost of each append.
        store.flush()
        total = before + size.growth_appends
        spent = sum(
            _append(store, numbers, queues, 1)
            for numbers in harness.chunks(before, total, max(size.growth_appends // 8, 1))
        )
        _require_units(store, total)
    return {"microseconds": spent / size.growth_appends * 1e6}


PARTS: dict[str, Callable[..., Row]] = {
    "append": part_append,
    "make-log": part_make_log,
    "kill": part_kill,
    "recover": part_recover,
    "open": part_open,
    "rebuild": part_rebuild,
    "query": part_query,
    "growth": part_growth,
    "memory": part_memory,
}
OWN_PROCESS = "make-log"  # in every size: that parts can be started is tried too


def _config(root: Path, size: Size, *, sync: bool = False) -> StoreConfig:
    mode = FlushMode.SYNC if sync else FlushMode.ASYNC
    return StoreConfig(root=root, flush_mode=mode, **size.files)


def _open(root: Path, size: Size, *, sync: bool = False) -> MessageStore:
    store = MessageStore.open(_config(root, size, sync=sync))
    # RocketMQ's side is measured after its compiler has warmed up; ours has kernels to load.
    store.wait_kernels()
    return store


def _append(store: MessageStore, numbers: range, queues: int, batch: int) -> float:
    """Append the messages of these numbers; return the seconds until they are dispatched."""
    made = [harness.request(i, queues) for i in numbers]
    groups = [made[first : first + batch] for first in range(0, len(made), batch)]
    ok = AppendStatus.PUT_OK
    start = time.perf_counter()
    if batch == 1:
        append = store.append
        good = sum([append(request).status is ok for request in made])
    else:
        good = sum(result.status is ok for group in groups for result in store.append_many(group))
    dispatched = store.wait_dispatched(timeout=60)
    seconds = time.perf_counter() - start
    _require(dispatched, "dispatch does not keep up")
    _require(good == len(made), f"{len(made) - good} of {len(made)} appends were refused")
    return seconds


def _append_producer_batches(store: MessageStore, numbers: range, queues: int, batch: int) -> float:
    made = [harness.producer_batch(i, batch, queues) for i in numbers[::batch]]
    ok = AppendStatus.PUT_OK
    start = time.perf_counter()
    good = sum(r.status is ok for request in made for r in store.append_client_batch(request))
    dispatched = store.wait_dispatched(timeout=60)
    seconds = time.perf_counter() - start
    _require(dispatched, "dispatch does not keep up")
    _require(good == len(numbers), f"{len(numbers) - good} of {len(numbers)} appends were refused")
    return seconds


def _query(store: MessageStore, count: int, queries: int) -> float:
    start = time.perf_counter()
    for j in range(queries):
        i = (j * harness.KEY_STRIDE + 1) % count
        found = store.query(harness.topic(i, QUEUES), harness.key(i), 32)
        # A store compares hashes only: among millions of keys a few have another's.
        _require(1 <= len(found) <= 3, f"query of {harness.key(i)} found {len(found)}")
    return time.perf_counter() - start


def _require_units(store: MessageStore, expected: int) -> None:
    units = sum(
        store.max_offset(topic, queue_id) - store.min_offset(topic, queue_id)
        for topic, queue_id in store.queues()
    )
    _require(units == expected, f"expected {expected} units, found {units}")


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise SystemExit(f"wrong result: {what}")


# Comparisons: each runs parts, ours and RocketMQ's, and returns lines of the table.


class Run:
    """One run of the benchmark in a directory."""

    def __init__(self, size_name: str, directory: Path) -> None:
        self.size_name, self.size, self.directory = size_name, SIZES[size_name], directory
        self.rows: list[Row] = []
        self.java_settings = {JAVA_KEYS[name]: value for name, value in self.size.files.items()}

    def ours(self, part: str, root: Path, **options: object) -> Row:
        """Run a part in a process of its own, or here where the size says that figures do not matter."""
        if self.size.shares_process and part != OWN_PROCESS:
            row = PARTS[part](root, self.size, **options)
        else:
            row = run_part(SCRIPT, part, size=self.size_name, root=root, **options)
        self.rows.append({"side": "ours", "part": part, **options, **row})
        return row

    def java(self, part: str, root: Path, **options: object) -> Row:
        row = run_java(part, root, **options, **self.java_settings) or {}
        self.rows.append({"side": "java", "part": part, **options, **row})
        return row

    def append(self) -> list[Line]:
        size = self.size
        work = {"count": size.appends, "warm": size.warm, "chunk": size.chunk, "queues": QUEUES}
        with scratch(self.directory, "append") as root:
            java = self.java("put", root, **work).get("rate")
        with scratch(self.directory, "append") as root:
            java_batch = self.java("put", root, batch=BATCH, **work).get("rate")
        with scratch(self.directory, "append") as root:
            one = self.ours("append", root)["rate"]
        with scratch(self.directory, "append") as root:
            many = self.ours("append", root, batch=BATCH)["rate"]
        with scratch(self.directory, "append") as root:
            producer = self.ours("append", root, batch=BATCH, producer=1)["rate"]
        return [
            Line("put 1 KiB one by one, async flush", one, java, goal=0.5),
            Line(f"put {BATCH} messages in one call, against one by one", many, java, goal=3),
            Line(f"put producer batches of {BATCH}, against one by one", producer, java, goal=3),
            Line(f"put producer batches of {BATCH}, against the same", producer, java_batch),
        ]

    def sync(self) -> list[Line]:
        size = self.size
        work = {"count": size.sync_appends, "warm": size.sync_warm, "chunk": size.sync_warm}
        settings = {"queues": QUEUES, "flushDiskType": "SYNC_FLUSH"}
        with scratch(self.directory, "sync") as root:
            java = self.java("put", root, **work, **settings).get("rate")
        with scratch(self.directory, "sync") as root:
            ours = self.ours("append", root, sync=1)["rate"]
        return [Line("put 1 KiB one by one, sync flush", ours, java, goal=1)]

    def recovery(self) -> list[Line]:
        """One log for recovery, rebuild, key queries and cold opening, by both sides in turn."""
        work = {"count": self.size.recovery_count, "queues": QUEUES}
        with scratch(self.directory, "warm") as warm, scratch(self.directory, "log") as root:
            log_bytes = self.ours("make-log", root)["log_bytes"]
            lines = self._cold_open(root, work)
            lines.append(self._queries(root, work))
            java_warm = self.java("put", warm, count=self.size.chunk, queues=QUEUES)
            harness.drop_derived(root)
            java = {}
            if java_warm:
                harness.drop_derived(warm)
                java = self.java("recover", root, **work, warm_store=warm)
            harness.drop_derived(root)
            ours = self.ours("open", root, warm=1)
            harness.drop_derived(root)
            (root / "abort").unlink()  # offline tools do not touch a store that may be running
            rebuilt = self.ours("rebuild", root)
            harness.drop_derived(root)
            harness.forget_pages(root)
            cold = self.ours("open", root, warm=1)
        megabytes = log_bytes / 1e6
        java_rate = megabytes / java["open_seconds"] if java else None
        for what, row in (
            ("recover at start, log in memory", ours),
            ("rebuild offline, log in memory", rebuilt),
        ):
            rate = megabytes / row["open_seconds"]
            lines.append(Line(f"{what}: queues and index with CRC", rate, java_rate, "MB/s", 10))
        rate = megabytes / cold["open_seconds"]
        lines.append(Line("recover at start, log not in memory", rate, None, "MB/s"))
        return lines

    def _cold_open(self, root: Path, work: Row) -> list[Line]:
        # RocketMQ goes last: a clean stop of its own would leave no snapshot of ours behind.
        harness.forget_pages(root)
        ours = self.ours("open", root)
        harness.forget_pages(root)
        java = self.java("open", root, **work, shutdown="true")
        times = [ours["open_seconds"], java.get("open_seconds")]
        whole = [ours["ready_seconds"], java.get("ready_seconds")]
        what = "cold open of a clean store"
        return [
            Line(what, *times, unit="s", more_is_better=False),
            Line(f"{what}, from the start of the process", *whole, unit="s", more_is_better=False),
        ]

    def _queries(self, root: Path, work: Row) -> Line:
        queries = {"queries": self.size.queries, "warm": self.size.queries // 5}
        java = self.java("query", root, **work, **queries).get("rate")
        ours = self.ours("query", root)["rate"]
        return Line("key query, one hit, log in memory", ours, java, goal=1)

    def growth(self) -> list[Line]:
        """Ours alone: what more queues or a longer log cost."""
        by_queues = [("queues", queues) for queues in self.size.growth_queues]
        by_log = [("log_bytes", log_bytes) for log_bytes in self.size.growth_logs]
        return self._costs(by_queues, 1.5) + self._costs(by_log, 1.2)

    def _costs(self, cases: list[tuple[str, int]], times_max: float) -> list[Line]:
        lines: list[Line] = []
        first = 0.0
        for name, value in cases:
            with scratch(self.directory, "growth") as root:
                cost = self.ours("growth", root, **{name: value})["microseconds"]
            first = first or cost
            much = f"{value} queues" if name == "queues" else f"log of {value / 1e9:g} GB"
            what = f"cost per append, {much} ({cost / first:.2f}x of the first)"
            lines.append(Line(what, cost, None, "us", times_max * first, False, "unit"))
        return lines

    def memory(self) -> list[Line]:
        lines = []
        for queues in self.size.memory_queues:
            with scratch(self.directory, "memory") as root:
                memory = self.ours("memory", root, queues=queues)["anonymous_bytes"] / 1e6
            limit = 150 if queues <= 100 else 300
            what = f"anonymous memory, {queues} queues"
            lines.append(Line(what, memory, None, "MB", limit, False, "unit"))
        return lines


COMPARISONS = ("append", "sync", "recovery", "growth", "memory")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--size", choices=SIZES, default="full")
    parser.add_argument(
        "--directory", type=Path, help="where to write (needs 10 GB for the full size)"
    )
    parser.add_argument("--only", nargs="+", choices=COMPARISONS, default=COMPARISONS)
    parser.add_argument("--json", type=Path, help="write all rows to this file")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    parser.add_argument("options", nargs="*", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.part:
        _run_one(arguments.part, dict(option.split("=", 1) for option in arguments.options))
    else:
        _run_all(arguments)


def _run_one(part: str, options: dict[str, str]) -> None:
    root, size = Path(options.pop("root")), SIZES[options.pop("size")]
    numbers = {name: int(value) for name, value in options.items()}
    print(json.dumps(PARTS[part](root, size, **numbers)))


def _run_all(arguments: argparse.Namespace) -> None:
    print(harness.machine())
    lines: list[Line] = []
    with tempfile.TemporaryDirectory(prefix="orbitmq-bench-", dir=arguments.directory) as directory:
        run = Run(arguments.size, Path(directory))
        for name in arguments.only:
            new = getattr(run, name)()
            lines += new
            print(f"{name}: done", file=sys.stderr)
    print(harness.table(lines))
    if arguments.json:
        result = {"machine": harness.machine(), "lines": [asdict(line) for line in lines]}
        arguments.json.write_text(json.dumps({**result, "rows": run.rows}, indent=1, default=str))


if __name__ == "__main__":
    main()
