"""`transfer`: a file and pull answers over a socket, by copies, by mapped slices and by sendfile.

The frames of pulls are those that a broker sends: their header, and the records of one queue where they lie
in the log, between those of other queues.
"""

import hashlib
import mmap
import os
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
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
    times,
    verdict,
)
from orbitmq.lab.measure import Meter, write_file
from orbitmq.lab.stores import TOPIC, append_all, log_files, open_store, requests
from orbitmq.units import KiB, MiB
from orbitmq.wire.command import Command
from orbitmq.wire.frame import encode_prefix

QUEUES: Final = 4
STREAM_BYTES: Final = {Size.SMALL: 4 * MiB, Size.FULL: 64 * MiB}
PULLS: Final = {Size.SMALL: 60, Size.FULL: 1_000}
ROUNDS: Final = {Size.SMALL: 1, Size.FULL: 4}
"""Ways take turns, so that what disturbs the machine disturbs all; the best round counts."""
CASES: Final = {
    "pull of 1 x 1 KiB": (1, 1 * KiB),
    "pull of 32 x 1 KiB": (32, 1 * KiB),
    "pull of 31 x 8 KiB": (31, 8 * KiB),  # what fits into maxTransferBytesOnMessageInMemory
}
CLAIM: Final = (
    "copies between kernel and program make read and write the dearest way, mapped slices spare one of "
    "them, and sendfile, which spares both, is the cheapest way to serve a pull"
)
UNITS: Final = {
    "stream": "MiB/s",
    "stream, sender's CPU": "ms/100 MiB",
    **dict.fromkeys(CASES, "us of the sender's CPU"),
}


@dataclass(frozen=True)
class Source:
    """A file that is open and mapped."""

    fd: int
    view: memoryview


@dataclass(frozen=True)
class Frame:
    """Bytes of our own, and the ranges (start, length) of the file that follow them."""

    prefix: bytes
    ranges: Sequence[tuple[int, int]]

    @property
    def size(self) -> int:
        return len(self.prefix) + sum(length for _, length in self.ranges)


Way = Callable[[socket.socket, Source, Frame], None]


def send_copied(peer: socket.socket, source: Source, frame: Frame) -> None:
    """Read into memory of our own, and write that: two copies by the processor."""
    peer.sendall(b"".join((frame.prefix, *(os.pread(source.fd, n, at) for at, n in frame.ranges))))


def send_mapped(peer: socket.socket, source: Source, frame: Frame) -> None:
    """Hand slices of the mapping to the kernel: one copy, one call."""
    parts = [memoryview(frame.prefix), *(source.view[at : at + n] for at, n in frame.ranges)]
    while parts:
        sent = peer.sendmsg(parts)
        while parts and sent >= len(parts[0]):
            sent -= len(parts.pop(0))
        if sent:
            parts[0] = parts[0][sent:]


def send_by_kernel(peer: socket.socket, source: Source, frame: Frame) -> None:
    """Let the kernel take pages of the file: no copy through the program, one call for each range."""
    if frame.prefix:
        peer.sendall(frame.prefix, socket.MSG_MORE)
    for start, length in frame.ranges:
        sent = 0
        while sent < length:
            sent += os.sendfile(peer.fileno(), source.fd, start + sent, length - sent)


WAYS: dict[str, Way] = {
    "copy": send_copied,
    "mapped slices": send_mapped,
    "sendfile": send_by_kernel,
}


def run(lab: Lab) -> Findings:
    lab.steps((1 + len(CASES)) * ROUNDS[lab.size] + 1)
    path, size = lab.directory / "stream", STREAM_BYTES[lab.size]
    write_file(path, size)
    lab.step()
    figures: dict[str, dict[str, float | None]] = {name: {} for name in WAYS}
    with opened(path) as source:
        chunks = [Frame(b"", [(at, MiB)]) for at in range(0, size, MiB)]
        for name, meter in _measure(lab, "stream", source, chunks).items():
            figures[name]["stream"] = meter.rate(size / MiB)
            figures[name]["stream, sender's CPU"] = meter.cpu_seconds * 1e3 / (size / MiB / 100)
    for case, (count, body_bytes) in CASES.items():
        path, frames = _pull_answers(lab, case, count, body_bytes)
        with opened(path) as source:
            for name, meter in _measure(lab, case, source, frames).items():
                figures[name][case] = meter.cpu_seconds * 1e6 / len(frames)
    rows = [Row(name, values) for name, values in figures.items()]
    return Findings(UNITS, rows, judge(rows), Chart(tuple(CASES)))


def _pull_answers(lab: Lab, case: str, count: int, body_bytes: int) -> tuple[Path, list[Frame]]:
    """Return the file of a log and the answers to pulls of one of its queues."""
    root, answers = lab.directory / case.replace(" ", "-"), PULLS[lab.size] // max(count // 4, 1)
    frames = []
    with open_store(root) as store:
        append_all(store, requests(QUEUES * count * min(answers, 16), QUEUES, body_bytes))
        for number in range(answers):
            found = store.get(TOPIC, number % QUEUES, number // QUEUES % 4 * count, count)
            ranges = [
                (at, len(record))
                for at, record in zip(found.log_offsets, found.records, strict=True)
            ]
            fields = {"nextBeginOffset": str(found.next_offset), "suggestWhichBrokerId": "0"}
            fields |= {"minOffset": str(found.min_offset), "maxOffset": str(found.max_offset)}
            prefix = encode_prefix(Command(0, fields, flag=1, remark="FOUND"), found.total_bytes)
            frames.append(Frame(prefix, ranges))
    lab.check(
        f"{case}: each pull found {count} messages", all(len(f.ranges) == count for f in frames)
    )
    return log_files(root)[0], frames


@contextmanager
def opened(path: Path) -> Iterator[Source]:
    """Open a file for all ways of sending it."""
    with (
        path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapping,
        memoryview(mapping) as view,
    ):
        yield Source(file.fileno(), view)


def _measure(lab: Lab, case: str, source: Source, frames: Sequence[Frame]) -> dict[str, Meter]:
    """Send the frames by every way, in turns; return the cheapest round of each."""
    wanted = _expected(source, frames)
    best: dict[str, Meter] = {}
    equal = dict.fromkeys(WAYS, True)
    for _ in range(ROUNDS[lab.size]):
        for name, way in WAYS.items():
            meter, received = _send(way, source, frames)
            equal[name] &= received == wanted
            if name not in best or meter.cpu_seconds < best[name].cpu_seconds:
                best[name] = meter
        lab.step()
    for name, same in equal.items():
        lab.check(f"{case} by {name}: the receiver has the same bytes", same)
    return best


def _expected(source: Source, frames: Sequence[Frame]) -> str:
    whole = hashlib.blake2b()
    for frame in frames:
        whole.update(frame.prefix)
        for at, length in frame.ranges:
            whole.update(source.view[at : at + length])
    return whole.hexdigest()


def _send(way: Way, source: Source, frames: Sequence[Frame]) -> tuple[Meter, str]:
    """Send frames to a thread that keeps all it gets; return what it cost here, and a checksum from there."""
    receiver = Receiver(sum(frame.size for frame in frames))
    with receiver.connect() as peer, Meter() as meter:
        for frame in frames:
            way(peer, source, frame)
        peer.shutdown(socket.SHUT_WR)
        receiver.thread.join()
    return meter, receiver.digest()


class Receiver:
    """Takes bytes from a TCP connection of this machine until its end."""

    def __init__(self, size: int) -> None:
        self._buffer = bytearray(size + 1)  # one more than there should be
        self._count = 0
        self.thread = threading.Thread(target=self._receive, name="orbitmq-lab-receiver")

    @contextmanager
    def connect(self) -> Iterator[socket.socket]:
        """Give the sender's end; its thread runs until that is shut down."""
        with socket.create_server(("127.0.0.1", 0)) as server:
            sender = socket.create_connection(server.getsockname())
            self._socket, _ = server.accept()
        with sender, self._socket:
            self.thread.start()
            try:
                yield sender
            except BaseException:
                sender.shutdown(socket.SHUT_RDWR)  # else the thread waits for ever
                raise
            finally:
                self.thread.join()

    def _receive(self) -> None:
        view = memoryview(self._buffer)
        while self._count < len(view) and (got := self._socket.recv_into(view[self._count :])):
            self._count += got

    def digest(self) -> str:
        return hashlib.blake2b(memoryview(self._buffer)[: self._count]).hexdigest()


def judge(rows: Sequence[Row]) -> Verdict:
    """Compare what the sender's processor spent, for a long stream and for an ordinary pull."""
    stream, pull = (
        {row.name: row.figures[figure] or 0.0 for row in rows}
        for figure in ("stream, sender's CPU", "pull of 32 x 1 KiB")
    )
    cheapest = min(pull, key=pull.__getitem__)
    seen = (
        f"a stream costs the sender {times(stream['copy'], stream['sendfile'])} as much CPU by copies as by "
        f"sendfile, a pull of 32 records {figure_text(pull['copy'])} us by copies, "
        f"{figure_text(pull['mapped slices'])} us by mapped slices and {figure_text(pull['sendfile'])} us by "
        f"sendfile, which needs a call for each record, so that {cheapest} is cheapest for a pull"
    )
    parts: dict[str, bool | None] = {
        "a stream": clearly_more(stream["copy"], stream["sendfile"]),
        "a pull": cheapest == "sendfile",
    }
    return verdict(seen, CLAIM, parts)


EXPERIMENT: Final = Experiment(
    name="transfer",
    features=("F92", "F114"),
    about="a stream and pulls by copies, mapped slices and sendfile",
    claim=CLAIM,
    run=run,
)
