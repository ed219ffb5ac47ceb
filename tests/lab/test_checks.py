"""A fast way that loses or changes a byte is found: the check fails, and so does the command."""

import os

import pytest

from command import invoke
from orbitmq.lab.experiments import buffers, file_copy, one_log, sequential, storage, transfer
from orbitmq.lab.stores import queue_bodies
from orbitmq.store.store import MessageStore


def wrong(name, tmp_path):
    """Run an experiment that has to fail; return what it says is wrong."""
    result = invoke("lab", name, "--size", "small", "--dir", tmp_path)
    assert result.exit_code == 1, result.output
    assert list(tmp_path.iterdir()) == []
    return [
        line.removeprefix("WRONG: ")
        for line in result.stdout.splitlines()
        if line.startswith("WRONG: ")
    ]


@pytest.mark.feature("F92")
def test_a_transfer_that_drops_a_byte_is_wrong(monkeypatch, tmp_path):
    def short(peer, source, frame):
        (start, length), *rest = frame.ranges
        transfer.send_by_kernel(
            peer, source, transfer.Frame(frame.prefix, [(start, length - 1), *rest])
        )

    monkeypatch.setitem(transfer.WAYS, "sendfile", short)

    found = wrong("transfer", tmp_path)

    assert found == [
        f"{case} by sendfile: the receiver has the same bytes"
        for case in ("stream", *transfer.CASES)
    ]


@pytest.mark.feature("F93")
def test_a_copy_that_is_one_byte_short_is_wrong(monkeypatch, tmp_path):
    def short(source, target, size):
        file_copy.copy_by_sendfile(source, target, size - 1)

    monkeypatch.setitem(file_copy.WAYS, "mapped slices", short)

    assert wrong("file-copy", tmp_path) == ["mapped slices: the copy is equal"]


@pytest.mark.feature("F94")
def test_a_write_of_other_bytes_is_wrong(monkeypatch, tmp_path):
    real = os.pwrite

    def changed(fd, data, position):
        return real(fd, bytes([data[0] ^ 1]) + bytes(data[1:]), position)

    monkeypatch.setattr(buffers.os, "pwrite", changed)

    found = wrong("buffers", tmp_path)

    assert len(found) == 12
    assert all(what.endswith("the file is equal") for what in found)


@pytest.mark.feature("F101")
def test_a_database_that_loses_a_message_is_wrong(monkeypatch, tmp_path):
    class Forgetful(storage.SqliteStorage):
        def put(self, batch):
            super().put(batch[1:])

    monkeypatch.setitem(storage.STORAGES, storage.RELATIONAL, Forgetful)

    found = wrong("storage", tmp_path)

    assert [what.partition(":")[0] for what in found] == [
        "SQLite (relational)",
        "SQLite (relational), synced",
    ]


@pytest.mark.feature("F102")
def test_a_block_in_the_wrong_place_is_wrong(monkeypatch, tmp_path):
    real = os.pread
    monkeypatch.setattr(
        sequential.os, "pread", lambda fd, size, position: real(fd, size, max(position - size, 0))
    )

    assert [what.partition(":")[0] for what in wrong("sequential", tmp_path)] == [
        sequential.READ_ORDER,
        sequential.READ_RANDOM,
    ]


@pytest.mark.feature("F103")
def test_a_message_in_another_partition_is_wrong(monkeypatch, tmp_path):
    real = one_log.append_turns
    monkeypatch.setattr(
        one_log,
        "append_turns",
        lambda fds, made, seconds, *, synced: real(fds[::-1], made, seconds, synced=synced),
    )

    found = wrong("one-log", tmp_path)

    assert [what.partition(", w")[0] for what in found] == [
        "a log per partition, 16 partitions"
    ] * 2


@pytest.mark.feature("F57")
@pytest.mark.feature("F122")
@pytest.mark.parametrize("name", ["page-cache", "flush"])
def test_a_store_that_gives_other_messages_is_wrong(name, monkeypatch, tmp_path):
    real = MessageStore.get

    def next_one(self, topic, queue_id, offset, *arguments, **options):
        return real(self, topic, queue_id, offset + 1, *arguments, **options)

    monkeypatch.setattr(MessageStore, "get", next_one)

    found = wrong(name, tmp_path)

    assert found
    assert all("asked for" in what or "after a restart" in what for what in found)


@pytest.mark.feature("F122")
def test_an_acknowledged_message_that_is_not_on_disk_is_wrong(monkeypatch, tmp_path):
    monkeypatch.setattr(MessageStore, "flushed_offset", property(lambda store: 0))

    found = wrong("flush", tmp_path)

    assert [what.partition(":")[0] for what in found] == ["sync, 1 thread", "sync, 8 threads"]


def test_an_experiment_without_checks_is_not_ok():
    from orbitmq.lab.catalogue import EXPERIMENTS
    from orbitmq.lab.experiment import Chart, Findings, Result, Size, Verdict

    findings = Findings({}, [], Verdict(None, ""), Chart(("rate",)))

    assert not Result(EXPERIMENTS["mmap"], Size.SMALL, 0.0, findings, []).all_ok


def test_bodies_of_a_queue_are_those_that_were_appended(tmp_path):
    from orbitmq.lab.stores import append_all, open_store, requests

    made = requests(100, 2, 300)
    with open_store(tmp_path / "store", mappedFileSizeCommitLog=1 << 20) as store:
        append_all(store, made)

        assert list(queue_bodies(store, 1)) == [request.body for request in made[1::2]]
