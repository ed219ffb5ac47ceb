"""A store whose log a Spark job dispatches: what waits for the job is no damage, what it lost is."""

import json
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
import typer.main
from typer.testing import CliRunner, Result

from cluster_commands import Cluster
from conf_store import ConfStore
from dispatch_job import StandInJob
from doctor.planted_store import Planted, keyed
from orbitmq.cli import app
from orbitmq.store.offline.rebuild import rebuild_store
from orbitmq.store.spark_dispatch.handover import Handover
from orbitmq.testing import Broker

pytestmark = pytest.mark.feature("X5", "P7")


class Followed(Planted):
    """A store that is closed whenever a test looks at it."""

    def append(self, first: int, count: int) -> None:
        with ConfStore(self.folder, {"dispatch": "spark"}) as opened:
            for n in range(first, first + count):
                assert opened.store.append(keyed(n, queue_id=n % 2)).status.stored

    def dispatch(self) -> None:
        """Do what the advice starts: the job's own writer, without Spark."""
        with StandInJob(self.root) as job:
            job.round()

    def check(self, *more: str) -> Result:
        words = ["store", "check", self.root, "--config", self.conf, *more]
        return CliRunner().invoke(app, list(map(str, words)))


@pytest.fixture
def followed(tmp_path: Path) -> Followed:
    return Followed(tmp_path)


def parsed(command: str) -> dict[str, object]:
    """Return what `orbitmq spark dispatch` makes of these words, without running it."""
    program, group, name, *words = shlex.split(command)
    assert (program, group, name) == ("orbitmq", "spark", "dispatch")
    root = typer.main.get_group(app)
    commands = root.get_command(root.make_context(program, [group]), group).commands
    return commands[name].make_context(name, words).params


@pytest.mark.feature("F105")
@pytest.mark.parametrize("dispatched", [0, 20], ids=["nothing dispatched", "a part dispatched"])
def test_a_log_that_waits_for_its_job_is_told_until_the_job_has_run(followed, doctor, dispatched):
    if dispatched:
        followed.append(0, dispatched)
        followed.dispatch()
        assert doctor.fine(*followed.words)
    followed.append(dispatched, 30)

    finding = doctor.one("the Spark job that dispatches stands still", *followed.words)
    behind = doctor.one("the index is behind", *followed.words)
    followed.dispatch()

    words = parsed(finding["command"])
    assert (words["root"], words["once"]) == (followed.root, True)
    assert behind["command"] == finding["command"]
    assert finding["numbers"]["messages"] == behind["numbers"]["records_with_keys"] == 30
    assert doctor.fine(*followed.words)


@pytest.mark.feature("F105")
def test_a_broker_whose_job_does_not_run_is_told_until_it_does(doctor):
    with Broker(settings={"dispatch": "spark"}) as broker:
        cluster = Cluster(broker)
        cluster.create("Orders", queues=1)
        assert doctor.fine(broker.namesrv)
        cluster.send("Orders", "a", "b")

        finding = doctor.one("the Spark job that dispatches stands still", broker.namesrv)
        with StandInJob(broker.store_path) as job:
            job.round()
        broker.wait_dispatched()
        later = doctor.fine(broker.namesrv)

        words = parsed(finding["command"])
        assert (words["root"], words["once"]) == (broker.store_path, False)
    assert finding["numbers"]["behind_bytes"] > 200
    assert later


@pytest.mark.parametrize("dispatched", [0, 20], ids=["nothing dispatched", "a part dispatched"])
def test_a_check_calls_what_waits_for_the_job_information(followed, dispatched):
    if dispatched:
        followed.append(0, dispatched)
        followed.dispatch()
    followed.append(dispatched, 30)

    result = followed.check()
    value = json.loads(followed.check("--output", "json").stdout)
    followed.dispatch()
    later = followed.check()

    assert result.exit_code == 0, result.output
    told = f"the last {value['undispatched']} bytes of the log wait for "
    assert f"{told}`orbitmq spark dispatch {followed.root} --once`" in result.output
    assert "the next start does it" not in result.output
    assert (value["sound"], value["findings"]) == (True, [])
    assert value["undispatched"] > 30 * 100
    assert later.exit_code == 0
    assert "wait for" not in later.output


@pytest.mark.parametrize("lost", ["consumequeue/Orders/0", "index"])
def test_what_the_job_has_dispatched_and_is_gone_is_damage(followed, lost):
    followed.append(0, 20)
    followed.dispatch()
    followed.append(20, 30)
    for file in (followed.root / lost).iterdir():
        file.unlink()

    result = followed.check("--output", "json")

    advice = {one["advice"] for one in json.loads(result.stdout)["findings"]}
    assert result.exit_code == 1
    assert any("Run `orbitmq store rebuild`" in one for one in advice)


def test_a_wrong_unit_in_the_dispatched_part_is_damage(followed):
    followed.append(0, 20)
    followed.dispatch()
    followed.append(20, 30)
    file = followed.root / "consumequeue" / "Orders" / "1" / "00000000000000000000"
    data = bytearray(file.read_bytes())
    data[9 * 20 : 10 * 20] = bytes(20)  # the last one that the job wrote
    file.write_bytes(data)

    value = json.loads(followed.check("--output", "json").stdout)

    (finding,) = value["findings"]
    assert finding["kind"] == "queue"
    assert "Orders/1: unit 9: missing" in finding["cause"]


def test_keys_that_wait_for_the_job_are_not_missed_while_there_is_no_index_file(followed):
    with ConfStore(followed.folder, {"dispatch": "spark"}) as opened:
        plain = keyed(0)
        plain.properties = b"TAGS\x01t\x02"
        opened.store.append(plain)
    followed.dispatch()
    followed.append(1, 30)

    result = followed.check()

    assert not list((followed.root / "index").glob("*"))
    assert result.exit_code == 0, result.output


def said_in_another_opening(handover: Handover) -> None:
    done = handover.dispatched_offset()
    assert done is not None
    handover.save_dispatched_offset(replace(done, epoch=done.epoch - 1))


@pytest.mark.parametrize(
    "lose_word",
    [lambda handover: handover.done_path.unlink(), said_in_another_opening],
    ids=["gone", "of another opening"],
)
def test_without_the_word_of_the_job_the_rest_is_damage(followed, doctor, lose_word):
    followed.append(0, 20)
    lose_word(Handover(followed.root))

    damaged = followed.check()
    finding = doctor.one("dispatch stands still", *followed.words)
    doctor.follow(finding)

    assert damaged.exit_code == 1
    assert finding["command"].startswith("orbitmq store rebuild ")
    assert doctor.fine(*followed.words)


def test_terms_that_cannot_be_read_are_told(followed):
    followed.append(0, 20)
    (followed.root / "orbitmq.dispatch" / "terms").write_text("{")

    value = json.loads(followed.check("--output", "json").stdout)

    states = [one for one in value["findings"] if one["kind"] == "state"]
    assert states[0]["file"].endswith("orbitmq.dispatch/terms")
    assert "Start the broker again" in states[0]["advice"]


def test_a_rebuilt_store_waits_for_nobody(followed, doctor):
    followed.append(0, 20)

    rebuild_store(followed.root, {"maxHashSlotNum": "50", "maxIndexNum": "100"})

    assert doctor.fine(*followed.words)
