"""`orbitmq doctor DIR`, with advice that needs a broker: one runs on that directory and the advice is run."""

import os
import time
from datetime import datetime

import pytest

from cluster_commands import Cluster
from doctor.doctor_command import Doctor
from doctor.planted_store import HOUR, Planted, keyed
from orbitmq.client import Admin
from orbitmq.store.clean import disk_ratio

pytestmark = pytest.mark.feature("X5")


def follow_on_broker(planted: Planted, finding: dict) -> str:
    """Run what is advised against a broker on the store; the broker is gone afterwards."""
    with planted.broker() as broker:
        return Doctor(broker.namesrv).follow(finding)


@pytest.mark.feature("F105")
def test_messages_beyond_the_read_queues_are_told_until_these_are_as_many(planted, doctor):
    planted.write(*(keyed(n, queue_id=n % 3) for n in range(30)))
    planted.topics(Orders=(3, 3))
    fine = doctor.fine(*planted.words)
    planted.topics(Orders=(1, 3))

    finding = doctor.one("queues that consumers may not read", *planted.words)
    follow_on_broker(planted, finding)

    assert any(one.startswith("newest messages") for one in fine)
    assert finding["where"] == "Orders, queues 1 2"
    assert finding["numbers"] == {"messages": 20, "read_queues": 1}
    assert finding["command"] == "orbitmq topic create Orders --queues 3"
    assert doctor.fine(*planted.words)


@pytest.mark.feature("F105")
def test_a_topic_that_its_broker_does_not_know_is_told_until_it_is_created(planted, doctor):
    planted.write(*(keyed(n, queue_id=n % 2) for n in range(20)))
    planted.topics(Orders=(2, 2))
    assert doctor.fine(*planted.words)
    planted.topics(Other=(2, 2))

    finding = doctor.one("not in config/topics.json", *planted.words)
    with planted.broker() as broker:
        Doctor(broker.namesrv).follow(finding)
        read = Cluster(broker).consume("Orders", "readers", 20)

    assert (finding["where"], finding["numbers"]) == ("Orders", {"messages": 20})
    assert len(read) == 20
    assert doctor.fine(*planted.words)


@pytest.mark.feature("F106")
@pytest.mark.parametrize(
    ("offset", "what", "numbers"),
    [
        (50, "above the last message", {"offset": 50, "max_offset": 20, "ahead": 30}),
        (20, "", {}),
        (0, "", {}),
    ],
    ids=["above", "at the end", "at the start"],
)
def test_a_group_above_the_last_message_of_a_directory_is_told_until_it_is_reset(
    planted, doctor, offset, what, numbers
):
    planted.write(*(keyed(n) for n in range(20)))
    planted.topics(Orders=(1, 1))
    planted.offsets(readers=offset)
    if not what:
        assert doctor.fine(*planted.words)
        return

    finding = doctor.one(what, *planted.words)
    follow_on_broker(planted, finding)

    assert finding["where"] == "group readers, Orders, queue 0"
    assert finding["numbers"] == numbers
    assert doctor.fine(*planted.words)


@pytest.mark.feature("F106")
def test_a_group_below_the_first_message_of_a_directory_is_told_until_it_is_reset(planted, doctor):
    planted.write(*(keyed(n, size=1_000) for n in range(200)))
    planted.topics(Orders=(1, 1))
    planted.offsets(readers=3)
    assert doctor.fine(*planted.words)
    first, *_ = sorted((planted.root / "commitlog").iterdir())
    first.unlink()

    finding = doctor.one("below the first message", *planted.words)
    follow_on_broker(planted, finding)

    lost = finding["numbers"]["deleted_unread"]
    assert finding["numbers"] == {"offset": 3, "min_offset": lost + 3, "deleted_unread": lost}
    assert lost > 20
    assert doctor.fine(*planted.words)


@pytest.mark.feature("F108")
def test_the_advice_for_a_full_disk_changes_the_running_broker(planted, doctor):
    if disk_ratio(planted.folder) <= 0.1:
        pytest.skip("the disk of the tests is too empty for the lowest limit that RocketMQ allows")
    planted.write(keyed(1), diskMaxUsedSpaceRatio=10)

    with planted.broker() as broker, Admin(broker.namesrv) as admin:
        found = [f for f in doctor.look(*planted.words) if f["subject"] == "disk"]
        before = admin.broker_config(broker.address)["fileReservedTime"]
        doctor.follow(found[0])
        after = admin.broker_config(broker.address)["fileReservedTime"]

    assert (before, after) == ("72", "36")


@pytest.mark.feature("F108")
def test_the_advice_for_a_group_that_will_lose_messages_shows_how_far_behind_it_is(planted, doctor):
    later = (datetime.now().astimezone().hour + 12) % 24  # the broker itself deletes nothing now
    given = {"fileReservedTime": 1, "deleteWhen": f"{later:02}"}
    planted.write(*(keyed(n, size=1_000) for n in range(200)), **given)
    first, *_ = sorted((planted.root / "commitlog").iterdir())
    os.utime(first, (time.time() - 2 * HOUR,) * 2)
    planted.topics(Orders=(1, 1))
    planted.offsets(late=10)

    with planted.broker() as broker:
        finding = doctor.one("about to lose", *planted.words)
        shown = Doctor(broker.namesrv).follow(finding)

        with Admin(broker.namesrv) as admin:
            admin.reset_offsets("late", "Orders", "latest")
    rest = doctor.fine(*planted.words)

    assert finding["command"] == "orbitmq group progress late"
    assert "190" in shown  # its lag
    assert rest
