"""The pipeline on Spark against RocketMQ's recovery, Parquet and Spark's Kafka connector; how it grows.

    python bench/bench_spark.py [--gigabytes 4] [--size smoke] [--only PART ...] [--json FILE]

Parts: rebuild (a log's queues and index), read (count, full read, copy to Parquet, key lookup), growth (logs
of an eighth to the whole size; one core and two), memory (of the Python workers, whatever the log is like).
Every result is checked, so a fast wrong answer fails. bench/README.md has the method and the figures.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import harness
import spark_log
from harness import Line, Row, run_java, run_part, scratch
from orbitmq.units import MiB
from spark_log import Log
from spark_sizes import SMOKE, Size, full_size

SCRIPT = Path(__file__)
ORBITMQ = Path(sys.executable).with_name("orbitmq")
ALL_CORES = os.cpu_count() or 1
COMMAND_SECONDS_MAX = 1_800
GOALS = {"count": 10.0, "read": 3.0, "parquet": 3.0, "lookup": 50.0}  # against the Kafka connector
BY_ROWS = "the plain source, by rows"
SIDE_GOALS = {"Parquet": {"count": 0.9, "read": 1.0, "parquet": 1.0, "first": 1 / 1.5}, BY_ROWS: {}}
NAMES = {
    "count": "count by topic and tag, no bodies",
    "read": "full read, sums over every column",
    "parquet": "full read, written to Parquet",
    "lookup": "look up one key",
    "first": "the same count, first query of a session",
}


class Run:
    """One run of the benchmark in a directory. Logs are made when first needed and kept."""

    def __init__(self, size: Size, directory: Path, *, java: bool, kafka: bool) -> None:
        self.size, self.directory = size, directory
        self.with_java, self.with_kafka = java, kafka
        self.rows: list[Row] = []
        self.runs = {"runs": size.runs}
        self._digests: dict[Log, str] = {}
        self._series: dict[tuple[Log, int], Row] = {}

    # Logs

    def log(self, share: int = 1) -> Log:
        count = self.size.count(self.size.log_bytes / share)
        return self._made(Log(self.directory / f"log-{share}", count, files=self.size.files))

    def warm(self, like: Log | None = None) -> Log:
        """Return the small log on which everything is done once before it counts."""
        count = self.size.count(self.size.warm_bytes)
        files = like.files if like else self.size.files
        name = "warm" + "".join(f"-{value}" for _, value in files)
        return self._made(Log(self.directory / name, count, files=files))

    def _made(self, log: Log) -> Log:
        if log not in self._digests:
            say(f"  making {log.log_bytes / 1e9:.2g} GB of log in {log.root.name}")
            self._digests[log] = self.part("make", log=log)["digest"]
        return log

    def part(self, name: str, **spec: Any) -> Row:
        """Run a part in a process of its own, or here where the size says that figures do not matter."""
        text = json.dumps(spec, default=spark_log.plain)
        is_here = self.size.shares_jvm and name != OWN_PROCESS
        row = run_here(name, text) if is_here else run_part(SCRIPT, name, spec=text)
        self.rows.append({"part": name, **json.loads(text), **row})
        return row

    def series(self, logs: list[Log], cores: int = ALL_CORES) -> list[Row]:
        """Return what each log took with so many cores; what was measured before is not measured again."""
        new = [log for log in logs if (log, cores) not in self._series]
        if new:
            pairs = [(log, self._digests[log]) for log in new]
            work = {"warm": self.warm(new[0]), "cores": cores, **self.runs}
            for log, row in zip(new, self.part("series", logs=pairs, **work)["logs"], strict=True):
                self._series[log, cores] = _check(row, log)
        return [self._series[log, cores] for log in logs]

    # Comparisons

    def rebuild(self) -> list[Line]:
        """A log alone: our commands from their start, RocketMQ's; then everything warm."""
        log, warm = self.log(), self.warm()
        megabytes = log.log_bytes / 1e6
        java, java_warm = self._java_recovery(log)
        ours, one_process = (megabytes / self._command(name, log) for name in ("spark", "store"))
        alone = self.part("alone", log=log, warm=warm, digest=self._digests[log], **self.runs)
        (row,) = self.series([log])
        warm_rate = megabytes / row["rebuild_seconds"]
        what = f"rebuild of {megabytes / 1e3:.2g} GB"
        whole, hot = f"{what}, whole command", f"{what}, warm"
        return [
            Line(f"{whole}: RocketMQ's recovery", ours, _rate(megabytes, java), "MB/s", 4),
            *self._prepared_lines(whole, log, java),
            Line(f"{hot}: RocketMQ's recovery", warm_rate, _rate(megabytes, java_warm), "MB/s", 8),
            Line(f"{whole}: `store rebuild`", ours, one_process, "MB/s"),
            Line(f"{hot}: one process", warm_rate, megabytes / alone["rebuild_seconds"], "MB/s"),
            _moved_line(row),
        ]

    def _prepared_lines(self, whole: str, log: Log, java: float | None) -> list[Line]:
        """The command once more, on a machine that was told to keep the classes of Spark's JVM."""
        if not self.with_java:  # the small Java of the package cannot
            return []
        self._orbitmq("spark", "prepare")
        megabytes = log.log_bytes / 1e6
        rate, theirs = megabytes / self._command("spark", log), _rate(megabytes, java)
        return [
            Line(f"{whole} after `spark prepare`: RocketMQ's recovery", rate, theirs, "MB/s", 4)
        ]

    def _java_recovery(self, log: Log) -> tuple[float | None, float | None]:
        """Return RocketMQ's seconds from the start of its process, and warmed up on a small store."""
        if not self.with_java:
            return None, None
        small = self.warm()
        work = {"count": log.count, "queues": spark_log.QUEUES, **log.settings}
        times = []
        for name, more in (("ready_seconds", {}), ("open_seconds", {"warm_store": small.root})):
            for root in (log.root, small.root):
                harness.drop_derived(root)
            spark_log.warm_pages(log.root)
            row = run_java("recover", log.root, **work, **more)
            assert row is not None
            self.rows.append({"part": "RocketMQ recover", **row})
            times.append(row[name])
        return times[0], times[1]

    def _command(self, name: str, log: Log) -> float:
        """Return the seconds of `orbitmq spark rebuild` or `orbitmq store rebuild`, from start to end."""
        config = self.directory / "broker.conf"
        config.write_text("".join(f"{key}={value}\n" for key, value in log.settings.items()))
        spark_log.drop_derived(log.root)
        start = time.perf_counter()
        self._orbitmq(name, "rebuild", str(log.root), "--config", str(config))
        seconds = time.perf_counter() - start
        same = spark_log.digest(log.root) == self._digests[log]
        spark_log.require(same, f"{name} rebuild: files are not those of live dispatch")
        self.rows.append({"part": f"{name} rebuild", "seconds": seconds})
        return seconds

    def _orbitmq(self, *arguments: str) -> None:
        """Run a command, with a cache directory of this run: nothing is prepared but by it.

        Where figures do not matter it uses what is there: to compile the reader of columns takes seconds.
        """
        cache = {} if self.size.shares_jvm else {"XDG_CACHE_HOME": str(self.directory / "cache")}
        ended = subprocess.run(
            [str(ORBITMQ), *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=COMMAND_SECONDS_MAX,
            env=os.environ | cache,
        )
        what = f"orbitmq {' '.join(arguments)}: {ended.stdout}{ended.stderr}"
        spark_log.require(ended.returncode == 0, what)

    def read(self) -> list[Line]:
        """The same queries by our source, over Parquet and through the Kafka connector."""
        log = self.log()
        numbers = [(j * harness.KEY_STRIDE + 1) % log.count for j in range(self.size.lookups)]
        with scratch(self.directory, "read") as place:
            work = {"target": place, "numbers": numbers, **self.runs}
            found = self.part("queries", log=log, warm=self.warm(), **work)
            for side in found:
                found[side] |= self.part("first", log=log, target=place, side=side)
            sides = {"Parquet": found["parquet"], BY_ROWS: found["rows"]}
            if self.with_kafka:
                sides |= self._kafka(log, place, numbers)
        lines = []
        for side, row in sides.items():
            goals = SIDE_GOALS.get(side, GOALS)
            for query in NAMES:
                if f"{query}_seconds" in row:  # the connector is not asked for a first time
                    goal = goals.get(query)
                    lines.append(_query_line(query, side, log, found["ours"], row, goal))
        return lines

    def _kafka(self, log: Log, place: Path, numbers: list[int]) -> dict[str, Row]:
        """Return the connector's times, as it comes and with larger fetches."""
        import kafka_side

        keys = ",".join(harness.key(i) for i in numbers)
        work = {"keys": keys, "queries": ",".join(GOALS), "target": place / "copy", **self.runs}
        sides = {}
        with kafka_side.kafka_running(place / "kafka") as address:
            say("  loading Kafka")
            loaded = kafka_side.run_reader("load", address, parquet=place / "rows")
            spark_log.require(loaded["rows"] == log.count, f"{loaded} rows loaded into Kafka")
            for tuned, side in enumerate(("Kafka connector", "Kafka connector, larger fetches")):
                say(f"  {side}")
                row = kafka_side.run_reader("measure", address, **work, tuned=tuned)
                sides[side] = _check(row, log, numbers, in_order=False)
                self.rows.append({"part": side, **row})
        return sides

    def growth(self) -> list[Line]:
        """Logs of several sizes on all cores; the whole one on one core and on two."""
        logs = [self.log(share) for share in self.size.shares]
        found = self.series(logs)
        one = self.series(logs[-1:], 1)[0]
        two = self.series(logs[-1:], 2)[0]
        lines = []
        for query in ("rebuild", "count", "read"):
            name = f"{query}_seconds"
            first = logs[0].log_bytes / 1e6 / found[0][name]
            for log, row in zip(logs, found, strict=True):
                megabytes = log.log_bytes / 1e6
                what, rate = f"{query}, {megabytes / 1e3:.2g} GB", megabytes / row[name]
                if log is logs[0]:
                    lines.append(Line(what, rate, unit="MB/s"))
                    continue
                what += f": {logs[0].log_bytes / 1e9:.2g} GB"
                lines.append(Line(what, rate, first, "MB/s", 1))
            rates = [megabytes / row[name] for row in (two, one)]
            lines.append(
                Line(f"{query}, {megabytes / 1e3:.2g} GB, 2 cores: 1", *rates, "MB/s", 1.7)
            )
        return lines

    def memory(self) -> list[Line]:
        """Python workers: usual bodies and segments, the largest bodies, the smallest segments."""
        size, share = self.size, self.size.shares[0]
        log_bytes = size.log_bytes / share
        large = size.count(log_bytes, size.large_body_bytes)
        bodies = Log(self.directory / "large", large, size.large_body_bytes, size.files)
        count = size.count(log_bytes)
        files = Log(self.directory / "small", count, files=size.small_files)
        lines = []
        for what, log in (
            ("1 KiB bodies, usual segments", self.log()),
            (f"{size.large_body_bytes / MiB:.3g} MiB bodies", self._made(bodies)),
            (
                f"segments of {dict(size.small_files)['segment_bytes'] // MiB} MiB",
                self._made(files),
            ),
        ):
            (row,) = self.series([log])
            for work in ("rebuild", "read"):
                name, megabytes = f"memory of a worker, {work}, {what}", row[f"{work}_memory"] / 1e6
                lines.append(Line(name, megabytes, None, "MB", 512, False, "unit"))
        return lines


def _rate(megabytes: float, seconds: float | None) -> float | None:
    return None if seconds is None else megabytes / seconds


def _moved_line(row: Row) -> Line:
    moved = row["moved_bytes_per_message"]
    what = "rebuild, bytes between tasks per message"
    return Line(what, moved, None, "bytes", 40, False, "unit")


def _query_line(
    query: str, side: str, log: Log, ours: Row, theirs: Row, goal: float | None
) -> Line:
    times = ours[f"{query}_seconds"], theirs[f"{query}_seconds"]
    what = f"{NAMES[query]}: {side}"
    if query in ("lookup", "first"):
        return Line(what, *times, "s", goal, False)
    return Line(what, *(log.count / seconds for seconds in times), "rows/s", goal)


def _check(row: Row, log: Log, numbers: list[int] | None = None, *, in_order: bool = True) -> Row:
    import spark_parts

    return spark_parts.check(row, log, numbers or [], in_order=in_order)


PARTS = ("rebuild", "read", "growth", "memory")
OWN_PROCESS = "alone"  # in every size: that parts can be started is tried too


def run_here(name: str, text: str) -> Row:
    """Run a part in this process; Spark's JVM stays and serves the sessions of the next ones."""
    import spark_parts

    spec = json.loads(text, object_hook=spark_log.unplain)
    return spark_parts.PARTS[name](**spec)


def turn(root: str, size: str) -> Row:
    """Make a log, then rebuild, count and read it in one warm session, as compare.py runs them."""
    run = Run(SMOKE if size == "smoke" else full_size(1.0), Path(root), java=False, kafka=False)
    log = run.log()
    (row,) = run.series([log])
    return {
        "rebuild": log.log_bytes / 1e6 / row["rebuild_seconds"],
        "count": log.count / row["count_seconds"],
        "read": log.count / row["read_seconds"],
    }


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--gigabytes", type=float, default=4.0, help="of the log; disk: seven times"
    )
    parser.add_argument("--size", choices=("full", "smoke"), default="full")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--without-java", action="store_true", help="not RocketMQ's recovery")
    parser.add_argument("--without-kafka", action="store_true", help="not the Kafka connector")
    parser.add_argument("--directory", type=Path, help="where the logs are made")
    parser.add_argument("--json", type=Path, help="write all rows to this file")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    parser.add_argument("spec", nargs="*", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.part == "turn":
        print(json.dumps(turn(**dict(option.split("=", 1) for option in arguments.spec))))
    elif arguments.part:
        print(json.dumps(run_here(arguments.part, arguments.spec[0].partition("=")[2])))
    else:
        _run_all(arguments)


def _run_all(arguments: argparse.Namespace) -> None:
    size = SMOKE if arguments.size == "smoke" else full_size(arguments.gigabytes)
    print(harness.machine())
    lines: list[Line] = []
    with tempfile.TemporaryDirectory(prefix="orbitmq-bench-", dir=arguments.directory) as directory:
        run = Run(size, Path(directory), java=_with_java(arguments), kafka=_with_kafka(arguments))
        for name in arguments.only:
            say(f"{name}: {getattr(Run, name).__doc__}")
            lines += getattr(run, name)()
    print(harness.table(lines, beside="beside"))
    if arguments.json:
        result = {"machine": harness.machine(), "lines": [asdict(line) for line in lines]}
        arguments.json.write_text(json.dumps({**result, "rows": run.rows}, indent=1, default=str))


def _with_java(arguments: argparse.Namespace) -> bool:
    from compat.java_store import why_not

    if arguments.without_java or "rebuild" not in arguments.only:
        return False
    if reason := why_not():
        say(f"without RocketMQ's side: {reason}")
    return reason is None


def _with_kafka(arguments: argparse.Namespace) -> bool:
    import kafka_side

    if arguments.without_kafka or "read" not in arguments.only:
        return False
    if reason := kafka_side.why_no_kafka():
        say(f"without Kafka's side: {reason}")
    return reason is None


if __name__ == "__main__":
    main()
