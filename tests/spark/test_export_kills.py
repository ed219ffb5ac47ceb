"""An export that is killed at any step, and at any moment: each message is in the lake once afterwards.

ORBITMQ_EXPORT_KILLS says how often a follower is killed (1; the full run is 20), ORBITMQ_EXPORT_SEED at which
other moments.
"""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from command import ORBITMQ
from orbitmq.files.disk import FilePath
from orbitmq.spark.jobs.export.delta import DeltaTables
from orbitmq.spark.jobs.export.iceberg import IcebergTables
from orbitmq.spark.jobs.export.tables import PlainTables
from orbitmq.store.store import MessageStore
from orbitmq.testing.forwarding_disk import ForwardingDisk
from spark.export_world import (
    FORMATS,
    SEED,
    TOPICS,
    append,
    config_of,
    export_here,
    lake_rows,
    leftovers,
    log_rows,
    message,
    write_conf,
)
from spark.faulty_commands import FaultyCommand
from spark.standalone import StandaloneCluster

KILLS = int(os.environ.get("ORBITMQ_EXPORT_KILLS", "1"))
KILL_WITHIN_S = 1.0
START_SECONDS = 240.0
TABLES = {"parquet": PlainTables, "delta": DeltaTables, "iceberg": IcebergTables}
VISIBLE = TOPICS[:2]

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.timeout(600 + 120 * KILLS)]


class KilledError(BaseException):
    """Stands for the end of the process."""


class DyingDisk(ForwardingDisk):
    """Ends the process before one of the steps that change something; nothing reaches the disk after."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.steps_left = steps

    def step(self) -> None:
        if self.steps_left <= 0:
            raise KilledError
        self.steps_left -= 1

    def rename(self, source: FilePath, target: FilePath) -> None:
        self.step()
        self.inner.rename(source, target)

    def make_directory(self, path: FilePath) -> None:
        self.step()
        self.inner.make_directory(path)

    def write_at(
        self, path: FilePath, fd: int, position: int, data: bytes | bytearray | memoryview
    ) -> None:
        self.step()
        self.inner.write_at(path, fd, position, data)


@pytest.mark.feature("P10", "P18")
@pytest.mark.parametrize("format_", FORMATS)
def test_a_driver_that_dies_at_any_step_leaves_no_gap_and_no_double(
    format_: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, steps, finished = tmp_path / "store", 0, False
    append(store, 60)
    wanted = {topic: log_rows(store, topic) for topic in VISIBLE}
    commit = TABLES[format_].commit
    while not finished:
        lake, disk = tmp_path / f"lake{steps}", DyingDisk(steps)

        def dying_commit(*given: Any, disk: DyingDisk = disk) -> None:
            disk.step()
            commit(*given)
            disk.step()

        with monkeypatch.context() as patched:
            patched.setattr(TABLES[format_], "commit", dying_commit)
            try:
                export_here(store, lake, format=format_, disk=disk)
                finished = True
            except KilledError:
                pass

        export_here(store, lake, format=format_)

        found = {topic: lake_rows(lake, format_, topic) for topic in VISIBLE}
        assert found == wanted, f"after {steps} steps"
        assert not leftovers(lake), f"after {steps} steps"
        if format_ == "delta":  # which would take the same files twice, and show them once
            assert DeltaTable(lake / "Orders").version() == 1, f"after {steps} steps"
        steps += 1
    assert steps > 12


@pytest.mark.feature("P10", "P18")
def test_what_a_killed_run_had_written_is_taken_over_and_not_read_again(tmp_path: Path) -> None:
    store, lake = tmp_path / "store", tmp_path / "lake"
    append(store, 60)
    with pytest.raises(KilledError):
        export_here(store, lake, disk=DyingDisk(6))
    assert (lake / "_orbitmq" / "pending.json").exists()

    report = export_here(store, lake)

    assert report.finished == 2
    assert report.read_bytes == 0
    assert lake_rows(lake, "parquet", "Orders") == log_rows(store, "Orders")


@pytest.mark.feature("P10", "P15", "P16")
def test_an_export_that_loses_an_executor_brings_each_message_once(
    cluster: StandaloneCluster, tmp_path: Path
) -> None:
    store, lake = tmp_path / "store", tmp_path / "lake"
    append(store, 300)
    conf = write_conf(tmp_path / "broker.conf")
    words = ("export", "--from", "store", "--to", "lake", "--config", conf, "--output", "json")

    with FaultyCommand(tmp_path, cluster.master, *words, faults={"export": {"0": "hold"}}) as held:
        held.kill_executor_of("export0-0")
        report = json.loads(held.wait())

    assert "export0-1" in held.calls
    assert '"stage":"export"' in held.said
    assert (report["commit"], report["format"], report["to"]) == (1, "parquet", str(lake))
    assert report["rows"] == sum(len(log_rows(store, topic)) for topic in VISIBLE)
    for topic in VISIBLE:
        assert lake_rows(lake, "parquet", topic) == log_rows(store, topic)
    assert not leftovers(lake)


@contextmanager
def follower(store: Path, lake: Path, format_: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Have `orbitmq spark export --follow` at work; it and its JVM are killed at the end."""
    conf = write_conf(log.with_suffix(".conf"))
    words = ["spark", "export", "--from", store, "--to", lake, "--format", format_, "--follow"]
    words += ["--interval", "0", "--config", conf, "--master", "local[2]"]
    words += ["--conf", "spark.driver.memory=512m"]
    with log.open("ab") as output:
        process = subprocess.Popen(
            [str(ORBITMQ), *map(str, words)],
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextmanager
def writer(store: Path, seed: int) -> Iterator[None]:
    """Append messages all the time."""
    over, chance = threading.Event(), random.Random(seed)

    def write() -> None:
        with MessageStore.open(config_of(store)) as opened:
            number = 0
            while not over.wait(0.002):
                opened.append(message(chance, VISIBLE[number % 2], number))
                number += 1

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def commits(lake: Path) -> int:
    return len(list((lake / "_orbitmq" / "commits").glob("*.json")))


@pytest.mark.slow
@pytest.mark.feature("P10", "P18")
def test_a_follower_that_is_killed_again_and_again_brings_each_message_once(
    tmp_path: Path,
) -> None:
    sys.stderr.write(f"ORBITMQ_EXPORT_SEED={SEED} ORBITMQ_EXPORT_KILLS={KILLS}\n")
    chance = random.Random(SEED)
    store, log = tmp_path / "store", tmp_path / "export.log"
    append(store, 50)
    lakes = {FORMATS[(SEED + number) % 3] for number in range(KILLS)}
    with writer(store, SEED):
        for number in range(KILLS):
            format_ = FORMATS[(SEED + number) % 3]
            lake = tmp_path / format_
            wanted = commits(lake) + chance.randint(1, 3)
            deadline = time.monotonic() + START_SECONDS
            with follower(store, lake, format_, log) as process:
                while commits(lake) < wanted:
                    assert process.poll() is None, log.read_text()
                    assert time.monotonic() < deadline, log.read_text()
                    time.sleep(0.01)
                time.sleep(chance.random() * KILL_WITHIN_S)  # sleep: the moment of the kill

    for format_ in sorted(lakes):
        lake = tmp_path / format_
        export_here(store, lake, format=format_)
        for topic in VISIBLE:
            assert lake_rows(lake, format_, topic) == log_rows(store, topic)
        assert not leftovers(lake)
