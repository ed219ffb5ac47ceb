"""`flush`: what an append costs by flush mode: async, sync, and through the transient pool."""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from orbitmq.lab.experiment import (
    Chart,
    Experiment,
    Findings,
    Lab,
    Row,
    Size,
    Verdict,
    clearly_more,
    figure_text,
    times,
    verdict,
)
from orbitmq.lab.measure import Meter
from orbitmq.lab.stores import numbers, open_store, queue_bodies, requests, require_stored
from orbitmq.message import AppendRequest
from orbitmq.store.store import MessageStore
from orbitmq.units import KiB

BODY_BYTES: Final = 1 * KiB
MESSAGES: Final = {Size.SMALL: 800, Size.FULL: 24_000}  # at most, for each measure
SECONDS_MAX: Final = {Size.SMALL: 0.3, Size.FULL: 1.5}
POOL_BUFFERS: Final = 2
MODES: Final[dict[str, dict[str, object]]] = {
    "async": {"flushDiskType": "ASYNC_FLUSH"},
    "sync": {"flushDiskType": "SYNC_FLUSH"},
    "pool": {"transientStorePoolEnable": True, "transientStorePoolSize": POOL_BUFFERS},
}
THREADS: Final = (1, 8)
CLAIM: Final = (
    "async flush takes 100 000 messages/s at 1 ms and sync flush 10 000 at 10 ms, ten times fewer, while "
    "the pool makes writing faster still"
)
UNITS: Final = {"rate": "messages/s", "p50": "us", "p99": "us"}


def run(lab: Lab) -> Findings:
    """Append one message in a call, by one thread and by several that share syncs."""
    lab.steps(len(MODES) * len(THREADS))
    rows = [_row(lab, mode, threads) for mode in MODES for threads in THREADS]
    return Findings(UNITS, rows, judge(rows), Chart(("rate",), logarithmic=True))


def row_name(mode: str, threads: int) -> str:
    return f"{mode}, {threads} thread{'s' if threads > 1 else ''}"


def _row(lab: Lab, mode: str, threads: int) -> Row:
    name = row_name(mode, threads)
    root = lab.directory / name.replace(", ", "-").replace(" ", "-")
    made = requests(MESSAGES[lab.size], threads, BODY_BYTES)
    by_thread = [made[number::threads] for number in range(threads)]
    with open_store(root, **MODES[mode]) as store:
        with Meter() as meter:
            spent = _append(store, by_thread, SECONDS_MAX[lab.size])
        if mode == "sync":
            safe = store.flushed_offset >= store.max_log_offset
            lab.check(f"{name}: all that was acknowledged is on disk", safe)
    counts = [len(times_of_one) for times_of_one in spent]
    with open_store(root, **MODES[mode]) as store:
        found = [list(numbers(queue_bodies(store, queue_id))) for queue_id in range(threads)]
    wanted = [list(range(first, first + threads * n, threads)) for first, n in enumerate(counts)]
    lab.check(f"{name}: {sum(counts)} messages are there after a restart", found == wanted)
    lab.step()
    taken = sorted(one for some in spent for one in some)
    figures = {
        "rate": meter.rate(len(taken)),
        "p50": taken[len(taken) // 2] / 1e3,
        "p99": taken[len(taken) * 99 // 100] / 1e3,
    }
    return Row(name, figures)


def _append(
    store: MessageStore, by_thread: Sequence[Sequence[AppendRequest]], seconds_max: float
) -> list[list[int]]:
    """Append from several threads; return the nanoseconds of each append, by thread."""
    if len(by_thread) == 1:
        return [_append_some(store, by_thread[0], seconds_max)]
    with ThreadPoolExecutor(len(by_thread)) as pool:
        return list(pool.map(lambda made: _append_some(store, made, seconds_max), by_thread))


def _append_some(
    store: MessageStore, made: Sequence[AppendRequest], seconds_max: float
) -> list[int]:
    spent: list[int] = []
    deadline = time.perf_counter() + seconds_max
    now = time.perf_counter_ns
    for request in made:
        began = now()
        result = store.append(request)
        spent.append(now() - began)
        if not result.status.stored:
            require_stored(store, [result])
        if time.perf_counter() > deadline:
            break
    return spent


def judge(rows: Sequence[Row]) -> Verdict:
    """Compare the modes as one sender sees them, and what shared syncs give."""
    one = {mode: _figures(rows, row_name(mode, 1)) for mode in MODES}
    shared = _figures(rows, row_name("sync", THREADS[-1]))
    rate = {mode: figures["rate"] or 0.0 for mode, figures in one.items()}
    texts = [
        f"{mode} {figure_text(rate[mode])} messages/s (p50 {figure_text(figures['p50'])} us, "
        f"p99 {figure_text(figures['p99'])} us)"
        for mode, figures in one.items()
    ]
    seen = (
        f"one sender gets {', '.join(texts)}, async {times(rate['async'], rate['sync'])} as many as sync; "
        f"{THREADS[-1]} senders that share syncs get {figure_text(shared['rate'])}"
    )
    parts: dict[str, bool | None] = {
        "async against sync": clearly_more(rate["async"], rate["sync"]),
        "the pool": clearly_more(rate["pool"], rate["async"]),
    }
    return verdict(seen, CLAIM, parts)


def _figures(rows: Sequence[Row], name: str) -> dict[str, float | None]:
    return dict(next(row.figures for row in rows if row.name == name))


EXPERIMENT: Final = Experiment(
    name="flush",
    features=("F122",),
    about="async, sync and the transient pool: rate, p50, p99",
    claim=CLAIM,
    run=run,
)
