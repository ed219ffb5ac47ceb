"""`page-cache`: messages of a queue in order against random messages, from a log that is not in memory."""

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from orbitmq.format.record import decode_record
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
from orbitmq.lab.measure import COLD_SHARE_MAX, Meter, make_cold, resident_share
from orbitmq.lab.stores import (
    NUMBER_BYTES,
    TOPIC,
    append_all,
    log_files,
    open_store,
    requests,
)
from orbitmq.store.store import MessageStore
from orbitmq.units import KiB, MiB

QUEUES: Final = 16
BODY_BYTES: Final = 2 * KiB
SEGMENT_BYTES: Final = {Size.SMALL: 1 * MiB, Size.FULL: 8 * MiB}
MESSAGES: Final = {Size.SMALL: 1_600, Size.FULL: 72_000}
READ: Final = {Size.SMALL: 50, Size.FULL: 500}
CLAIM: Final = (
    "a queue read in order comes out of the page cache, nearly as from memory, because the system reads "
    "ahead, and random records of a cold log do not"
)
UNITS: Final = {
    "rate": "messages/s",
    "major faults": "per 1 000 messages",
    "from disk": "KiB/message",
}
IN_ORDER, MERGED, RANDOM, WARM = (
    "one queue in order, cold",
    "all queues in order, cold",
    "random messages, cold",
    "random messages, in memory",
)

Place = tuple[int, int]  # queue id, queue offset


def run(lab: Lab) -> Findings:
    """Read equally many messages, one in a call, so that nothing but their order differs."""
    lab.steps(5)
    world = _write(lab)
    lab.step()
    count = MESSAGES[lab.size]
    everything = [(number % QUEUES, number // QUEUES) for number in range(count)]
    orders: dict[str, Sequence[Place]] = {
        IN_ORDER: everything[::QUEUES][: READ[lab.size]],
        MERGED: everything[: READ[lab.size]],
        RANDOM: random.Random(57).sample(everything, READ[lab.size]),
    }
    rows, kept = [], 0.0
    for name, places in orders.items():
        with world.cold() as (store, share):
            kept = max(kept, share)
            rows.append(_read(lab, store, name, places))
            if name == RANDOM:
                rows.append(_read(lab, store, WARM, places))
    return Findings(UNITS, rows, judge(rows, kept), Chart(("rate",), logarithmic=True))


@dataclass(frozen=True)
class World:
    """A store on disk, and the segments of which every message may be asked for."""

    root: Path
    segment_bytes: int
    segments: Sequence[Path]

    @contextmanager
    def cold(self) -> Iterator[tuple[MessageStore, float]]:
        """Open the store with nothing of these segments in memory; also give the share that still is."""
        make_cold(log_files(self.root))
        with open_store(self.root, mappedFileSizeCommitLog=self.segment_bytes) as store:
            yield store, max(map(resident_share, self.segments))


def _write(lab: Lab) -> World:
    """Fill a log, and a segment more: a start reads the end of the log."""
    root, size = lab.directory / "store", SEGMENT_BYTES[lab.size]
    with open_store(root, mappedFileSizeCommitLog=size) as store:
        append_all(store, requests(MESSAGES[lab.size], QUEUES, BODY_BYTES))
        asked_for = store.max_log_offset // size
        append_all(store, requests(2 * size // BODY_BYTES, QUEUES, BODY_BYTES))
    return World(root, size, log_files(root)[:asked_for])


def _read(lab: Lab, store: MessageStore, name: str, places: Sequence[Place]) -> Row:
    get, found = store.get, []
    with Meter() as meter:
        for queue_id, offset in places:
            found.append(bytes(get(TOPIC, queue_id, offset, 1).records[0]))
    wanted = [offset * QUEUES + queue_id for queue_id, offset in places]
    lab.check(
        f"{name}: {len(places)} messages are those that were asked for", _numbers(found) == wanted
    )
    lab.step()
    thousands = len(places) / 1_000
    figures = {
        "rate": meter.rate(len(places)),
        "major faults": meter.major_faults / thousands,
        "from disk": meter.read_bytes / KiB / len(places),
    }
    return Row(name, figures)


def _numbers(records: list[bytes]) -> list[int]:
    """Return the numbers of messages; decoding compares their checksums too."""
    bodies = (decode_record(record).body for record in records)
    return [int.from_bytes(body[:NUMBER_BYTES], "big") for body in bodies]


def judge(rows: Sequence[Row], kept: float) -> Verdict:
    """Compare a queue in order with random messages; `kept` is the share that was in memory at the start."""
    rates = {row.name: row.figures["rate"] or 0.0 for row in rows}
    order, scattered = rates[IN_ORDER], rates[RANDOM]
    if kept > COLD_SHARE_MAX:
        seen = f"{kept:.0%} of the log stayed in memory, this file system does not forget it"
        return verdict(seen, CLAIM, {"order": None})
    seen = (
        f"on a cold log {figure_text(order)} messages/s of one queue in order and "
        f"{figure_text(scattered)} at random ({times(order, scattered)} as many in order), where memory "
        f"gives {figure_text(rates[WARM])}"
    )
    return verdict(seen, CLAIM, {"order": clearly_more(order, scattered)})


EXPERIMENT: Final = Experiment(
    name="page-cache",
    features=("F57",),
    about="a queue in order against random records, from a cold log",
    claim=CLAIM,
    run=run,
)
