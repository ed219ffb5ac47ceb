"""Lines of the Spark benchmark's table, and the goals of reading."""

from harness import Line, Row
from spark_log import Log

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

CORE_GOALS = {"rebuild": 1.7, "count": 1.6, "read": 1.6}  # two cores against one


def rate(megabytes: float, seconds: float | None) -> float | None:
    """Return megabytes per second; None where a side was not measured."""
    return None if seconds is None else megabytes / seconds


def moved_line(row: Row) -> Line:
    """Return what a rebuild hands from task to task."""
    moved = row["moved_bytes_per_message"]
    what = "rebuild, bytes between tasks per message"
    return Line(what, moved, None, "bytes", 40, False, "unit")


def query_lines(sides: dict[str, Row], log: Log, ours: Row) -> list[Line]:
    """Return our times beside those of other sides, by query."""
    return [
        query_line(query, side, log, ours, row, SIDE_GOALS.get(side, GOALS).get(query))
        for side, row in sides.items()
        for query in NAMES
        if f"{query}_seconds" in row  # the connector is not asked for a first time
    ]


def query_line(query: str, side: str, log: Log, ours: Row, theirs: Row, goal: float | None) -> Line:
    times = ours[f"{query}_seconds"], theirs[f"{query}_seconds"]
    what = f"{NAMES[query]}: {side}"
    if query in ("lookup", "first"):
        return Line(what, *times, "s", goal, False)
    return Line(what, *(log.count / seconds for seconds in times), "rows/s", goal)


def growth_lines(logs: list[Log], found: list[Row]) -> list[Line]:
    """Return the rates of logs of several sizes, the smallest first."""
    lines = []
    sizes = [f"{log.log_bytes / 1e9:.2g} GB" for log in logs]
    for query in CORE_GOALS:
        rates = [_rate_of(query, log, row) for log, row in zip(logs, found, strict=True)]
        lines.append(Line(f"{query}, {sizes[0]}", rates[0], unit="MB/s"))
        for size, ours in zip(sizes[1:], rates[1:], strict=True):
            lines.append(Line(f"{query}, {size}: {sizes[0]}", ours, rates[0], "MB/s", 1))
    return lines


def core_lines(log: Log, two: Row, beside: dict[str, Row]) -> list[Line]:
    """Return the rates of two tasks on two cores beside those of one."""
    lines = []
    for query, goal in CORE_GOALS.items():
        for what, one in beside.items():
            rates = [_rate_of(query, log, row) for row in (two, one)]
            name = f"{query}, {log.log_bytes / 1e9:.2g} GB, 2 cores: 1 {what}"
            lines.append(Line(name, *rates, "MB/s", goal if what == "core" else None))
    return lines


def _rate_of(query: str, log: Log, row: Row) -> float:
    return log.log_bytes / 1e6 / float(row[f"{query}_seconds"])
