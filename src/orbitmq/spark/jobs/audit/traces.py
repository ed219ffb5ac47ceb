"""What clients told about their messages, joined with the messages themselves.

Trace records of one id meet the rows of that id in one task (`keyed.py`); `client/trace/way.py` puts the way
of the message together. Only messages that the audit counts are joined; ids of others are counted as such.
"""

import pickle
from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import nsmallest
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from orbitmq.client.trace.records import decode_records
from orbitmq.client.trace.way import CONSUMED, SENT, MessageWay, Seen, TraceStep, ways
from orbitmq.errors import FormatError
from orbitmq.format.columns import Ints
from orbitmq.format.compression import decompress
from orbitmq.message import SysFlag
from orbitmq.spark.jobs.audit.copies import Grouped, Place
from orbitmq.spark.jobs.audit.facts import add
from orbitmq.spark.jobs.audit.histogram import Histogram
from orbitmq.spark.jobs.audit.keyed import ID, NO_ID, bucket_of
from orbitmq.spark.source.batches import INFLATED_BYTES_MAX
from orbitmq.spark.source.row_columns import RowColumns

RECORDS_MAX: Final = 50_000
"""So many trace records wait before they are handed out."""
_OK: Final = ("ok", "ok, too late")
_END_UNKNOWN: Final = "end unknown"


class Unconsumed(NamedTuple):
    """A message that nobody says to have consumed."""

    topic: str
    message_id: str
    place: Place


@dataclass(slots=True)
class TopicTrace:
    """Messages of a topic, and of how many of them the trace tells what."""

    messages: int = 0  # by their ids
    traced: int = 0
    sent: int = 0
    failed_sends: int = 0
    consumed: int = 0  # by any group, at the end with success
    failed: int = 0  # by all who tried
    never_consumed: int = 0
    send_cost: Histogram = field(default_factory=Histogram)

    def merge(self, other: "TopicTrace") -> None:
        for name in _COUNTED:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.send_cost.merge(other.send_cost)


_COUNTED: Final = (
    *("messages", "traced", "sent", "failed_sends", "consumed", "failed", "never_consumed"),
)


@dataclass(slots=True)
class GroupTrace:
    """What a group did with messages of a topic."""

    messages: int = 0  # that it was given, by their ids
    consumed: int = 0  # of these, at the end with success
    attempts: int = 0
    failed_attempts: int = 0
    unfinished: int = 0  # attempts of which no end is known
    latency: Histogram = field(
        default_factory=Histogram
    )  # stored to the begin of the first attempt
    cost: Histogram = field(default_factory=Histogram)  # of the attempts

    def merge(self, other: "GroupTrace") -> None:
        self.messages += other.messages
        self.consumed += other.consumed
        self.attempts += other.attempts
        self.failed_attempts += other.failed_attempts
        self.unfinished += other.unfinished
        self.latency.merge(other.latency)
        self.cost.merge(other.cost)


@dataclass(slots=True)
class TraceFacts:
    """What the trace says of some ids, or of all."""

    records: int = 0
    unmatched: int = 0  # ids that no message counted here has
    topics: dict[str, TopicTrace] = field(default_factory=dict)
    groups: dict[tuple[str, str], GroupTrace] = field(default_factory=dict)  # by group and topic
    unconsumed: dict[str, list[Unconsumed]] = field(default_factory=dict)  # by topic, the oldest

    def merge(self, other: "TraceFacts", top: int) -> None:
        """Add what is known of other ids; keep the oldest that nobody consumed."""
        self.records += other.records
        self.unmatched += other.unmatched
        for mine, more in ((self.topics, other.topics), (self.groups, other.groups)):
            for key, value in more.items():
                add(mine, key, value)
        for topic, found in other.unconsumed.items():
            self.unconsumed[topic] = oldest(top, self.unconsumed.get(topic, []) + found)


def oldest(top: int, found: Iterable[Unconsumed]) -> list[Unconsumed]:
    """Return those that were stored first."""
    return nsmallest(top, found, key=lambda one: (one.place.store_ms, one))


# --- in the task that reads the trace topic ---


class TraceRows:
    """Trace records of one task, by bucket. Not thread-safe."""

    def __init__(self, buckets: int) -> None:
        self._buckets = buckets
        self._seen: list[Seen] = []

    def add(self, columns: RowColumns) -> None:
        """Take what trace messages say; a body that cannot be unpacked says nothing."""
        hosts = columns.column("born_host").to_pylist()
        for row, host in zip(columns.rows, hosts, strict=True):
            at, length = int(row["body_at"]), int(row["body_length"])
            body, flag = columns.buffer[at : at + length].tobytes(), int(row["sys_flag"])
            try:
                text = (
                    decompress(body, flag, INFLATED_BYTES_MAX)
                    if flag & SysFlag.COMPRESSED
                    else body
                )
            except FormatError:
                continue
            client = host.rpartition(":")[0]
            self._seen += [(record, client) for record in decode_records(text) if record.message_id]

    def full(self) -> bool:
        return len(self._seen) >= RECORDS_MAX

    def pieces(self) -> Iterable[tuple[int, bytes]]:
        """Yield what was taken, by bucket, and forget it."""
        seen, self._seen = self._seen, []
        if not seen:
            return
        ids = pa.array([record.message_id for record, _ in seen], pa.string())
        by_bucket: dict[int, list[Seen]] = {}
        for bucket, one in zip(bucket_of(ids, self._buckets).tolist(), seen, strict=True):
            by_bucket.setdefault(bucket, []).append(one)
        for bucket, mine in by_bucket.items():
            yield bucket, pickle.dumps(mine)


# --- where records and messages of one id meet ---


def join_traces(
    grouped: Grouped | None, pieces: Iterable[bytes], groups: frozenset[str], top: int
) -> TraceFacts:
    """Return what the trace says of these messages; of groups only those named, if any are."""
    seen: list[Seen] = [one for data in pieces for one in pickle.loads(data)]
    facts = TraceFacts(records=len(seen))
    found = ways(dict.fromkeys(seen))  # a trace message that was sent again tells everything twice
    if grouped is None:
        facts.unmatched = len(found)
        return facts
    return _Join(grouped, found, facts, groups, top).run()


class _Join:
    """Messages of one bucket and the ways that the trace knows. Not thread-safe."""

    def __init__(
        self,
        grouped: Grouped,
        found: list[MessageWay],
        facts: TraceFacts,
        groups: frozenset[str],
        top: int,
    ) -> None:
        self._grouped, self._ways, self._facts = grouped, found, facts
        self._groups, self._top = groups, top
        self._messages = np.flatnonzero(np.isin(grouped.by, (ID, NO_ID)))
        self._topics = grouped.topics.take(self._messages)
        self._texts = grouped.texts().take(self._messages)
        firsts = np.minimum.reduceat(grouped.column("store_ms"), grouped.starts)
        self._store_ms = firsts[self._messages]

    def run(self) -> TraceFacts:
        facts = self._facts
        for topic, count in zip(*self._counted(), strict=True):
            facts.topics[topic] = TopicTrace(messages=count, never_consumed=count)
        if not self._ways:
            return facts
        ids = pa.array([way.message_id for way in self._ways], pa.string())
        which = pc.fill_null(pc.index_in(self._texts, value_set=ids), -1).to_numpy()
        facts.unmatched = len(self._ways) - len(np.unique(which[which >= 0]))
        handled = np.zeros(len(which), dtype=np.bool_)
        for at in np.flatnonzero(which >= 0).tolist():
            handled[at] = self._take(at, self._ways[which[at]])
        self._note_unconsumed(handled)
        return facts

    def _counted(self) -> tuple[list[str], list[int]]:
        counts = self._topics.value_counts()
        return counts.field("values").to_pylist(), counts.field("counts").to_pylist()

    def _take(self, at: int, way: MessageWay) -> bool:
        """Count one message; return whether anybody consumed it, or tried to."""
        topic = self._facts.topics[self._topics[at].as_py()]
        topic.traced += 1
        sends = [step for step in way.steps if step.what == SENT]
        tries = [step for step in way.steps if step.what == CONSUMED]
        topic.sent += bool(sends)
        topic.failed_sends += sum(step.result not in _OK for step in sends)
        topic.send_cost.add(_numbers(step.cost_ms for step in sends))
        if not tries:
            return False
        done = any(step.result in _OK for step in tries)
        topic.consumed += done
        topic.failed += not done
        topic.never_consumed -= 1
        for group in {step.group for step in tries}:
            if not self._groups or group in self._groups:
                mine = [step for step in tries if step.group == group]
                self._take_group(group, self._topics[at].as_py(), int(self._store_ms[at]), mine)
        return True

    def _take_group(self, group: str, topic: str, store_ms: int, tries: list[TraceStep]) -> None:
        facts = self._facts.groups.setdefault((group, topic), GroupTrace())
        facts.messages += 1
        facts.consumed += any(step.result in _OK for step in tries)
        facts.attempts += len(tries)
        unfinished = sum(step.result == _END_UNKNOWN for step in tries)
        facts.unfinished += unfinished
        facts.failed_attempts += sum(step.result not in _OK for step in tries) - unfinished
        facts.latency.add(_numbers([min(step.time_ms for step in tries) - store_ms]))
        facts.cost.add(_numbers(step.cost_ms for step in tries))

    def _note_unconsumed(self, handled: npt.NDArray[np.bool_]) -> None:
        left = np.flatnonzero(~handled)
        left = left[np.argsort(self._store_ms[left], kind="stable")]
        topics = self._topics.take(left)
        for topic in pc.unique(topics).to_pylist():
            mine = left[pc.equal(topics, topic).to_numpy(zero_copy_only=False)][: self._top]
            self._facts.unconsumed[topic] = [
                Unconsumed(topic, self._texts[at].as_py(), self._place(at)) for at in mine.tolist()
            ]

    def _place(self, at: int) -> Place:
        return self._grouped.places(int(self._messages[at]))[0]


def _numbers(given: Iterable[int | None]) -> Ints:
    return np.array([number for number in given if number is not None], dtype=np.int64)
