"""Pulls that are served by copies, by slices of the mapped log and by sendfile: the same bytes."""

import asyncio
import os
import shutil
import socket
from pathlib import Path
from typing import Any, cast

import pytest

from async_run import until
from live_broker import LOOPBACK, LiveClient, run_live
from orbitmq.broker.broker import Broker
from orbitmq.broker.config import BrokerConfig, Transfer
from orbitmq.net.config import NetConfig
from orbitmq.net.connection import Connection, ConnectionHandler
from orbitmq.net.file_parts import FilePart
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command
from orbitmq.wire.frame import encode_command
from orbitmq.wire.headers.pull import PullHeader

CONF = f"""brokerIP1={LOOPBACK}
bindAddress={LOOPBACK}
listenPort=0
mappedFileSizeCommitLog=1048576
maxHashSlotNum=64
maxIndexNum=4096
flushDiskType=SYNC_FLUSH
fileReservedTime=0
"""
WAYS = ["copy", "slices", "sendfile"]
SMALL, BIG = 40, 6  # of 1 KiB, of 200 kB
LOOKS = [
    (0, 32, "*"),
    (10, 5, "*"),
    (SMALL, 32, "*"),
    (SMALL + 2, 1, "*"),
    (3, 32, "B"),
    (9999, 1, "*"),
]

pytestmark = pytest.mark.feature("F114")


def broker_of(folder: Path, *lines: str) -> Broker:
    file = folder / "broker.conf"
    file.write_text(CONF + "".join(f"{line}\n" for line in lines))
    return Broker(BrokerConfig.load(file, {"storePathRootDir": folder / "store"}))


def pull_frame(opaque: int, offset: int, count: int, expression: str) -> bytes:
    header = PullHeader(
        consumer_group="G",
        topic="T",
        queue_id=0,
        queue_offset=offset,
        max_msg_nums=count,
        sys_flag=4,
        commit_offset=0,
        suspend_timeout_millis=0,
        sub_version=0,
        subscription=expression,
    )
    command = Command(RequestCode.PULL_MESSAGE, header.write(), opaque=opaque)
    return encode_command(command)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a store: small messages of two tags, big ones, in several segments."""
    folder = tmp_path_factory.mktemp("transfer")

    async def main() -> None:
        async with broker_of(folder) as broker:
            client = LiveClient(broker.address)
            for number in range(SMALL + BIG):
                size = 1024 if number < SMALL else 200_000
                tag = "AB"[number % 2]
                text = f"UNIQ_KEY\x01{number:032}\x02TAGS\x01{tag}\x02"
                # Another topic in between: not all records of a pull lie side by side.
                if number % 7 == 6:
                    await client.send("Other", b"-", properties=text)
                answer = await client.send(
                    "T", number.to_bytes(2, "big") * (size // 2), properties=text
                )
                assert answer.code == 0

    run_live(main)
    return folder


@pytest.fixture
def copied(filled: Path, tmp_path: Path) -> Path:
    shutil.copytree(filled / "store", tmp_path / "store")
    return tmp_path


class RawClient:
    """A peer that sends what it likes and reads as slowly as it likes."""

    def __init__(self, broker: Broker, receive_bytes: int = 0) -> None:
        host, port = broker.address.rsplit(":", 1)
        self._socket = socket.socket()
        if receive_bytes:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self._socket.connect((host, int(port)))
        self._socket.setblocking(False)
        self._loop = asyncio.get_running_loop()

    async def send(self, data: bytes) -> None:
        await self._loop.sock_sendall(self._socket, data)

    async def frames(self, count: int, piece: int = 1 << 20) -> list[bytes]:
        found, data = [], b""
        while len(found) < count:
            got = await self._loop.sock_recv(self._socket, piece)
            assert got, "the broker closed the connection"
            data += got
            while len(data) >= 4 and len(data) >= (end := 4 + int.from_bytes(data[:4], "big")):
                found.append(data[:end])
                data = data[end:]
        assert not data
        return found

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def sent_by_kernel(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return how many bytes each call of sendfile took."""
    counts: list[int] = []
    sendfile = os.sendfile

    def counting(*given: Any) -> int:
        counts.append(sendfile(*given))
        return counts[-1]

    monkeypatch.setattr(os, "sendfile", counting)
    return counts


def ask(folder: Path, frames: list[bytes], *lines: str, one_by_one: bool) -> list[bytes]:
    """Return the answers of a broker with these settings to these pulls."""

    async def main() -> list[bytes]:
        async with broker_of(folder, *lines) as broker:
            client = RawClient(broker)
            found: list[bytes] = []
            try:
                if one_by_one:
                    for frame in frames:
                        await client.send(frame)
                        found += await client.frames(1)
                else:
                    await client.send(b"".join(frames))
                    found = await client.frames(len(frames))
            finally:
                client.close()
            return found

    return run_live(main)


@pytest.mark.parametrize("one_by_one", [True, False], ids=["one by one", "pipelined"])
def test_all_ways_give_the_same_frames_in_the_same_order(copied, sent_by_kernel, one_by_one):
    pulls = [pull_frame(number, *look) for number, look in enumerate(LOOKS)] * 3
    answers = {}
    for way in WAYS:
        sent_by_kernel.clear()
        answers[way] = ask(copied, pulls, f"pullTransfer={way}", one_by_one=one_by_one)
        assert bool(sent_by_kernel) is (way == "sendfile")

    assert answers["slices"] == answers["copy"]
    assert answers["sendfile"] == answers["copy"]
    assert len(set(answers["copy"])) == len(LOOKS)
    assert max(map(len, answers["copy"])) > 200_000


@pytest.mark.parametrize("way", WAYS)
def test_a_slow_reader_of_deleted_segments_gets_every_byte(copied, sent_by_kernel, way):
    pulls = [pull_frame(number, SMALL + number % BIG, 1, "*") for number in range(24)]
    expected = ask(copied, pulls, "pullTransfer=copy", one_by_one=True)

    async def main() -> list[bytes]:
        async with broker_of(copied, f"pullTransfer={way}") as broker:
            client, tool = RawClient(broker, receive_bytes=8 * 1024), LiveClient(broker.address)
            try:
                await client.send(b"".join(pulls))
                store = broker.context.store
                await until(lambda: store.statistics().get_found >= 2)  # much of it waits now
                await tool.ask(RequestCode.DELETE_EXPIRED_COMMITLOG)
                await until(lambda: store.min_log_offset > 0)
                found = await client.frames(len(pulls), piece=30_000)
            finally:
                client.close()
            return found

    found = run_live(main)

    if way == "sendfile":  # and what it could not send came from the mapping
        assert 0 < sum(sent_by_kernel) < sum(map(len, found))

    complete = [frame for frame in found if len(frame) > 200_000]
    assert complete, "everything was deleted before it was read"
    for frame, wanted in zip(found, expected, strict=True):
        assert frame == wanted or len(frame) < 1_000  # pulled when the segment was gone already


@pytest.mark.parametrize(
    ("lines", "way"),
    [
        ((), Transfer.COPY),
        (("transferMsgByHeap=false",), Transfer.SLICES),
        (("transferMsgByHeap=true", "pullTransfer=sendfile"), Transfer.SENDFILE),
        (("transferMsgByHeap=false", "pullTransfer=copy"), Transfer.COPY),
        (("transferMsgByHeap=false", "pullTransfer=auto"), Transfer.SLICES),
    ],
)
def test_rocketmqs_switch_chooses_unless_ours_does(tmp_path, lines, way):
    assert broker_of(tmp_path, *lines).config.transfer is way


def test_transfer_by_heap_makes_a_difference(copied, monkeypatch):
    seen: list[str] = []
    for name in ("send_parts", "send_views"):
        original = getattr(Connection, name)

        def noting(self: Connection, *given: Any, name: str = name, do: Any = original) -> None:
            seen.append(name)
            do(self, *given)

        monkeypatch.setattr(Connection, name, noting)
    pulls = [pull_frame(1, 0, 32, "*")]
    for value in ("true", "false"):
        ask(copied, pulls, f"transferMsgByHeap={value}", one_by_one=True)

    assert seen == ["send_parts", "send_views"]


class HeldTransport:
    """A transport that still has bytes to send; it has no socket to go round it."""

    def __init__(self) -> None:
        self.written: list[bytes | memoryview] = []

    def get_extra_info(self, name: str) -> Any:
        return None if name == "socket" else ("127.0.0.1", 50_001)

    def set_write_buffer_limits(self, high: int) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 5

    def writelines(self, parts: list[bytes | memoryview]) -> None:
        self.written += parts


def test_a_file_goes_behind_what_the_transport_still_has_to_send(tmp_path):
    transport = HeldTransport()

    async def main() -> None:
        connection = Connection(ConnectionHandler(), NetConfig())
        connection.connection_made(cast(Any, transport))
        part = FilePart(tmp_path / "log", 0, memoryview(b"records"))
        connection.send_views(Command(0, {}, opaque=1), [part])
        connection._flush()

    run_live(main)

    assert b"".join(transport.written).endswith(b"records")
