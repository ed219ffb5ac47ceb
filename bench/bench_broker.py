"""The broker against RocketMQ's own, over real sockets.

    python bench/bench_broker.py [--size full|smoke] [--only NAME ...] [--directory DIR] [--json FILE]

A Java 5.3.3 broker (1 GB heap) and ours run beside each other and are driven by turns, so that both see
the same machine. Parts: start (cold start to the first acknowledged send, idle memory), raw (light driver,
sends made ahead, at several depths), sync (the same with sync flush), batch (client batches of 16), backlog
(pulls of what was sent), client (RocketMQ's own Java client: sends and a push consumer).

Every figure is checked: an answer that is no success, or a message too few, ends the run.
"""

import argparse
import itertools
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import harness
from compat.java_cluster import BROKER_MAIN, NAMESRV_MAIN, broker_settings, write_settings
from compat.java_store import OPENED_MODULES, why_not
from compat.maven import HERE, classpath
from compat.server_process import ServerProcess, answers, free_port, is_registered
from doors import Command, FrameDecoder, encode_command
from harness import Line

DRIVER = Path(__file__).with_name("raw_driver.py")
ORBITMQ = Path(sys.executable).with_name("orbitmq")
SERVERS = "5.3.3"
UPDATE_AND_CREATE_TOPIC = 17
GET_MAX_OFFSET = 30
CLIENT_MAIN = "orbitmq.javaclient.ClientBench"
CONNECTIONS = 4
DISPATCHED_WITHIN_S = 30
TICKS = os.sysconf("SC_CLK_TCK")

Row = dict[str, Any]


@dataclass(frozen=True)
class Size:
    """How long a run takes."""

    depths: tuple[int, ...]
    seconds: float
    warm: float
    threads: tuple[int, ...]
    client_seconds: float
    settings: tuple[tuple[str, str], ...] = ()


SIZES = {
    "full": Size((1, 4, 16, 64, 256), 4, 1.5, (1, 16, 64), 6),
    "smoke": Size((4,), 0.5, 0.2, (2,), 1, (("mappedFileSizeCommitLog", str(64 << 20)),)),
    "turn": Size((64,), 3, 0.5, (16,), 3),  # one of many, as compare.py runs them
}
GOALS = {"raw": 2.0, "sync": 1.5}


class Side:
    """One broker, its name server, and what its process used."""

    def __init__(self, kind: str, root: Path, settings: dict[str, str], tag: str = "") -> None:
        self.kind = kind
        self._port, self._namesrv_port = free_port(), free_port()
        self.namesrv = f"127.0.0.1:{self._namesrv_port}"
        self.address = f"127.0.0.1:{self._port}"
        self.root = root / f"{kind}{tag}"
        given = {
            **broker_settings(self.root, self._port, self.namesrv, "broker-a"),
            "diskMaxUsedSpaceRatio": "95",
            "brokerFastFailureEnable": "false",
            **settings,
        }
        config = write_settings(self.root / "broker.conf", given)
        self._namesrv = self._namesrv_process()
        self.broker = self._broker_process(config)
        self._topics = 0

    def _namesrv_process(self) -> ServerProcess:
        root, port = self.root / "namesrv", str(self._namesrv_port)
        if self.kind == "java":
            config = write_settings(root / "n.conf", {"listenPort": port})
            command = java(root, "256m", NAMESRV_MAIN, "-c", str(config))
        else:
            command = [str(ORBITMQ), "namesrv", "run", "--host", "127.0.0.1", "--port", port]
        ready = self.namesrv
        return ServerProcess("namesrv", command, self._namesrv_port, root, lambda: answers(ready))

    def _broker_process(self, config: Path) -> ServerProcess:
        if self.kind == "java":
            command = java(self.root, "1g", BROKER_MAIN, "-c", str(config))
        else:
            command = [str(ORBITMQ), "broker", "run", "--config", str(config)]
        return ServerProcess(
            "broker",
            command,
            self._port,
            self.root,
            lambda: is_registered(self.address, self.namesrv),
        )

    @contextmanager
    def running(self) -> Iterator["Side"]:
        self._namesrv.start()
        try:
            self.broker.start()
            yield self
        finally:
            self.broker.kill()
            self._namesrv.kill()

    @contextmanager
    def namesrv_running(self) -> Iterator[None]:
        self._namesrv.start()
        try:
            yield
        finally:
            self.broker.kill()
            self._namesrv.kill()

    def new_topic(self) -> str:
        """Create a topic of 8 queues and return its name."""
        self._topics += 1
        name = f"Bench{self._topics}"
        fields = {
            "topic": name,
            "defaultTopic": "TBW102",
            "readQueueNums": "8",
            "perm": "6",
            "writeQueueNums": "8",
            "topicFilterType": "SINGLE_TAG",
            "order": "false",
        }
        answer = ask(self.address, Command(UPDATE_AND_CREATE_TOPIC, fields))
        if answer.code != 0:
            raise SystemExit(f"{self.kind}: no topic: {answer.code} {answer.remark}")
        return name

    @property
    def pid(self) -> int:
        assert self.broker.process is not None
        return self.broker.process.pid

    def cpu_seconds(self) -> float:
        """Return what the broker's process used so far, kernel time included."""
        after_name = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(after_name[11]) + int(after_name[12])) / TICKS

    def memory_bytes(self) -> tuple[int, int]:
        """Return anonymous and resident memory."""
        rows = dict(
            line.split(":", 1)
            for line in Path(f"/proc/{self.pid}/status").read_text().splitlines()
            if ":" in line
        )
        return tuple(int(rows[name].split()[0]) * 1024 for name in ("RssAnon", "VmRSS"))  # type: ignore[return-value]


def ask(address: str, command: Command) -> Command:
    """Send one request on a connection of its own and return the answer."""
    host, _, port = address.rpartition(":")
    decoder = FrameDecoder()
    with socket.create_connection((host, int(port)), timeout=5) as sock:
        sock.sendall(encode_command(command))
        while True:
            data = sock.recv(65536)
            if not data:
                raise ConnectionError("the peer closed the connection")
            for answer in decoder.receive(data):
                return answer


def java(home: Path, heap: str, main: str, *arguments: str) -> list[str]:
    """Return the command of a RocketMQ program with the JVM as it is tuned for servers."""
    opened = [f"--add-opens={module}=ALL-UNNAMED" for module in OPENED_MODULES]
    return [
        "java",
        f"-Xms{heap}",
        f"-Xmx{heap}",
        *opened,
        f"-Duser.home={home}",
        f"-Drocketmq.home.dir={home}",
        f"-Drmq.logback.configurationFile={HERE / 'servers' / 'rmq.logback.xml'}",
        "-cp",
        classpath("servers", SERVERS),
        main,
        *arguments,
    ]


def drive(side: Side, what: str, topic: str, **options: object) -> Row:
    """Run the raw driver against one side; adds what the broker's processor time was."""
    arguments = [f"--{name}={value}" for name, value in options.items()]
    before = side.cpu_seconds()
    command = [sys.executable, str(DRIVER), what, side.address, topic, *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        raise SystemExit(f"{side.kind}, {what}: {ended.stdout}{ended.stderr}{side.broker.tail()}")
    row: Row = json.loads(ended.stdout)
    if row.get("errors"):
        raise SystemExit(f"{side.kind}, {what}: {row['errors']} answers were no success")
    row["cpu_per_million"] = (side.cpu_seconds() - before) / row["messages"] * 1e6
    return row


def both(sides: list[Side], what: str, topics: dict[str, str], **options: object) -> dict[str, Row]:
    rows = {side.kind: drive(side, what, topics[side.kind], **options) for side in sides}
    for kind, row in rows.items():
        say(f"  {kind:5} {options} {row['rate']:10,.0f}/s  " + _latency(row))
    return rows


def _latency(row: Row) -> str:
    parts = [f"{name[:-3]} {row[name]:.2f}" for name in ("p50_ms", "p99_ms", "p999_ms")]
    return ", ".join(parts) + f" ms, {row['cpu_per_million']:.1f} CPU s a million"


def lines_of(what: str, rows: dict[str, Row], goal: float | None) -> list[Line]:
    """Return the lines of one comparison: rate, latencies, processor time."""
    ours, java_row = rows["ours"], rows.get("java", {})
    lines = [Line(what, ours["rate"], java_row.get("rate"), goal=goal)]
    for name, share in (("p50_ms", None), ("p99_ms", 2.0), ("p999_ms", None)):
        title = f"{what}, {name[:-3]}"
        values = ours[name], java_row.get(name)
        lines.append(Line(title, *values, unit="ms", goal=share, more_is_better=False))
    values = ours["cpu_per_million"], java_row.get("cpu_per_million")
    lines.append(Line(f"{what}, CPU s a million", *values, unit="s", more_is_better=False))
    return lines


# Parts


def part_start(root: Path, size: Size, kinds: list[str]) -> list[Line]:
    """From the start of the broker's process to its first acknowledged send; then idle memory."""
    found: dict[str, tuple[float, int, int]] = {}
    for kind in kinds:
        side = Side(kind, root, dict(size.settings), "-start")
        with side.namesrv_running():
            seconds = _cold_start(side)
            time.sleep(2)
            found[kind] = (seconds, *side.memory_bytes())
        say(f"  {kind:5} first send after {seconds:.2f} s, {found[kind][1] / 1e6:.0f} MB anonymous")
    ours, theirs = found["ours"], found.get("java", (None, None, None))
    return [
        Line("cold start to first send", ours[0], theirs[0], "s", 1 / 0.3, False),
        Line("idle memory, anonymous", ours[1] / 1e6, _mb(theirs[1]), "MB", 1 / 0.3, False),
        Line("idle memory, resident", ours[2] / 1e6, _mb(theirs[2]), "MB", None, False),
    ]


def _mb(value: int | None) -> float | None:
    return None if value is None else value / 1e6


def _cold_start(side: Side) -> float:
    fields = {"a": "G", "b": "TBW102x", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1"}
    fields |= {"h": "0", "i": "WAIT\x01true\x02", "j": "0", "k": "false", "m": "false"}
    started = time.perf_counter()
    broker = side.broker
    broker.root.mkdir(parents=True, exist_ok=True)
    with broker.log.open("ab") as output:
        broker.process = subprocess.Popen(broker.command, stdout=output, stderr=output)
    while time.perf_counter() - started < 60:
        try:
            code = ask(side.address, Command(310, fields, b"hello")).code
        except OSError:
            code = -1
        if code == 0:
            return time.perf_counter() - started
        time.sleep(0.01)
    raise SystemExit(f"{side.kind}: no send in 60 s\n{broker.tail()}")


def part_raw(root: Path, size: Size, kinds: list[str], *, sync: bool = False) -> list[Line]:
    """Sends made ahead at several depths, by turns."""
    flush = {"flushDiskType": "SYNC_FLUSH"} if sync else {}
    name = "sync" if sync else "raw"
    lines = []
    with _sides(root, {**dict(size.settings), **flush}, kinds, f"-{name}") as sides:
        topics = {side.kind: side.new_topic() for side in sides}
        _warm_up(sides, topics, size)
        for depth in size.depths:
            rows = both(sides, "send", topics, depth=depth, seconds=size.seconds, warm=size.warm)
            flushed = "sync" if sync else "async"
            lines += lines_of(f"sends, {flushed}, {depth} in flight", rows, GOALS[name])
        lines += _memory(sides, f"memory after {name} sends")
    return lines


def _warm_up(sides: list[Side], topics: dict[str, str], size: Size) -> None:
    """Have both sides compile, or load, what they need."""
    both(sides, "send", topics, depth=16, batch=16, seconds=size.seconds, warm=size.warm)
    both(sides, "send", topics, depth=16, seconds=size.seconds, warm=size.warm)


def part_sync(root: Path, size: Size, kinds: list[str]) -> list[Line]:
    """The same with sync flush."""
    return part_raw(root, size, kinds, sync=True)


def part_batch(root: Path, size: Size, kinds: list[str]) -> list[Line]:
    """Client batches of 16."""
    lines = []
    with _sides(root, dict(size.settings), kinds, "-batch") as sides:
        topics = {side.kind: side.new_topic() for side in sides}
        _warm_up(sides, topics, size)
        for depth in (4, 16):
            rows = both(
                sides, "send", topics, depth=depth, batch=16, seconds=size.seconds, warm=size.warm
            )
            lines += lines_of(f"batches of 16, {depth} in flight", rows, None)
    return lines


def part_backlog(root: Path, size: Size, kinds: list[str]) -> list[Line]:
    """Pulls from the first message to the last, one in flight per queue of eight."""
    with _sides(root, dict(size.settings), kinds, "-backlog") as sides:
        topics = {side.kind: side.new_topic() for side in sides}
        sent = both(
            sides, "send", topics, depth=16, batch=16, seconds=size.seconds * 2, warm=size.warm
        )
        time.sleep(2)  # dispatch catches up
        rows = both(sides, "pull", topics, queues=8)
        again = both(sides, "pull", topics, queues=8)
    for kind, row in rows.items():
        if row["messages"] != sent[kind]["messages"]:
            raise SystemExit(f"{kind}: {row['messages']} of {sent[kind]['messages']} were read")
        row["rate"] = max(row["rate"], again[kind]["rate"])
    return lines_of("backlog, raw pulls", rows, 1.5)


def part_client(root: Path, size: Size, kinds: list[str]) -> list[Line]:
    """RocketMQ's own Java client: sends by threads, single and in batches; then a push consumer."""
    lines = []
    for sync in (False, True):
        flush = {"flushDiskType": "SYNC_FLUSH"} if sync else {}
        with _sides(root, {**dict(size.settings), **flush}, kinds, f"-client{sync:d}") as sides:
            topics = {side.kind: side.new_topic() for side in sides}
            _warm_up(sides, {side.kind: side.new_topic() for side in sides}, size)
            for threads, batch in itertools.product(size.threads, (1, 16)):
                options = threads, batch, size.client_seconds
                rows = {s.kind: java_client(s, "send", topics[s.kind], *options) for s in sides}
                mode = "sync" if sync else "async"
                what = f"Java client, {mode}, {threads} threads, batch {batch}"
                lines += lines_of(what, rows, None)
            if not sync:
                rows = {}
                for side in sides:
                    wanted = message_count(side, topics[side.kind])
                    rows[side.kind] = java_client(side, "push", topics[side.kind], 20, wanted)
                lines.append(_rate_line("backlog, Java push consumer", rows, 1.5))
    return lines


def _rate_line(what: str, rows: dict[str, Row], goal: float) -> Line:
    return Line(what, rows["ours"]["rate"], rows.get("java", {}).get("rate"), goal=goal)


def message_count(side: Side, topic: str) -> int:
    """Return how many messages a topic of 8 queues has."""
    count = 0
    for queue_id in range(8):
        fields = {"topic": topic, "queueId": str(queue_id)}
        answer = ask(side.address, Command(GET_MAX_OFFSET, fields))
        count += int((answer.fields or {})["offset"])
    return count


def require_count(side: Side, topic: str, wanted: int) -> None:
    """Wait until a topic has so many messages, dispatched ones that is. SystemExit: it never has."""
    until = time.monotonic() + DISPATCHED_WITHIN_S
    while (found := message_count(side, topic)) != wanted:
        if found > wanted or time.monotonic() > until:
            raise SystemExit(f"{wanted} messages were sent, the topic has {found}")
        time.sleep(0.01)


def java_client(side: Side, what: str, topic: str, threads: int, *options: object) -> Row:
    home = side.root / "client"
    command = java(home, "512m", CLIENT_MAIN, what, side.namesrv, topic, str(threads))
    command[command.index("-cp") + 1] = classpath("clients/java", SERVERS)
    before = side.cpu_seconds()
    ended = subprocess.run(
        [*command, *map(str, options)], capture_output=True, text=True, check=False
    )
    if ended.returncode != 0:
        raise SystemExit(f"{side.kind}, Java client: {ended.stdout}{ended.stderr}")
    figures = [
        line for line in ended.stdout.splitlines() if line.startswith("{")
    ]  # its log has none
    row: Row = json.loads(figures[-1])
    row["cpu_per_million"] = (side.cpu_seconds() - before) / max(row["messages"], 1) * 1e6
    say(f"  {side.kind:5} {what} {threads} {options} {row['rate']:10,.0f}/s  " + _latency(row))
    return row


def _memory(sides: list[Side], what: str) -> list[Line]:
    found = {side.kind: side.memory_bytes()[0] / 1e6 for side in sides}
    return [Line(what, found["ours"], found.get("java"), "MB", more_is_better=False)]


@contextmanager
def _sides(
    root: Path, settings: dict[str, str], kinds: list[str], tag: str
) -> Iterator[list[Side]]:
    sides = [Side(kind, root, settings, tag) for kind in kinds]
    with sides[0].running():
        if len(sides) == 1:
            yield sides
            return
        with sides[1].running():
            yield sides


PARTS = {
    "start": part_start,
    "raw": part_raw,
    "sync": part_sync,
    "batch": part_batch,
    "backlog": part_backlog,
    "client": part_client,
}


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=SIZES, default="full")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--without-java", action="store_true", help="our side alone")
    parser.add_argument("--directory", type=Path, help="where the stores are made")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    parser.add_argument("options", nargs="*", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.part:
        _run_one(arguments.part, dict(option.split("=", 1) for option in arguments.options))
    else:
        _run_all(arguments)


def _run_one(part: str, options: dict[str, str]) -> None:
    """Run one part, our side alone, at one depth; print its figures as one row."""
    size = SIZES[options["size"]]
    if "depth" in options:
        size = replace(size, depths=(int(options["depth"]),))
    lines = PARTS[part](Path(options["root"]), size, ["ours"])
    print(json.dumps({line.what: line.ours for line in lines}))


def _run_all(arguments: argparse.Namespace) -> None:
    reason = why_not()
    kinds = ["ours"] if arguments.without_java or reason else ["java", "ours"]
    if reason and not arguments.without_java:
        say(f"without RocketMQ's side: {reason}")
    lines: list[Line] = []
    with tempfile.TemporaryDirectory(dir=arguments.directory) as scratch:
        for name in arguments.only:
            if name == "client" and "java" not in kinds:
                continue
            say(f"{name}: {PARTS[name].__doc__}")
            lines += PARTS[name](Path(scratch) / name, SIZES[arguments.size], kinds)
    print(harness.machine())
    print(harness.table(lines))
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(line) for line in lines], indent=1))


if __name__ == "__main__":
    main()
