"""A load that is killed: there is no store, or the whole one, and the next load works.

ORBITMQ_LOAD_KILLS says how often (2, the command half as often), ORBITMQ_CRASH_SEED when.
"""

import os
import random
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from command import run
from orbitmq.errors import StoreLockedError
from orbitmq.files.disk import Disk
from orbitmq.files.state_file import read_state
from orbitmq.spark import load
from orbitmq.spark.jobs.load.staging import Staging
from orbitmq.store.verify.check import check_store
from spark.faulty_commands import FaultyCommand
from spark.load_world import SETTINGS, simple_table
from spark.test_rebuild_kills import DyingDisk, KilledError

ROUNDS = int(os.environ.get("ORBITMQ_LOAD_KILLS", "2"))
SEED = int(os.environ.get("ORBITMQ_CRASH_SEED", random.randrange(2**31)))
STAGES = ("encode", "place", "scan", "build")
ROWS = 300

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.timeout(600 + 120 * ROUNDS)]


def require_none_or_all(root: Path, when: str) -> bool:
    """Return whether the store is there; if it is, it is whole."""
    if not root.exists():
        return False
    report = check_store(root, SETTINGS)
    assert (report.findings, report.records) == ((), ROWS), when
    topics = read_state(root / "config" / "topics.json")["topicConfigTable"]
    assert {name: one["writeQueueNums"] for name, one in topics.items()} == {"T": 4}, when
    return True


@pytest.mark.feature("P14", "P15")
def test_a_driver_that_dies_at_any_step_leaves_no_store_or_all_of_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    chance, root = random.Random(SEED), tmp_path / "store"
    frame = simple_table(spark, ROWS).coalesce(1)
    whole = DyingDisk(10_000, can_exchange=True)
    load(frame, root, SETTINGS, disk=whole)
    steps = 10_000 - whole.steps_left
    assert require_none_or_all(root, "at the end")
    shutil.rmtree(root)
    # The last steps are those around the rename that makes the store.
    moments = [steps - 1, steps - 2, steps - 3, *(chance.randrange(steps) for _ in range(ROUNDS))]

    for step in moments:
        when = f"killed at step {step} of {steps}, ORBITMQ_CRASH_SEED={SEED}"
        with pytest.raises(KilledError):
            load(frame, root, SETTINGS, disk=DyingDisk(step, can_exchange=True))
        if require_none_or_all(root, when):
            shutil.rmtree(root)
    load(frame, root, SETTINGS)

    assert require_none_or_all(root, "after all of them")
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


def write_table(directory: Path, root: Path) -> tuple[object, ...]:
    """Write a table; return the arguments of a load of it."""
    file, conf = directory / "table.jsonl", directory / "broker.conf"
    lines = [
        f'{{"body":"body {n}","keys":"k{n} all","properties":{{"n":{n}}}}}' for n in range(ROWS)
    ]
    file.write_text("\n".join(lines))
    conf.write_text("".join(f"{key}={value}\n" for key, value in SETTINGS.items()))
    return file, "--to", root, "--topic", "T", "--config", conf


@pytest.mark.feature("P14", "P15")
def test_a_killed_command_can_be_run_again(tmp_path: Path) -> None:
    chance, root = random.Random(SEED), tmp_path / "store"
    words = ("load", *write_table(tmp_path, root))
    for number in range(max(1, ROUNDS // 2)):
        stage = chance.choice(STAGES)
        place = tmp_path / f"round{number}"
        place.mkdir()
        with FaultyCommand(place, "local[2]", *words, faults={stage: {"0": "hold"}}) as held:
            held.wait_for_call(f"{stage}0-0")
            held.process.kill()
            held.process.communicate()
        assert not root.exists(), f"killed at {stage}, ORBITMQ_CRASH_SEED={SEED}"
        assert (tmp_path / ".store.orbitmq-load").exists()

    done = run(
        *("spark", *words, "--master", "local[2]", "--conf", "spark.driver.memory=512m"),
        *("--output", "json"),
    )

    assert done.returncode == 0, done.stderr
    assert f'"records":{ROWS}' in done.stdout
    assert len(done.stdout.splitlines()) == 1
    assert '"stage":"place"' in done.stderr
    assert require_none_or_all(root, "in the end")
    assert not (tmp_path / ".store.orbitmq-load").exists()


def test_a_second_load_to_the_same_place_waits_for_nobody(
    spark: SparkSession, tmp_path: Path
) -> None:
    with (
        Staging(tmp_path / "store", Disk()).held(),
        pytest.raises(StoreLockedError, match="another load"),
    ):
        load(simple_table(spark, 1), tmp_path / "store", SETTINGS)
    assert list(tmp_path.iterdir()) == []
