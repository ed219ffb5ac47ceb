"""orbitmq.testing.Broker: starts at once, behaves like any broker, leaves nothing behind."""

import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from orbitmq.client import Admin, Consumer, Message, Producer
from orbitmq.errors import NoRouteError, UnreachableError
from orbitmq.testing import Broker


@pytest.fixture(autouse=True)
def own_temporary_directory(tmp_path, monkeypatch):
    """Let the brokers' temporary directories be seen."""
    directory = tmp_path / "temporary"
    directory.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(directory))
    return directory


def send(broker: Broker, *bodies: str, topic: str = "Orders") -> None:
    with Producer(broker.namesrv, "test") as producer:
        for body in bodies:
            producer.send(Message(topic, body.encode()))


def receive(broker: Broker, count: int, topic: str = "Orders", group: str = "readers") -> list[str]:
    bodies = []
    with Consumer(broker.namesrv, group, topic, start_from="first") as consumer:
        while len(bodies) < count:
            message = consumer.receive(timeout=20)
            assert message is not None, f"only {bodies}"
            bodies.append(message.body.decode())
            message.ack()
    return sorted(bodies)


def is_open(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with socket.socket() as probe:
        probe.settimeout(2)
        return probe.connect_ex((host, int(port))) == 0


@pytest.mark.feature("X4")
def test_a_broker_is_there_in_a_with_block_and_nothing_is_left_behind(own_temporary_directory):
    threads = set(threading.enumerate())

    with Broker() as broker:
        addresses = [broker.namesrv, broker.address]
        send(broker, "a", "b", "c")
        assert receive(broker, 3) == ["a", "b", "c"]
        assert broker.store_path.is_dir()
        assert all(is_open(address) for address in addresses)

    assert set(threading.enumerate()) <= threads
    assert list(own_temporary_directory.iterdir()) == []
    assert not any(is_open(address) for address in addresses)


@pytest.mark.feature("X4")
def test_it_starts_in_well_under_a_second_once_it_is_imported():
    times = []
    for _ in range(3):
        begin = time.process_time(), time.perf_counter()
        with Broker():
            times.append(time.perf_counter() - begin[1])

    assert min(times) < 0.5


def test_starting_it_does_not_load_the_compiler():
    program = (
        "import sys; from orbitmq.testing import Broker\n"
        "with Broker(): pass\n"
        "sys.exit('numba' in sys.modules)"
    )

    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_importing_the_package_imports_no_broker():
    program = "import sys, orbitmq.testing; sys.exit('orbitmq.broker' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_a_restart_keeps_messages_progress_and_addresses():
    with Broker() as broker:
        before = broker.namesrv, broker.address
        send(broker, "a", "b")
        assert receive(broker, 2) == ["a", "b"]

        broker.restart()
        send(broker, "c")

        assert (broker.namesrv, broker.address) == before
        assert receive(broker, 1) == ["c"]
        assert receive(broker, 3, group="others") == ["a", "b", "c"]


def test_a_client_goes_on_over_a_restart():
    with Broker() as broker, Producer(broker.namesrv, "test") as producer:
        producer.send(Message("Orders", b"before"))
        broker.restart()
        producer.send(Message("Orders", b"after"))

        assert receive(broker, 2) == ["after", "before"]


def test_a_given_store_is_kept(tmp_path):
    root = tmp_path / "kept"
    with Broker(root) as broker:
        assert broker.store_path == root
        send(broker, "a")

    with Broker(root) as broker:
        assert receive(broker, 1) == ["a"]
    assert root.is_dir()


def test_settings_are_rocketmqs_keys():
    settings = {"autoCreateTopicEnable": "false", "brokerClusterName": "TestCluster"}
    with Broker(settings=settings, name="b7") as broker, Admin(broker.namesrv) as admin:
        assert admin.clusters() == {"TestCluster": ["b7"]}
        admin.create_topic("Orders", queues=1)
        send(broker, "a")
        with pytest.raises(NoRouteError, match="Other"):
            send(broker, "b", topic="Other")


def test_two_at_once_know_nothing_of_each_other():
    with Broker() as one, Broker() as two:
        send(one, "a")
        send(two, "b")

        assert receive(one, 1) == ["a"]
        assert receive(two, 1) == ["b"]
        assert one.store_path != two.store_path


def test_without_a_with_block():
    broker = Broker()
    assert repr(broker) == "Broker('broker-a', stopped)"
    with pytest.raises(RuntimeError, match="not been started"):
        _ = broker.store_path
    with pytest.raises(RuntimeError, match="not running"):
        broker.restart()

    broker.start()
    try:
        assert broker.namesrv in repr(broker)
        with pytest.raises(RuntimeError, match="running already"):
            broker.start()
    finally:
        broker.stop()
    broker.stop()

    with broker:  # it can be used again
        send(broker, "again")


def test_a_start_that_fails_leaves_nothing_behind(own_temporary_directory):
    threads = set(threading.enumerate())
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        settings = {"listenPort": str(taken.getsockname()[1])}

        with pytest.raises(UnreachableError, match="cannot listen"):
            Broker(settings=settings).start()

    assert set(threading.enumerate()) <= threads
    assert list(own_temporary_directory.iterdir()) == []


def test_an_error_in_the_block_stops_it_too(own_temporary_directory: Path):
    with pytest.raises(ZeroDivisionError), Broker():
        _ = 1 / 0

    assert list(own_temporary_directory.iterdir()) == []


def test_waiting_for_dispatch_that_does_not_come_fails_and_says_how_far_it_is():
    with Broker(settings={"dispatch": "spark"}) as broker:  # and nobody runs the Spark job
        send(broker, "a")

        with pytest.raises(
            TimeoutError, match=r"dispatch of broker-a is \d+ bytes behind after 0.05 s"
        ):
            broker.wait_dispatched(timeout=0.05)


def test_waiting_for_the_dispatch_of_a_stopped_broker_is_refused():
    with pytest.raises(RuntimeError, match="not running"):
        Broker().wait_dispatched()
