"""The pipeline on Spark against RocketMQ's recovery, Parquet and Spark's Kafka connector; how it grows.

    python bench/bench_spark.py [--gigabytes 4] [--size smoke] [--only PART ...] [--json FILE] [--keep DIR]

Parts: rebuild (a log's queues and index), read (count, full read, copy to Parquet, key lookup), first (query
of a session), kafka and fetches (as read, through the connector as it comes and with larger fetches), growth
(logs of an eighth to the whole size), cores (one and two), memory (of the Python workers, whatever the log is
like); prepare makes what the others need.
Every result is checked, so a fast wrong answer fails. bench/README.md has the method and the figures.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import harness
import spark_log
from harness import Line, Row, run_java, run_part
from orbitmq.units import MiB
from spark_lines import BY_ROWS, GOALS, core_lines, growth_lines, moved_line, query_lines, rate
from spark_log import Log
from spark_notes import Notes, place
from spark_sizes import SMOKE, Size, full_size

SCRIPT = Path(__file__)
ORBITMQ = Path(sys.executable).with_name("orbitmq")
ALL_CORES = os.cpu_count() or 1
COMMAND_SECONDS_MAX = 1_800


class Run:
    """One run of the benchmark in a directory. Logs are made when first needed; another run may find them."""

    def __init__(self, size: Size, directory: Path, *, java: bool, kafka: bool) -> None:
        self.size, self.directory, self.notes = size, directory, Notes(directory)
        self.with_java, self.with_kafka = java, kafka
        self.rows: list[Row] = []
        self.runs = {"runs": size.runs}
        self.asks = {**self.runs, "seconds": size.seconds}
        self._digests: dict[Log, str] = {}
        self._series: dict[tuple[Log, int, bool], Row] = {}

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
            self._digests[log] = self.notes.digest(log) or self._make(log)
        return log

    def _make(self, log: Log) -> str:
        say(f"  making {log.log_bytes / 1e9:.2g} GB of log in {log.root.name}")
        shutil.rmtree(log.root, ignore_errors=True)  # another one, or half of it
        digest: str = self.part("make", log=log)["digest"]
        self.notes.keep_digest(log, digest)
        return digest

    def part(self, name: str, **spec: Any) -> Row:
        """Run a part in a process of its own, or here where the size says that figures do not matter."""
        text = json.dumps(spec, default=spark_log.plain)
        is_here = self.size.shares_jvm and name != OWN_PROCESS
        row = run_here(name, text) if is_here else run_part(SCRIPT, name, spec=text)
        self.rows.append({"part": name, **json.loads(text), **row})
        return row

    def series(
        self, logs: list[Log], tasks: int = ALL_CORES, *, one_core: bool = False
    ) -> list[Row]:
        """Return what each log took, so many tasks at once; what was measured is not measured again."""
        one_core = one_core and not self.size.shares_jvm
        new = [log for log in logs if (log, tasks, one_core) not in self._series]
        if new:
            pairs = [(log, self._digests[log]) for log in new]
            work = {"warm": self.warm(new[0]), "tasks": tasks, "one_core": one_core, **self.asks}
            for log, row in zip(new, self.part("series", logs=pairs, **work)["logs"], strict=True):
                self._series[log, tasks, one_core] = _check(row, log)
        return [self._series[log, tasks, one_core] for log in logs]

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
            Line(f"{whole}: RocketMQ's recovery", ours, rate(megabytes, java), "MB/s", 4),
            *self._prepared_lines(whole, log, java),
            Line(f"{hot}: RocketMQ's recovery", warm_rate, rate(megabytes, java_warm), "MB/s", 8),
            Line(f"{whole}: `store rebuild`", ours, one_process, "MB/s"),
            Line(f"{hot}: one process", warm_rate, megabytes / alone["rebuild_seconds"], "MB/s"),
            moved_line(row),
        ]

    def _prepared_lines(self, whole: str, log: Log, java: float | None) -> list[Line]:
        """The command once more, on a machine that was told to keep the classes of Spark's JVM."""
        if not self.with_java:  # the small Java of the package cannot
            return []
        self._orbitmq("spark", "prepare")
        megabytes = log.log_bytes / 1e6
        ours, theirs = megabytes / self._command("spark", log), rate(megabytes, java)
        return [
            Line(f"{whole} after `spark prepare`: RocketMQ's recovery", ours, theirs, "MB/s", 4)
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

    def prepare(self) -> list[Line]:
        """Everything that is not measured: logs, Parquet files, Kafka's topics."""
        log = self.log()
        self.warm(log)
        self._write(log)
        if self.with_kafka:
            import kafka_side

            kafka_side.load(self.directory, self._place / "rows", log.count)
        for _, odd in self._odd_logs():
            self.warm(self._made(odd))
        for share in self.size.shares:
            self.log(share)
        return []

    @property
    def _place(self) -> Path:
        """Where the queries write."""
        return self.directory / "read"

    def _numbers(self, log: Log) -> list[int]:
        return [(j * harness.KEY_STRIDE + 1) % log.count for j in range(self.size.lookups)]

    def read(self) -> list[Line]:
        """The same queries by our source, by columns and by rows, and over Parquet."""
        log = self.log()
        self._write(log)
        work = {"target": self._place, "numbers": self._numbers(log), **self.asks}
        found = self.part("queries", log=log, **work)
        self.notes.keep("read", found)
        return query_lines(_beside(found), log, found["ours"])

    def first(self) -> list[Line]:
        """The count as the first query of a session: by columns, by rows, over Parquet."""
        log = self.log()
        self._write(log)
        found = {side: self._first(log, side) for side in ("ours", "rows", "parquet")}
        return query_lines(_beside(found), log, found["ours"])

    def _first(self, log: Log, side: str) -> Row:
        """Return the median of first queries: each in a session of its own."""
        work = {"log": log, "target": self._place, "side": side}
        rows = [self.part("first", **work) for _ in range(self.size.runs)]
        return {name: statistics.median(row[name] for row in rows) for name in rows[0]}

    def _write(self, log: Log) -> None:
        """Write the Parquet files, if no other part has."""
        if not (self._place / "rows" / "_SUCCESS").exists():
            self.part("write", log=log, target=self._place)

    def kafka(self) -> list[Line]:
        """The same queries through the Kafka connector, as it comes."""
        return self._connector("Kafka connector", tuned=0)

    def fetches(self) -> list[Line]:
        """The same queries through the Kafka connector with larger fetches."""
        return self._connector("Kafka connector, larger fetches", tuned=1)

    def _connector(self, side: str, tuned: int) -> list[Line]:
        if not self.with_kafka:
            return []
        log, found = self.log(), self.notes.kept("read")
        if found is None:
            raise SystemExit("kafka is compared with what `read` has measured: run that before")
        import kafka_side

        numbers = self._numbers(log)
        keys = ",".join(harness.key(i) for i in numbers)
        work = {"keys": keys, "queries": ",".join(GOALS), **self.runs, "tuned": tuned}
        self._write(log)
        kafka_side.load(self.directory, self._place / "rows", log.count)
        row = kafka_side.measure(self.directory, **work, target=self._place / "copy")
        self.rows.append({"part": side, **row})
        return query_lines({side: _check(row, log, numbers, in_order=False)}, log, found["ours"])

    def growth(self) -> list[Line]:
        """Logs of several sizes on all cores."""
        logs = [self.log(share) for share in self.size.shares]
        return growth_lines(logs, self.series(logs))

    def cores(self) -> list[Line]:
        """The whole log on two cores, on one core, and by one task at a time."""
        whole = [self.log()]
        beside = {
            "core": self.series(whole, 1, one_core=True)[0],
            "task at a time": self.series(whole, 1)[0],
        }
        return core_lines(whole[0], self.series(whole, 2)[0], beside)

    def memory(self) -> list[Line]:
        """Python workers: usual bodies and segments, the largest bodies, the smallest segments."""
        lines = []
        for what, log in (("1 KiB bodies, usual segments", self.log()), *self._odd_logs()):
            (row,) = self.series([self._made(log)])
            for work in ("rebuild", "read"):
                name, megabytes = f"memory of a worker, {work}, {what}", row[f"{work}_memory"] / 1e6
                lines.append(Line(name, megabytes, None, "MB", 300, False, "unit"))
        return lines

    def _odd_logs(self) -> list[tuple[str, Log]]:
        size = self.size
        log_bytes = size.log_bytes / size.shares[0]
        large, count = size.count(log_bytes, size.large_body_bytes), size.count(log_bytes)
        bodies = Log(self.directory / "large", large, size.large_body_bytes, size.files)
        files = Log(self.directory / "small", count, files=size.small_files)
        segment_bytes = dict(size.small_files)["segment_bytes"]
        return [
            (f"{size.large_body_bytes / MiB:.3g} MiB bodies", bodies),
            (f"segments of {segment_bytes // MiB} MiB", files),
        ]


def _beside(found: dict[str, Row]) -> dict[str, Row]:
    return {"Parquet": found["parquet"], BY_ROWS: found["rows"]}


def _check(row: Row, log: Log, numbers: list[int] | None = None, *, in_order: bool = True) -> Row:
    import spark_parts

    return spark_parts.check(row, log, numbers or [], in_order=in_order)


KAFKA = ("kafka", "fetches")
PARTS = ("rebuild", "read", "first", *KAFKA, "growth", "cores", "memory")
PREPARE = "prepare"
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
    parser.add_argument("--only", nargs="+", choices=(*PARTS, PREPARE), default=PARTS)
    parser.add_argument("--without-java", action="store_true", help="not RocketMQ's recovery")
    parser.add_argument("--without-kafka", action="store_true", help="not the Kafka connector")
    parser.add_argument("--directory", type=Path, help="where the logs are made")
    parser.add_argument(
        "--keep", type=Path, help="make them here, and leave them for a next run of other parts"
    )
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
    with place(arguments.keep, arguments.directory) as directory:
        run = Run(size, directory, java=_with_java(arguments), kafka=_with_kafka(arguments))
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

    if arguments.without_kafka or {*KAFKA, PREPARE}.isdisjoint(arguments.only):
        return False
    if reason := kafka_side.why_no_kafka():
        say(f"without Kafka's side: {reason}")
    return reason is None


if __name__ == "__main__":
    main()
