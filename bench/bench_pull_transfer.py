"""Pulls by copies, by slices of the mapped log and by sendfile, side by side (setting pullTransfer).

    python bench/bench_pull_transfer.py [--seconds 3] [--rounds 5] [--megabytes 256]
                                        [--only warm|cold] [--directory DIR]

One broker for each way over a copy of the same store, in processes of their own, driven by turns by a client
that only reads frames: 32 messages of 1 KiB in a pull, or one of 200 kB; warm, and cold (the log's pages are
dropped before a broker starts for each turn). The figure is the median of the rounds, with their spread.
"""

import argparse
import asyncio
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import harness
from orbitmq.broker.broker import Broker
from orbitmq.broker.config import BrokerConfig
from orbitmq.net.loop import run_server
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command
from orbitmq.wire.frame import encode_command
from orbitmq.wire.headers.pull import PullHeader
from orbitmq.wire.headers.send import LETTERS, SendHeader

WAYS = ("copy", "slices", "sendfile")
SIZES = {"32 x 1 KiB": ("Small", 1024, 32), "1 x 200 kB": ("Big", 200_000, 1)}
CONF = """brokerIP1=127.0.0.1
bindAddress=127.0.0.1
listenPort=0
mappedFileSizeCommitLog=67108864
messageIndexEnable=false
diskMaxUsedSpaceRatio=95
diskSpaceWarningLevelRatio=90
"""


async def serve(conf: Path, root: Path) -> None:
    """Be a broker until the input ends; print its address first."""
    async with Broker(BrokerConfig.load(conf, {"storePathRootDir": root})) as broker:
        await asyncio.to_thread(broker.context.store.wait_kernels)
        print(broker.address, flush=True)
        await asyncio.to_thread(sys.stdin.read)


class Peer:
    """A client that counts bytes."""

    def __init__(self, address: str) -> None:
        host, port = address.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray(8 << 20)

    def exchange(self, command: Command) -> int:
        """Send a request and read its answer; return the bytes of the answer."""
        self._socket.sendall(encode_command(command))
        view, have = memoryview(self._buffer), 0
        while have < 4 or have < 4 + int.from_bytes(view[:4], "big"):
            got = self._socket.recv_into(view[have:])
            if not got:
                raise SystemExit("the broker closed the connection")
            have += got
        header_bytes = int.from_bytes(view[4:8], "big") & 0xFFFFFF
        if b'"code":0,' not in bytes(view[8 : 8 + header_bytes]):
            raise SystemExit(f"not answered well: {bytes(view[8 : 8 + header_bytes])!r}")
        return have

    def close(self) -> None:
        self._socket.close()


def send_command(topic: str, size: int) -> Command:
    header = SendHeader(
        producer_group="Bench",
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_nums=1,
        queue_id=0,
        sys_flag=0,
        born_timestamp=1_700_000_000_000,
        flag=0,
        properties="TAGS\x01TagA\x02",
    )
    fields = {LETTERS[name]: text for name, text in header.write().items()}
    return Command(RequestCode.SEND_MESSAGE_V2, fields, bytes(size), language="JAVA")


def pull_command(topic: str, offset: int, count: int) -> Command:
    header = PullHeader(
        consumer_group="Bench",
        topic=topic,
        queue_id=0,
        queue_offset=offset,
        max_msg_nums=count,
        sys_flag=4,
        commit_offset=0,
        suspend_timeout_millis=0,
        sub_version=0,
        subscription="*",
    )
    return Command(RequestCode.PULL_MESSAGE, header.write(), language="JAVA")


@contextmanager
def broker(directory: Path, way: str) -> Iterator[Peer]:
    """Run a broker that answers pulls this way over the store in the directory."""
    conf = directory / f"{way}.conf"
    conf.write_text(f"{CONF}pullTransfer={way}\n", encoding="utf-8")
    command = [sys.executable, __file__, "--serve", str(conf), "--directory", str(directory)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        peer = Peer(process.stdout.readline().strip())
        yield peer
        peer.close()
    finally:
        process.stdin.close()
        process.wait()


def fill(directory: Path, megabytes: int) -> dict[str, int]:
    """Send so much of each size; return how many messages each topic has."""
    counts = {topic: max(64, megabytes * 1_000_000 // size) for topic, size, _ in SIZES.values()}
    with broker(directory, "copy") as peer:
        for topic, size, _ in SIZES.values():
            command = send_command(topic, size)
            for _ in range(counts[topic]):
                peer.exchange(command)
    return counts


def measure(peer: Peer, size: str, count: int, seconds: float) -> float:
    """Pull over the whole queue again and again; return megabytes a second."""
    topic, _, batch = SIZES[size]
    offset = total = 0
    started = time.perf_counter()
    while (elapsed := time.perf_counter() - started) < seconds:
        total += peer.exchange(pull_command(topic, offset, batch))
        offset = (offset + batch) % (count - batch + 1)
    return total / elapsed / 1e6


def warm(roots: dict[str, Path], counts: dict[str, int], options: argparse.Namespace) -> None:
    """Print the figures of brokers that stay, whose log is in memory."""
    with ExitStack() as stack:
        peers = {way: stack.enter_context(broker(roots[way], way)) for way in WAYS}
        for size, (topic, _, _) in SIZES.items():
            found: dict[str, list[float]] = {way: [] for way in WAYS}
            for _ in range(options.rounds + 1):
                for way, peer in peers.items():
                    found[way].append(measure(peer, size, counts[topic], options.seconds))
            show(f"{size}, warm", {way: figures[1:] for way, figures in found.items()})


def cold(roots: dict[str, Path], counts: dict[str, int], options: argparse.Namespace) -> None:
    """Print the figures of brokers that have just started over a log that is not in memory."""
    for size, (topic, _, _) in SIZES.items():
        found: dict[str, list[float]] = {way: [] for way in WAYS}
        for _ in range(options.rounds):
            for way in WAYS:
                harness.forget_pages(roots[way] / "store" / "commitlog")
                with broker(roots[way], way) as peer:
                    found[way].append(measure(peer, size, counts[topic], options.seconds))
        show(f"{size}, cold", found)


def show(what: str, found: dict[str, list[float]]) -> None:
    medians = {way: statistics.median(found[way]) for way in WAYS}
    for way in WAYS:
        low, high = min(found[way]), max(found[way])
        print(f"{what:18} {way:9} {medians[way]:8,.0f} MB/s  ({low:,.0f} - {high:,.0f})")
    print(f"{what:18} fastest: {max(medians, key=lambda way: medians[way])}", flush=True)


def compare(options: argparse.Namespace, directory: Path) -> None:
    roots = {way: directory / way for way in WAYS}
    roots["copy"].mkdir(parents=True)
    print(f"filling a store with 2 x {options.megabytes} MB ...", file=sys.stderr)
    counts = fill(roots["copy"], options.megabytes)
    for way in WAYS[1:]:
        shutil.copytree(roots["copy"] / "store", roots[way] / "store")
    if "warm" in options.only:
        warm(roots, counts, options)
    if "cold" in options.only:
        cold(roots, counts, options)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=3, help="of one turn (3)")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each way (5)")
    parser.add_argument("--megabytes", type=int, default=256, help="of each size of message (256)")
    parser.add_argument(
        "--directory", type=Path, help="where stores are made; else a temporary one"
    )
    parser.add_argument("--only", nargs="+", choices=("warm", "cold"), default=("warm", "cold"))
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve is not None:
        run_server(serve(options.serve, options.directory / "store"))
        return
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        compare(options, Path(directory))


if __name__ == "__main__":
    main()
