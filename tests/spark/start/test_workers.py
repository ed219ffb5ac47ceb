"""A worker process: how it uses its socket, and what it leaves to the garbage collector."""

import io
import socket
import threading
from collections.abc import Iterator

import pytest

from orbitmq.spark.start import workers
from orbitmq.spark.start.workers import acknowledging, send_at_once

pytestmark = pytest.mark.spark

Ends = tuple[socket.socket, socket.socket]


@pytest.fixture
def tcp() -> Iterator[Ends]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        theirs, _ = server.accept()
    with ours, theirs:
        yield ours, theirs


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a worker did beside its tasks."""
    done: list[str] = []
    monkeypatch.setattr(workers, "take_over", lambda sock: done.append("take over"))
    monkeypatch.setattr(workers, "keep_objects", lambda: done.append("keep"))
    return done


def test_an_acknowledging_main_reads_what_was_sent_whole(tcp: Ends) -> None:
    ours, theirs = tcp
    sent = bytes(range(256)) * 2_000
    found: list[bytes] = []

    def main(infile: io.BufferedIOBase, _outfile: io.BufferedIOBase) -> None:
        found.extend((infile.read(3), infile.read(0), infile.read(70_000), infile.read()))

    def send() -> None:
        with theirs:
            theirs.sendall(sent)

    sender = threading.Thread(target=send)
    sender.start()
    with ours.makefile("rb") as infile:
        before = infile.read(5)  # as Spark reads its secret; the file has read on behind it
        acknowledging(main, ours)(infile, io.BytesIO())
    sender.join()

    assert b"".join((before, *found)) == sent
    assert [len(part) for part in found[:3]] == [3, 0, 70_000]


def test_small_writes_leave_at_once(tcp: Ends) -> None:
    ours, _ = tcp
    send_at_once(ours)

    assert ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_unix_socket_is_left_as_it_is() -> None:
    def main(_infile: io.BufferedIOBase, _outfile: io.BufferedIOBase) -> None: ...

    ours, theirs = socket.socketpair(socket.AF_UNIX)
    with ours, theirs:
        send_at_once(ours)

        assert acknowledging(main, ours) is main


def test_the_first_task_decides_what_stays(tcp: Ends, kept: list[str]) -> None:
    def run(_sock: socket.socket, _authenticated: bool) -> int:
        kept.append("task")
        return 0

    worker = workers.Worker(run)

    assert [worker(tcp[0], True), worker(tcp[0], True)] == [0, 0]
    assert kept == ["take over", "task", "keep", "task"]


def test_a_jvm_that_wants_no_more_rows_ends_the_worker_quietly(tcp: Ends, kept: list[str]) -> None:
    def run(_sock: socket.socket, _authenticated: bool) -> int:
        raise BrokenPipeError

    assert workers.Worker(run)(tcp[0], True) == 1
    assert kept == ["take over"]
