"""Jobs on a cluster whose driver, executors and tasks are killed at random moments: each message once.

ORBITMQ_JOB_KILLS says how often each job is killed (0: none of these runs; the full run is 20, a third of
them each kind), ORBITMQ_CRASH_SEED when. What single kills do at chosen steps the other tests show.
"""

import json
import os
import random
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import duckdb
import pytest
from deltalake.exceptions import TableNotFoundError
from pyiceberg.exceptions import NoSuchTableError

from command import ORBITMQ
from orbitmq.testing import Broker
from spark.export_world import (
    FORMATS,
    append,
    export_here,
    lake_rows,
    leftovers,
    log_rows,
    write_conf,
)
from spark.faulty_commands import faulty_settings
from spark.kill_world import PATIENT, JobProcess, Moment, kill_often, wait_for
from spark.sink_world import Row, fresh_topic, row
from spark.sink_world import require_each_once as require_rows_once
from spark.standalone import StandaloneCluster
from spark.test_export_kills import VISIBLE, commits, writer
from spark.test_load_kills import ROWS, STAGES, require_none_or_all, write_table
from spark.test_replay_kills import fill, require_each_once, target
from spark.test_sink_kills import HERE, count_of, send_source

KILLS = int(os.environ.get("ORBITMQ_JOB_KILLS", "0"))
SEED = int(os.environ.get("ORBITMQ_CRASH_SEED", random.randrange(2**31)))
WHY = f"ORBITMQ_CRASH_SEED={SEED} ORBITMQ_JOB_KILLS={KILLS}"
TASK_S = 2.0
"""How long tasks of a job take that would be over before anything could be killed."""
WITHIN_S = 2.2

pytestmark = [
    pytest.mark.spark,
    pytest.mark.crash,
    pytest.mark.slow,
    pytest.mark.timeout(300 + 120 * KILLS),
    pytest.mark.skipif(not KILLS, reason="ORBITMQ_JOB_KILLS says how often"),
]


class Jobs:
    """Starts a job on the cluster, in a directory of its own each time."""

    def __init__(
        self, cluster: StandaloneCluster, root: Path, slow: tuple[str, ...] = (), by: float = 0.5
    ) -> None:
        self.cluster, self._root, self._numbers = cluster, root, count()
        self._slow = {stage: {"*": f"slow {by}"} for stage in slow}

    def command(self, *words: object) -> JobProcess:
        """Start `orbitmq spark ...`."""
        place, conf, environment = self._place()
        options = [word for item in conf.items() for word in ("--conf", "=".join(item))]
        command = [ORBITMQ, "spark", *words, "--master", self.cluster.master, *options]
        return JobProcess(command, place, environment)

    def script(self, name: str, settings: dict[str, Any]) -> JobProcess:
        """Start a program of the tests."""
        place, conf, environment = self._place()
        told = json.dumps({**settings, "master": self.cluster.master, "conf": conf})
        paths = f"{environment['PYTHONPATH']}{os.pathsep}{HERE.parent}"
        return JobProcess(
            [sys.executable, HERE / name, told], place, {**environment, "PYTHONPATH": paths}
        )

    def begun(self, stage: str = "") -> bool:
        """Return whether tasks of the last one, or of a stage of it, have begun."""
        return any(path.name.startswith(stage) for path in (self._last / "calls").iterdir())

    def _place(self) -> tuple[Path, dict[str, str], dict[str, str]]:
        self._last = self._root / f"job{next(self._numbers)}"
        (self._last / "calls").mkdir(parents=True)
        conf, environment = faulty_settings(self._last / "calls", self._slow)
        return self._last, {**conf, **PATIENT}, environment


@pytest.fixture
def chance() -> random.Random:
    print(WHY)  # noqa: T201
    return random.Random(SEED)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


def some_time_later(chance: random.Random, begun: Callable[[], bool]) -> Moment:
    """Return what waits until a job is at work, and some time more."""

    def moment(job: JobProcess) -> None:
        wait_for(lambda: job.is_over() or begun(), lambda: f"{WHY} {job.said[-5000:]}")
        until = time.monotonic() + chance.random() * WITHIN_S
        wait_for(lambda: job.is_over() or time.monotonic() > until)

    return moment


def require_all(done: Counter[str]) -> None:
    print(f"{WHY}: {dict(done)}")  # noqa: T201
    assert done.total() == KILLS


@pytest.mark.feature("P10", "P18")
def test_an_export(cluster: StandaloneCluster, chance: random.Random, tmp_path: Path) -> None:
    jobs = Jobs(cluster, tmp_path / "jobs", ("export",), TASK_S)
    store, runs, conf = tmp_path / "store", count(), write_conf(tmp_path / "broker.conf")
    lakes = {name: tmp_path / name for name in FORMATS}

    def start() -> JobProcess:
        number = next(runs)
        if number:
            require_no_doubles(store, lakes)
        append(store, chance.randint(50, 500), seed=number)
        format_ = FORMATS[number % len(FORMATS)]
        words = ("--from", store, "--to", lakes[format_], "--format", format_, "--config", conf)
        return jobs.command("export", *words)

    require_all(kill_often(cluster, chance, KILLS, start, some_time_later(chance, jobs.begun)))

    require_no_doubles(store, lakes)
    for format_, lake in lakes.items():
        export_here(store, lake, format=format_)
        for topic in VISIBLE:
            assert lake_rows(lake, format_, topic) == log_rows(store, topic), WHY
        assert not leftovers(lake), WHY


def require_no_doubles(store: Path, lakes: dict[str, Path]) -> None:
    """What readers see of a lake at any time are messages of the topic, each once."""
    for format_, lake in lakes.items():
        for topic in VISIBLE:
            wanted, found = log_rows(store, topic), _seen(lake, format_, topic)
            assert len(set(found)) == len(found), WHY
            assert set(found) <= set(wanted), WHY
            if format_ != "parquet":
                assert found == wanted[: len(found)], WHY


def _seen(lake: Path, format_: str, topic: str) -> list[Any]:
    """Return the rows that readers see; a directory that is no table yet has none."""
    try:
        return lake_rows(lake, format_, topic)
    except (duckdb.IOException, TableNotFoundError, NoSuchTableError):
        return []


@pytest.mark.feature("P10", "P18")
def test_an_export_that_follows(
    cluster: StandaloneCluster, chance: random.Random, tmp_path: Path
) -> None:
    jobs, store, runs = Jobs(cluster, tmp_path / "jobs", ("export",)), tmp_path / "store", count()
    conf = write_conf(tmp_path / "broker.conf")
    lakes = {name: tmp_path / name for name in FORMATS}
    append(store, 50)

    def start() -> JobProcess:
        format_ = FORMATS[next(runs) % len(FORMATS)]
        words = ("--from", store, "--to", lakes[format_], "--format", format_, "--config", conf)
        return jobs.command("export", *words, "--follow", "--interval", "0")

    def moment(job: JobProcess) -> None:
        wanted = sum(map(commits, lakes.values())) + chance.randint(0, 2)

        def is_reached() -> bool:
            return jobs.begun() and sum(map(commits, lakes.values())) >= wanted

        some_time_later(chance, is_reached)(job)

    with writer(store, SEED):
        require_all(kill_often(cluster, chance, KILLS, start, moment))

    for format_, lake in lakes.items():
        export_here(store, lake, format=format_)
        for topic in VISIBLE:
            assert lake_rows(lake, format_, topic) == log_rows(store, topic), WHY
        assert not leftovers(lake), WHY


@pytest.mark.feature("P13")
def test_a_replay(
    cluster: StandaloneCluster, chance: random.Random, broker: Broker, tmp_path: Path
) -> None:
    jobs, state, runs = Jobs(cluster, tmp_path / "jobs"), tmp_path / "state.json", count()
    fill(broker)
    topics: list[str] = []

    def start() -> JobProcess:
        """A replay that came to its end is followed by another one, to another topic."""
        if not topics or (state.exists() and json.loads(state.read_bytes())["finished"]):
            state.unlink(missing_ok=True)
            topics.append(target(broker, f"Again{next(runs)}"))
        return jobs.command(*words(), "--rate", "60")

    def words() -> list[object]:
        source = ["replay", "--from-namesrv", broker.namesrv, "--topic", "Orders"]
        return [*source, "--namesrv", broker.namesrv, "--to-topic", topics[-1], "--state", state]

    def moment(job: JobProcess) -> None:
        wanted = count_of(broker, topics[-1]) + chance.randint(0, 40)
        reached = lambda: job.is_over() or count_of(broker, topics[-1]) >= wanted  # noqa: E731
        wait_for(reached, lambda: job.said[-5000:])

    require_all(kill_often(cluster, chance, KILLS, start, moment))

    with jobs.command(*words()) as last:
        last.wait()
    for topic in topics:
        require_each_once(broker, topic, WHY)


@pytest.mark.feature("P14", "P15")
def test_a_load(cluster: StandaloneCluster, chance: random.Random, tmp_path: Path) -> None:
    jobs, root, runs = Jobs(cluster, tmp_path / "jobs", STAGES, TASK_S), tmp_path / "store", count()
    words = ("load", *write_table(tmp_path, root))

    def start() -> JobProcess:
        if require_none_or_all(root, f"run {next(runs)}, {WHY}"):
            shutil.rmtree(root)
        return jobs.command(*words)

    def moment(job: JobProcess) -> None:
        stage = chance.choice(STAGES)
        some_time_later(chance, lambda: jobs.begun(stage))(job)

    require_all(kill_often(cluster, chance, KILLS, start, moment))

    if not require_none_or_all(root, WHY):
        with jobs.command(*words) as last:
            last.wait()
        assert f"{ROWS}" in last.said
    assert require_none_or_all(root, WHY)
    assert not (tmp_path / ".store.orbitmq-load").exists()


@pytest.mark.feature("P9")
def test_a_stream_into_a_topic(
    cluster: StandaloneCluster, chance: random.Random, broker: Broker, tmp_path: Path
) -> None:
    jobs, given = Jobs(cluster, tmp_path / "jobs", ("rows",)), list[Row]()
    topic = fresh_topic(broker, "StreamOut")
    fresh_topic(broker, "In", queues=3)
    settings = {
        "source": {"namesrv": broker.namesrv, "topics": "In", "maxRowsPerTrigger": "50"},
        "sink": {
            "namesrv": broker.namesrv,
            "topic": topic,
            "checkpointLocation": str(tmp_path / "checkpoint"),
            "batchRows": "2",
        },
    }

    def start() -> JobProcess:
        return jobs.script("sink_query.py", {**settings, "now": False})

    def moment(job: JobProcess) -> None:
        some = [row(number, "In") for number in range(len(given), len(given) + 100)]
        send_source(broker, some)
        given.extend(some)
        some_time_later(chance, jobs.begun)(job)

    require_all(kill_often(cluster, chance, KILLS, start, moment))

    with jobs.script("sink_query.py", {**settings, "now": True}) as last:
        last.wait()
    broker.wait_dispatched()
    require_rows_once(broker.namesrv, topic, given, WHY)
