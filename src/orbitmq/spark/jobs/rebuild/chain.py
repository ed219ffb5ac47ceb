"""Join scanned splits to one log: each must begin where the one before it ended.

Where a task began in the middle of a segment it guessed well or not; here it shows. A split that began
elsewhere is scanned again from where the log really goes on. What is bad in the log is judged by the rules
of recovery (`store.recovery.walk`), from the place of the first bad byte on: a torn end is where the log
ends, anything else stops a rebuild.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from orbitmq.errors import JobFailedError
from orbitmq.format.kernels import Kernels, compiled, plain
from orbitmq.log_read import LogView, Split, is_closed_at
from orbitmq.log_read.plan import PLAIN_BYTES
from orbitmq.spark.jobs.rebuild.pack import PackOptions, SplitFacts
from orbitmq.store.offline.rebuild import require_tail
from orbitmq.store.recovery.plan import Repair, WalkOptions
from orbitmq.store.recovery.queue_counts import Queue
from orbitmq.store.recovery.walk import WalkResult, walk

ScanAgain = Callable[[Split], SplitFacts]
"""Scan a split that is known to start at a record."""

_RECENT: Final = 3


@dataclass(slots=True)
class LogChain:
    """The log as its splits tell it, in order. `at` is behind the last record."""

    at: int
    splits: list[SplitFacts] = field(default_factory=list)
    recent_ms: tuple[int, ...] = ()
    earlier: bool = False  # some record is older than the one before it
    doubtful: bool = False  # see SplitFacts.doubtful

    @property
    def records(self) -> int:
        return sum(facts.records for facts in self.splits)

    @property
    def last_store_ms(self) -> int:
        return self.recent_ms[-1] if self.recent_ms else -1

    def add(self, facts: SplitFacts) -> None:
        self.earlier |= facts.earlier or facts.first_ms < self.last_store_ms
        self.splits.append(facts)
        self.recent_ms = (*self.recent_ms, *facts.recent_ms)[-_RECENT:]
        self.at = facts.end


def join(found: Iterable[SplitFacts], log: LogView, again: ScanAgain) -> LogChain:
    """Return the chain up to the first place that holds no valid record."""
    chain = LogChain(log.min_offset)
    for told in sorted(found, key=lambda facts: facts.split.start):
        if not told.records and told.bad is None:
            continue
        if not _pass_blank(chain, told.split, log):
            return chain
        if chain.at >= told.split.end:
            continue  # inside of a record, or behind a blank
        follows = _begin(told) == chain.at
        facts = told if follows else again(told.split._replace(start=chain.at))
        if facts.records:
            chain.add(facts)
        if facts.bad is not None:
            chain.doubtful = facts.doubtful
            return chain
    return chain


def _begin(facts: SplitFacts) -> int:
    """Return where a split begins: with a record, or with a bad place."""
    return facts.first if facts.records or facts.bad is None else facts.bad


def _pass_blank(chain: LogChain, split: Split, log: LogView) -> bool:
    """Move on to the split's segment if the one before is closed; False: it is not."""
    while chain.at < split.base_offset:
        segment = log.at(chain.at)
        if not is_closed_at(segment, chain.at, kernels=plain()):
            return False
        chain.at = segment.end_offset
    return True


def find_end(
    chain: LogChain, known_next: Mapping[Queue, int], log: LogView, options: PackOptions
) -> int:
    """Return where the log ends: behind the chain, or behind a blank that follows it.

    CorruptRecordError: the chain ends at a bad place, and the log goes on behind it.
    """
    if not log.segments or chain.at >= log.max_offset or _is_over(log, chain.at):
        return chain.at
    result = WalkResult(chain.at, recent_ms=chain.recent_ms)
    reading = WalkOptions(
        kernels=_kernels_for(log, chain.at),
        scan=options.scan,
        known_next=known_next,
        whole_from=options.whole_from,
    )
    for item in walk(log, chain.at, reading, result):
        if not isinstance(item, Repair):
            what = f"the log has records behind {chain.at} that no task has read"
            raise JobFailedError(what, "Is somebody writing to it? The store is as before.")
        require_tail(item)
    return result.end_offset


def _is_over(log: LogView, at: int) -> bool:
    """Tell whether there are only zeros from here on, as behind every healthy end."""
    here, *later = log.segments[log.index_of(at) :]
    rest_is_zero = here.is_zero(at - here.base_offset)
    return rest_is_zero and all(segment.is_zero(0) for segment in later)


def _kernels_for(log: LogView, at: int) -> Kernels:
    """Return kernels for what lies behind the end: mostly nothing, not worth loading the fast ones."""
    first = log.index_of(at)
    left = sum(segment.data_end() for segment in log.segments[first:])
    left -= at - log.segments[first].base_offset
    return compiled() if left > PLAIN_BYTES else plain()


def cut_stale(chain: LogChain, log: LogView, options: PackOptions, again: ScanAgain) -> LogChain:
    """Return the chain as recovery would read it, where a glance does not tell.

    Stale bytes of a segment may look like records that follow. Only reading the log in order,
    with the next queue offset of every queue at hand, tells them from a clock that was set back.
    """
    result = WalkResult(log.min_offset)
    reading = WalkOptions(kernels=compiled(), scan=options.scan, whole_from=options.whole_from)
    for item in walk(log, log.min_offset, reading, result):
        if isinstance(item, Repair):
            require_tail(item)
    shorter = LogChain(log.min_offset)
    end = result.end_offset
    for told in chain.splits:
        cut_short = told.first < end < told.end
        rest = told.split._replace(start=told.first, end=min(told.split.end, end), limit=end)
        facts = again(rest) if cut_short else told
        if facts.records and facts.end <= end:
            shorter.add(facts)
    return shorter
