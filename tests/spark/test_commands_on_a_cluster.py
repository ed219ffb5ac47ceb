"""Every command of `orbitmq spark` on a cluster of separate processes, as a user types it, in a directory
where executors do not work: whatever happens to its tasks, the same bytes and the same findings."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

import command
from dispatch_job import filled_files, live_files_of_log
from golden_stores import GOLDEN, damage, settings, unpack
from orbitmq.format.record import decode_record
from orbitmq.store.config import DispatchMode, StoreConfig
from orbitmq.store.store import MessageStore
from orbitmq.store.verify.check import check_store
from orbitmq.testing.builders import make_request
from orbitmq.units import MiB
from spark.audit_world import audit_here
from spark.drivers import ONE_EXECUTOR, SMALL, quick_executors
from spark.faulty_commands import SPECULATION, FaultyCommand
from spark.load_world import SETTINGS as LOAD_SETTINGS
from spark.query_world import shared_world
from spark.rebuild_world import leftovers, made_files
from spark.standalone import StandaloneCluster

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.timeout(600)]

STORE = "mixed"
CONFIG = GOLDEN / f"{STORE}.conf"


@pytest.mark.feature("P15")
def test_the_doctor_finds_everything_right(cluster: StandaloneCluster) -> None:
    given = SMALL | quick_executors() | ONE_EXECUTOR
    conf = [word for item in given.items() for word in ("--conf", "=".join(item))]

    done = command.run("spark", "doctor", "--master", cluster.master, *conf, "--output", "json")

    assert done.returncode == 0, done.stdout + done.stderr
    checks = json.loads(done.stdout)
    assert {check["state"] for check in checks} == {"ok"}
    assert checks[-1]["what"] == "workers"


@pytest.mark.feature("P11", "P15")
def test_a_query_finds_what_log_and_lake_hold(cluster: StandaloneCluster, tmp_path: Path) -> None:
    world = shared_world(tmp_path, "parquet")
    given = SMALL | quick_executors() | ONE_EXECUTOR
    conf = [word for item in given.items() for word in ("--conf", "=".join(item))]
    words = (*world.arguments(), "--key", "hot", "--output", "json", "--master", cluster.master)

    done = command.run("spark", "query", *words, *conf)

    assert done.returncode == 0, done.stderr
    found = [json.loads(line)["log_offset"] for line in done.stdout.splitlines()]
    assert found == sorted(one.log_offset for one in world.sent.values() if "hot" in one.keys)
    assert len(found) == 107
    read = next(json.loads(line)["read"] for line in done.stderr.splitlines() if '"read"' in line)
    assert read["log"]["found_by"] == ["index"]
    assert 0 < read["log"]["read_bytes"] < read["log"]["of_bytes"]


@pytest.mark.feature("P5", "P15")
def test_a_rebuild_whose_tasks_fail_and_run_twice_makes_the_same_bytes(
    cluster: StandaloneCluster, tmp_path: Path
) -> None:
    root = unpack(STORE, tmp_path)
    expected = made_files(root)
    each = {"0": "fail", "1": "linger"}
    faults = {"scan": each, "build": each}
    arguments = ("rebuild", root.name, "--config", CONFIG)

    with FaultyCommand(
        tmp_path, cluster.master, *arguments, faults=faults, conf=SPECULATION
    ) as rebuild:
        rebuild.wait()

    assert {f"{stage}{task}-1" for stage in faults for task in (0, 1)} <= rebuild.calls
    assert made_files(root) == expected
    assert not leftovers(root)


@pytest.mark.feature("P5", "P15")
def test_a_rebuild_that_loses_executors_makes_the_same_bytes(
    cluster: StandaloneCluster, tmp_path: Path
) -> None:
    root = unpack(STORE, tmp_path)
    expected = made_files(root)
    faults = {"scan": {"0": "hold"}, "build": {"0": "hold"}}
    arguments = ("rebuild", root.name, "--to", "made", "--config", CONFIG)

    with FaultyCommand(tmp_path, cluster.master, *arguments, faults=faults) as rebuild:
        rebuild.kill_executor_of("scan0-0")
        rebuild.kill_executor_of("build0-0")
        rebuild.wait()

    assert {"scan0-1", "build0-1"} <= rebuild.calls
    assert made_files(tmp_path / "made") == expected
    assert not leftovers(tmp_path / "made")


@pytest.mark.feature("P6", "P15")
def test_a_verification_that_loses_executors_finds_the_same(
    cluster: StandaloneCluster, tmp_path: Path
) -> None:
    root = unpack("crashed", tmp_path)
    for variant in ("flip-early", "cq-zero-unit", "index-chain-self"):
        damage(root, variant)
    wanted = check_store(root, settings("crashed")).findings
    faults = {"index": {"0": "fail"}, "log": {"0": "hold"}, "queues": {"0": "hold"}}
    arguments = ("verify", root.name, "--config", GOLDEN / "crashed.conf", "--output", "json")

    with FaultyCommand(tmp_path, cluster.master, *arguments, faults=faults) as verify:
        verify.kill_executor_of("log0-0")
        verify.kill_executor_of("queues0-0")
        output = verify.wait(code=1)

    # What the executors had shuffled is lost with them: of queues the whole stage may be done again.
    assert {"index0-1", "log0-1", "queues0-0"} <= verify.calls
    found = json.loads(output)["findings"]
    assert [(one["file"], one["position"], one["cause"]) for one in found] == [
        (str(one.path), one.position, one.cause) for one in wanted
    ]
    assert len(wanted) >= 3


@pytest.mark.feature("P7", "P15")
def test_a_dispatch_that_loses_an_executor_writes_the_bytes_of_live_dispatch(
    cluster: StandaloneCluster, tmp_path: Path
) -> None:
    config = StoreConfig(
        root=tmp_path / "store",
        segment_bytes=1 * MiB,
        cq_file_bytes=4000,
        index_slots=500,
        index_items=2000,
        dispatch=DispatchMode.SPARK,
    )
    with MessageStore.open(config, background=False) as store:
        for number in range(3000):
            store.append(replace(make_request(number), body=b"b" * 1000))
    arguments = ("dispatch", "store", "--once", "--batch-bytes", 1 * MiB, "--checkpoint", "notes")

    with FaultyCommand(
        tmp_path,
        cluster.master,
        *(*arguments, "--output", "json"),
        faults={"tail": {"0": "hold"}},
    ) as dispatch:
        dispatch.kill_executor_of("tail0-0")
        told = json.loads(dispatch.wait())

    assert "tail0-1" in dispatch.calls
    assert (told["records"], told["behind_bytes"]) == (3000, 0)
    assert told["batches"] >= 3
    assert filled_files(config.root) == live_files_of_log(config, tmp_path / "live")


@pytest.mark.feature("P14", "P15")
def test_a_load_whose_tasks_fail_and_run_twice_has_every_row_once(
    cluster: StandaloneCluster, tmp_path: Path
) -> None:
    count, settings = 400, {**LOAD_SETTINGS, "mappedFileSizeCommitLog": "16384"}
    lines = [json.dumps({"body": f"body {number}", "queue_id": 0}) for number in range(count)]
    (tmp_path / "table.jsonl").write_text("\n".join(lines))
    conf = tmp_path / "broker.conf"
    conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    faults = {"encode": {"0": "fail"}, "place": {"0": "fail", "1": "linger"}}
    words = ("load", "table.jsonl", "--to", "made", "--topic", "T", "--config", conf)

    with FaultyCommand(tmp_path, cluster.master, *words, faults=faults, conf=SPECULATION) as load:
        load.wait()

    assert {"encode0-1", "place0-1", "place1-1"} <= load.calls
    root = tmp_path / "made"
    report = check_store(root, settings)
    assert (report.findings, report.records) == ((), count)
    with MessageStore.open(StoreConfig.from_settings(root, settings), background=False) as store:
        bodies = _bodies(store, count)
    assert bodies == [b"body %d" % number for number in range(count)]


@pytest.mark.feature("P12", "P15")
def test_an_audit_finds_what_one_process_finds(cluster: StandaloneCluster, tmp_path: Path) -> None:
    root = unpack(STORE, tmp_path)
    conf = [
        word for item in (SMALL | quick_executors()).items() for word in ("--conf", "=".join(item))
    ]
    words = ["--from", root, "--config", CONFIG, "--output", "json"]

    done = command.run("spark", "audit", *words, "--master", cluster.master, *conf)

    assert done.returncode == 0, done.stderr
    here = json.loads(json.dumps(audit_here(root, settings(STORE)).value()))
    assert json.loads(done.stdout) | {"asked": None} == here | {"asked": None}


def _bodies(store: MessageStore, count: int) -> list[bytes]:
    bodies: list[bytes] = []
    while len(bodies) < count:
        found = store.get("T", 0, offset=len(bodies))
        assert found.records, found.status
        bodies += [decode_record(data).body for data in found.records]
    return bodies
