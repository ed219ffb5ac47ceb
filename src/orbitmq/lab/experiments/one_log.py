"""`one-log`: one file for all partitions against a file for each, with and without a sync.

Both write the same messages in the same order by the same calls. A producer's group of messages is synced
together: that is one sync of one log, and one for each partition that the group touched. Beside them this
project's store with as many queues: it also keeps a small file for each, but syncs none of them for a send.
"""

import hashlib
import os
import resource
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
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
    verdict,
)
from orbitmq.lab.measure import Meter
from orbitmq.lab.stores import TOPIC, open_store, requests, require_stored
from orbitmq.units import KiB

PARTITIONS: Final = {Size.SMALL: (1, 16), Size.FULL: (1, 64, 1_024, 8_192)}
BODY_BYTES: Final = 1 * KiB
GROUP: Final = 256  # messages that share a sync
MESSAGES: Final = {Size.SMALL: 1_024, Size.FULL: 32_768}
SYNCED: Final = {Size.SMALL: 256, Size.FULL: 2_048}
STORE_SIZES: Final = 3  # closing a store syncs every queue: with 8 192 of them that takes a minute
SECONDS_MAX: Final = {Size.SMALL: 0.3, Size.FULL: 1.0}
SPARE_FILES: Final = 256  # descriptors for everything else
ONE, MANY, STORE = "one log", "a log per partition", "this store"
CLAIM: Final = (
    "one log for all queues keeps writes sequential however many queues there are, and a log for each "
    "partition does not"
)
UNITS: Final = {
    "partitions": "",
    "written": "messages/s",
    "written, synced": "messages/s",
    "syncs": "per 1 000 messages",
}


def run(lab: Lab) -> Findings:
    sizes = PARTITIONS[lab.size]
    lab.steps(2 * len(sizes) + len(sizes[:STORE_SIZES]))
    made = [request.body for request in requests(MESSAGES[lab.size], 1, BODY_BYTES)]
    rows = []
    with open_files(max(sizes) + SPARE_FILES) as files_max:
        for partitions in sizes:
            rows.append(_files(lab, ONE, partitions, 1, made))
            lab.step()
            if partitions + SPARE_FILES > files_max:
                rows.append(_left_out(partitions, files_max))
            else:
                rows.append(_files(lab, MANY, partitions, partitions, made))
            lab.step()
    for partitions in sizes[:STORE_SIZES]:
        rows.append(_store(lab, partitions))
        lab.step()
    rows.sort(key=lambda row: (ONE, MANY, STORE).index(row.name))
    chart = Chart(("written, synced",), x="partitions", logarithmic=True)
    return Findings(UNITS, rows, judge(rows), chart)


@contextmanager
def open_files(wanted: int) -> Iterator[int]:
    """Allow this process so many open files, if the system does; give how many it may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft == resource.RLIM_INFINITY or soft >= allowed:
        yield wanted if soft == resource.RLIM_INFINITY else soft
        return
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    try:
        yield allowed
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _left_out(partitions: int, files_max: int) -> Row:
    note = f"left out: this process may have {files_max} files open (ulimit -n)"
    return Row(MANY, {**dict.fromkeys(UNITS), "partitions": partitions}, note)


def _files(lab: Lab, name: str, partitions: int, files: int, made: Sequence[bytes]) -> Row:
    """Write without and then with syncs; message n belongs to partition n modulo their number."""
    folder = lab.directory / f"{name}-{partitions}"
    figures: dict[str, float | None] = {"partitions": partitions}
    wanted = [b""] * files
    fds = _create(folder, files)
    try:
        for what, synced in (("written", False), ("written, synced", True)):
            some = made[: SYNCED[lab.size]] if synced else made
            meter, done, syncs = append_turns(fds, some, SECONDS_MAX[lab.size], synced=synced)
            figures[what] = meter.rate(done)
            figures["syncs"] = syncs * 1_000 / done
            wanted = [old + b"".join(some[n:done:files]) for n, old in enumerate(wanted)]
            right = contents(folder, files) == list(map(_checksum, wanted))
            text = f"{name}, {partitions} partitions, {what}: {done} messages are in their files"
            lab.check(text, right)
    finally:
        for fd in fds:
            os.close(fd)
    return Row(name, figures)


def _create(folder: Path, files: int) -> list[int]:
    """Open new files once for both measures: with thousands of them that takes longer than the writing."""
    folder.mkdir()
    flags = os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC
    return [os.open(folder / str(number), flags, 0o644) for number in range(files)]


def append_turns(
    fds: Sequence[int], made: Sequence[bytes], seconds_max: float, *, synced: bool
) -> tuple[Meter, int, int]:
    """Append messages to files in turn; return the cost, and how many messages and syncs there were."""
    deadline = time.perf_counter() + seconds_max
    done = syncs = 0
    with Meter() as meter:
        while done < len(made) and (done == 0 or time.perf_counter() < deadline):
            end = min(done + GROUP, len(made))
            for number in range(done, end):
                os.write(fds[number % len(fds)], made[number])
            if synced:
                touched = {number % len(fds) for number in range(done, end)}
                for place in touched:
                    os.fdatasync(fds[place])
                syncs += len(touched)
            done = end
    return meter, done, syncs


def contents(folder: Path, files: int) -> list[bytes]:
    """Return a checksum of each file."""
    return [_checksum((folder / str(number)).read_bytes()) for number in range(files)]


def _checksum(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


def _store(lab: Lab, partitions: int) -> Row:
    """Append the same to a store; only the log is synced for a send, queues follow."""
    figures: dict[str, float | None] = {"partitions": partitions, "syncs": 1_000 / GROUP}
    wanted = [0] * partitions
    root = lab.directory / f"store-{partitions}"
    with open_store(root, flushDiskType="SYNC_FLUSH") as store:
        ways = {"written": store.append_many_nowait, "written, synced": store.append_many}
        for what, append in ways.items():
            count = (MESSAGES if what == "written" else SYNCED)[lab.size]
            made = requests(count, partitions, BODY_BYTES)
            with Meter() as meter:
                for start in range(0, count, GROUP):
                    require_stored(store, append(made[start : start + GROUP]))
            figures[what] = meter.rate(count)
            store.wait_dispatched()
            wanted = [old + len(made[n::partitions]) for n, old in enumerate(wanted)]
            ends = [store.max_offset(TOPIC, queue_id) for queue_id in range(partitions)]
            lab.check(
                f"{STORE}, {partitions} queues, {what}: all are in their queues", ends == wanted
            )
    return Row(STORE, figures)


def judge(rows: Sequence[Row]) -> Verdict:
    """Compare the most partitions with one, for both layouts."""
    parts: dict[str, bool | None] = {}
    seen = []
    for what, label in (("written", "appends"), ("written, synced", "synced appends")):
        one, many = _by_partitions(rows, ONE, what), _by_partitions(rows, MANY, what)
        if not many:
            return verdict("no log per partition could be opened", CLAIM, {"partitions": None})
        most = max(many)
        seen.append(
            f"with {most} partitions {figure_text(one[most])} {label}/s into one log and "
            f"{figure_text(many[most])} into a log per partition (with one: {figure_text(many[min(many)])})"
        )
        parts[label] = clearly_more(one[most], many[most])
    return verdict(", ".join(seen), CLAIM, parts)


def _by_partitions(rows: Sequence[Row], name: str, what: str) -> dict[int, float]:
    return {
        int(row.figures["partitions"] or 0): value
        for row in rows
        if row.name == name and (value := row.figures[what]) is not None
    }


EXPERIMENT: Final = Experiment(
    name="one-log",
    features=("F103",),
    about="one shared log against a log per partition, with and without sync",
    claim=CLAIM,
    run=run,
)
