"""How far a job is: tasks count bytes and records, the driver shows the sums while the job runs.

    with JobProgress(spark, show=show) as progress:
        counter = progress.stage("scan", plan.log_bytes)
        rdd.foreach(lambda split: counter.add(split_bytes, records))

Counts arrive when a task ends. Only the attempt that succeeds counts; a stage that Spark runs again
(its shuffle files were lost) counts twice, so what is shown never passes the total.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from orbitmq.spark.context import Interruptible, context_of

if TYPE_CHECKING:
    from pyspark.accumulators import Accumulator

    from orbitmq.spark.context import Spark

LOOK_SECONDS: Final = 0.2


class StageProgress(NamedTuple):
    """A stage of a job at one moment. `total_bytes` 0: not known."""

    stage: str
    bytes: int
    total_bytes: int
    records: int
    seconds: float
    finished: bool

    @property
    def bytes_per_second(self) -> float:
        return self.bytes / self.seconds if self.seconds else 0.0

    @property
    def records_per_second(self) -> float:
        return self.records / self.seconds if self.seconds else 0.0

    @property
    def seconds_left(self) -> float | None:
        """None as long as there is nothing to reckon with."""
        if self.finished:
            return 0.0
        if not self.total_bytes or not self.bytes:
            return None
        return (self.total_bytes - self.bytes) / self.bytes_per_second


Show = Callable[[StageProgress], None]


@dataclass(frozen=True, slots=True)
class StageCounter:
    """What tasks add to. Travels to executors in a closure; only the driver can read it."""

    name: str
    total_bytes: int
    _bytes: "Accumulator[int]"
    _records: "Accumulator[int]"

    def add(self, byte_count: int, record_count: int) -> None:
        """Count work that a task has done."""
        self._bytes.add(byte_count)
        self._records.add(record_count)

    @property
    def bytes(self) -> int:
        return self._bytes.value

    @property
    def records(self) -> int:
        return self._records.value


class JobProgress(Interruptible):
    """Shows the stages of one job, one after the other. The driver's job thread starts stages; a thread
    of its own looks at the counters and calls `show`, never two calls at once.

    Inside the `with`, Ctrl-C cancels what Spark runs and then raises KeyboardInterrupt.
    """

    def __init__(self, spark: "Spark", *, show: Show | None = None) -> None:
        super().__init__(spark)
        self._show = show
        self._lock = threading.Lock()  # guards the three below, and calls of `show`
        self._counter: StageCounter | None = None
        self._started = 0.0
        self._shown: StageProgress | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="orbitmq-progress", daemon=True)

    def stage(self, name: str, total_bytes: int = 0) -> StageCounter:
        """Finish the stage before and start one; its tasks take the returned counter with them."""
        context = context_of(self._spark)
        counter = StageCounter(name, total_bytes, context.accumulator(0), context.accumulator(0))
        with self._lock:
            self._look(finished=True)
            self._counter, self._started, self._shown = counter, time.monotonic(), None
            self._look(finished=False)
        return counter

    def __enter__(self) -> Self:
        super().__enter__()
        if self._show is not None:
            self._thread.start()
        return self

    def __exit__(self, *raised: Any) -> None:
        self._over.set()
        if self._show is not None:
            self._thread.join()
        if raised[1] is None:
            with self._lock:
                self._look(finished=True)
        super().__exit__(*raised)

    def _watch(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            with self._lock:
                self._look(finished=False)

    def _look(self, *, finished: bool) -> None:
        """Show the stage if there is something new to show. Called with the lock held."""
        if self._counter is None or self._show is None:
            return
        counter, before = self._counter, self._shown
        total = counter.total_bytes
        done = min(counter.bytes, total) if total else counter.bytes
        seconds = time.monotonic() - self._started
        now = StageProgress(counter.name, done, total, counter.records, seconds, finished)
        if before is None or now._replace(seconds=before.seconds) != before:
            self._shown = now
            self._show(now)
