"""`orbitmq spark export --follow` beside a broker that takes messages at a steady rate: how far it is behind.

A broker of ours stores batches of 16 messages of 1 KiB (`paced_driver`); the command follows its store with
the interval that it has by itself. A message can be read in the lake from the moment on at which its commit
is done: the manifest gets its name then, and the file system notes when. The delay of a message is from its
store time, which is in its row, to that moment. DuckDB counts what is there: each message, once.
"""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

import spark_log
from broker_drive import drive
from broker_sides import ORBITMQ, Side, require_count
from harness import Line
from orbitmq.units import MiB

GOAL_SECONDS = 10.0
WAIT_SECONDS = 120.0
WARM_SECONDS = 2.0
STEADY = 0.67
"""At most half as much again may wait in the second half of a run as in the first."""


@dataclass(frozen=True)
class Size:
    """How much is sent, and how often the follower looks."""

    rate: int
    seconds: float
    formats: tuple[str, ...]
    options: tuple[str, ...] = ()
    settings: tuple[tuple[str, str], ...] = ()


SIZES = {
    "full": Size(20_000, 60.0, ("parquet", "delta")),
    "smoke": Size(
        *(2_000, 4.0, ("parquet",), ("--interval", "0.5")),
        settings=(("mappedFileSizeCommitLog", str(64 * MiB)),),
    ),
}


def lines(name: str, directory: Path) -> list[Line]:
    """Measure how far a follower is behind, for each format."""
    size = SIZES[name]
    directory.mkdir(parents=True)
    with Side("ours", directory, dict(size.settings)).running() as side:
        return [line for format_ in size.formats for line in _followed(side, size, format_)]


def _followed(side: Side, size: Size, format_: str) -> list[Line]:
    topic, lake = side.new_topic(), side.root / format_
    with _follower(side, topic, lake, format_, size.options):
        warm = drive(side, "paced", topic, rate=size.rate, seconds=WARM_SECONDS)
        _wait(lambda: _held(lake) == warm["messages"], "the first messages are in no table")
        begun_ms = time.time_ns() // 1_000_000
        sent = drive(side, "paced", topic, rate=size.rate, seconds=size.seconds)
        count = int(warm["messages"] + sent["messages"])
        require_count(side, topic, count)
        _wait(lambda: _held(lake) >= count, "the follower does not come to the end")
    _require_each_once(lake, topic, count)
    stored, readable = _times(lake, begun_ms)
    spark_log.require(len(stored) == sent["messages"], f"{len(stored)} rows have a time")
    return _lines(f"follow at {sent['rate']:,.0f}/s, {format_}", stored, readable, begun_ms)


Times = npt.NDArray[np.int64]


def _lines(what: str, stored: Times, readable: Times, begun_ms: int) -> list[Line]:
    half, full = np.percentile((readable - stored) / 1000, [50, 99])
    first, second = _most_waiting(stored, readable, (begun_ms + int(stored.max())) // 2)
    what = what.replace(",", " ", 1)
    seconds = {"unit": "s", "more_is_better": False}
    return [
        Line(f"{what}: stored to readable, p50", float(half), None, **seconds),  # type: ignore[arg-type]
        Line(f"{what}: p99", float(full), None, "s", GOAL_SECONDS, False, goal_unit="s"),
        Line(f"{what}: most waiting, 2nd half, 1st", second, first, "", STEADY, False),
    ]


def _most_waiting(stored: Times, readable: Times, middle: int) -> tuple[float, float]:
    """Return how many messages were stored and not readable at most, before and after a moment."""
    most = {False: 0.0, True: 0.0}
    end = int(stored.max())
    for moment in np.unique(readable):  # it is most just before a commit
        if moment <= end:
            waiting = np.count_nonzero((stored < moment) & (readable >= moment))
            most[bool(moment > middle)] = max(most[bool(moment > middle)], float(waiting))
    return most[False], most[True]


@contextmanager
def _follower(
    side: Side, topic: str, lake: Path, format_: str, options: tuple[str, ...]
) -> Iterator[None]:
    """Have the command at work; it is ended as a user ends it, and has to end well."""
    words = ["spark", "export", "--from", side.root / "store", "--to", lake, "--format", format_]
    words += ["--topic", topic, "--config", side.root / "broker.conf", "--follow", *options]
    words += ["--master", f"local[{os.cpu_count() or 1}]"]
    log = lake.with_suffix(".log")
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(ORBITMQ), *map(str, words)], stdout=output, stderr=output, start_new_session=True
        )
    try:
        yield
        process.send_signal(signal.SIGTERM)
        spark_log.require(process.wait(WAIT_SECONDS) == 0, log.read_text())
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _manifests(lake: Path) -> list[Path]:
    return sorted((lake / "_orbitmq" / "commits").glob("*.json"))


def _held(lake: Path) -> int:
    """Return how many rows the commits that are done have brought."""
    return sum(
        file["rows"] for path in _manifests(lake) for file in json.loads(path.read_bytes())["files"]
    )


def _times(lake: Path, begun_ms: int) -> tuple[Times, Times]:
    """Return when each message was stored, and when it could be read, in milliseconds."""
    stored, readable = [], []
    for path in _manifests(lake):
        done_ms = path.stat().st_ctime_ns // 1_000_000  # a rename is a change, not a write
        for file in json.loads(path.read_bytes())["files"]:
            column = pq.read_table(lake / file["path"], columns=["store_time"])["store_time"]
            times = np.asarray(column.cast(pa.timestamp("ms", "UTC")).cast(pa.int64()))
            stored.append(times[times >= begun_ms])
            readable.append(np.full(len(stored[-1]), done_ms, np.int64))
    return np.concatenate(stored), np.concatenate(readable)


def _require_each_once(lake: Path, topic: str, count: int) -> None:
    files = str(lake / topic / "**" / "*.parquet")
    question = (
        "select count(*), count(distinct log_offset), count(distinct (queue_id, queue_offset)),"
        " sum(octet_length(body)) from read_parquet(?)"
    )
    with duckdb.connect() as connection:
        found = connection.execute(question, [files]).fetchone()
    wanted = (count, count, count, count * 1024)
    spark_log.require(found == wanted, f"{lake.name}: {found} instead of {wanted}")


def _wait(holds: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + WAIT_SECONDS
    while not holds():
        spark_log.require(time.monotonic() < until, what)
        time.sleep(0.2)
