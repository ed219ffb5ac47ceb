"""A selection of messages is sent again to a topic, or dead letters to the topics that they came from.

  look    tasks count what is selected: messages, bytes, topics, times; a dry run ends here
  resume  the driver: what an earlier run has sent (`state`, `sender.look_again`)
  send    tasks read the rows, the driver sends them in the order of the log, at a rate (`sender`)

One process sends, so that the rate is one, and nothing is sent any more when that process is gone.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  (Spark's own habit)

from orbitmq.client import Admin, Producer
from orbitmq.client.core.config import parse_addresses
from orbitmq.client.core.name_rules import require_topic
from orbitmq.errors import ConfigError
from orbitmq.spark.failures import clear_errors
from orbitmq.spark.jobs.replay.messages import TARGET, replayed_rows, sent_columns
from orbitmq.spark.jobs.replay.sender import (
    BATCH_MESSAGES,
    BATCHES_PER_SECOND,
    Pace,
    Sender,
    look_again,
)
from orbitmq.spark.jobs.replay.state import ReplayState, StateFile
from orbitmq.spark.progress import JobProgress
from orbitmq.spark.targets import wait_settled

GROUP: Final = "orbitmq-replay"
LOG_ORDER: Final = ("store_host", "log_offset")


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """Where a selection goes, and how."""

    namesrv: str
    state: Path | None = None  # needed to send
    to_topic: str | None = None  # None: where dead letters came from
    rate: float | None = None  # messages per second; None: as fast as the brokers answer
    what: str = ""  # names the selection; one state serves one of them
    order_by: Sequence[str] = LOG_ORDER  # originals of a queue must come in their order
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayReport:
    """What was selected, and what of it was sent."""

    dry_run: bool
    replay: str  # its id; empty in a dry run
    selected: int
    selected_bytes: int
    topics: dict[str, dict[str, int]]  # of the originals, and where how many of them go
    first_stored_ms: int | None
    last_stored_ms: int | None
    sent: int  # by this run
    sent_before: int


class _Selected:
    """What a selection holds, counted by Spark."""

    def __init__(self, rows: DataFrame) -> None:
        counted = rows.groupBy("topic", TARGET).agg(
            F.count("*").alias("messages"),
            F.sum("size").alias("bytes"),
            F.min(F.unix_millis("store_time")).alias("first"),
            F.max(F.unix_millis("store_time")).alias("last"),
        )
        self.groups = sorted(counted.collect(), key=lambda row: (row.topic, row.target or ""))
        self.messages = sum(row.messages for row in self.groups)
        self.bytes = sum(row.bytes for row in self.groups)

    def targets(self) -> list[str]:
        """Return the topics that are sent to. ConfigError: some messages do not say where they belong."""
        lost = sum(row.messages for row in self.groups if row.target is None)
        if lost:
            rule = f"{lost} messages do not say which topic they came from; name one"
            raise ConfigError("--to-topic", None, rule)
        found = sorted({row.target for row in self.groups})
        for topic in found:
            require_topic(topic)
        return found

    def report(self, sender: Sender | None, state: ReplayState | None) -> ReplayReport:
        topics: dict[str, dict[str, int]] = {}
        for row in self.groups:
            topics.setdefault(row.topic, {})[row.target] = row.messages
        before = sender.skipped if sender is not None else 0
        times = [(row["first"], row["last"]) for row in self.groups if row["first"] is not None]
        return ReplayReport(
            dry_run=state is None,
            replay=state.replay if state is not None else "",
            selected=self.messages,
            selected_bytes=self.bytes,
            topics=topics,
            first_stored_ms=min((first for first, _ in times), default=None),
            last_stored_ms=max((last for _, last in times), default=None),
            sent=self.messages - before if state is not None else 0,
            sent_before=before,
        )


def replay(
    frame: DataFrame, options: ReplayOptions, *, progress: JobProgress | None = None
) -> ReplayReport:
    """Send the messages of a message table again, each once, however often this is called with one state.

    ConfigError: a column, a topic or the state file is missing or does not fit.
    JobFailedError: a broker did not answer; the same call goes on.
    """
    _require(options)
    rows = replayed_rows(frame, options.to_topic)
    with (
        nullcontext(progress) if progress is not None else JobProgress(frame.sparkSession) as shown,
        clear_errors("replay"),
    ):
        shown.stage("look")
        selected = _Selected(rows)
        targets = selected.targets()
        if options.dry_run or options.state is None:
            return selected.report(None, None)
        counter = shown.stage("send", selected.bytes)
        ordered = sent_columns(rows.orderBy(*options.order_by))
        return _send(ordered, selected, targets, options, StateFile(options.state), counter.add)


def _require(options: ReplayOptions) -> None:
    parse_addresses(options.namesrv)
    if options.to_topic is not None:
        require_topic(options.to_topic)
    if options.rate is not None and options.rate <= 0:
        raise ConfigError("--rate", options.rate, "must be more than 0")
    if options.state is None and not options.dry_run:
        raise ConfigError("--state", None, "a file is needed that says how far the replay is")


def _send(
    rows: DataFrame,
    selected: _Selected,
    targets: list[str],
    options: ReplayOptions,
    file: StateFile,
    on_sent: Any,
) -> ReplayReport:
    what = f"{options.what} to {options.to_topic or 'where they came from'} at {options.namesrv}"
    state = file.load(what) or ReplayState(what)
    with Admin(options.namesrv) as admin:
        if state.client_id and not state.finished:
            brokers = {queue.broker_name for queue in state.ends}
            wait_settled(admin, targets, brokers, GROUP, state.client_id)
        look_again(admin, state, targets)
    with Producer(options.namesrv, GROUP) as producer:
        producer.announce([queue for topic in targets for queue in producer.queues(topic)])
        state.client_id = producer.client_id
        file.save(state)
        sender = Sender(
            producer,
            state,
            file,
            Pace(options.rate),
            batch_messages=batch_messages(options.rate),
            on_sent=on_sent,
        )
        sender.send_all(rows.toLocalIterator(prefetchPartitions=True))
    return selected.report(sender, state)


def batch_messages(rate: float | None) -> int:
    """Return how many messages go at once at most."""
    if rate is None:
        return BATCH_MESSAGES
    return max(1, min(BATCH_MESSAGES, int(rate / BATCHES_PER_SECOND)))
