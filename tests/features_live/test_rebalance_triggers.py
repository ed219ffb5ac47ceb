"""What makes the members of a group share its queues anew; each trigger alone, by notice and by interval."""

import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from cluster_commands import Cluster
from orbitmq.client import Admin
from orbitmq.client.core.config import local_ip
from orbitmq.testing import Broker
from orbitmq.wire.bodies.heartbeat import ConsumerData, HeartbeatData, Subscription
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command
from orbitmq.wire.frame import encode_command
from rebalance_world import (
    BY_INTERVAL,
    BY_NOTICE,
    Member,
    member_process,
    wait_shares,
    wait_until,
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Broker() as broker:
        yield Cluster(broker)


@dataclass
class Group:
    """A group of members a and b with the 8 queues of a topic, and how its members hear of changes."""

    cluster: Cluster
    name: str
    topic: str
    mode: str

    def member(self, name: str, **given: Any) -> Member:
        namesrv = self.cluster.namesrv
        settings = BY_INTERVAL if self.mode == "interval" else BY_NOTICE
        return Member(namesrv, self.name, self.topic, name, **(settings | given))

    def process(self, name: str) -> AbstractContextManager[Any]:
        return member_process(self.cluster.namesrv, self.name, self.topic, name)

    def set_queues(self, count: int) -> None:
        self.cluster.create(self.topic, queues=count)


def make_group(cluster: Cluster, mode: str) -> Group:
    """Make a group whose members hear by a notice only, by their intervals only, or not at all."""
    group = Group(cluster, cluster.name("readers"), cluster.name("Orders"), mode)
    words = [] if mode == "notice" else ["--no-notices"]
    cluster.output("group", "create", group.name, *words)
    group.set_queues(8)
    return group


@contextmanager
def two_members(group: Group) -> Iterator[tuple[Member, Member]]:
    """Have members a and b share the queues, and nothing more to come of that."""
    with ExitStack() as stack:
        one, two = (stack.enter_context(group.member(name)) for name in "ab")
        if group.mode == "neither":  # nobody tells a that b came
            one.consumer.opened_loop.call(one.consumer._inner.on_members_changed)
        wait_shares((one, [0, 1, 2, 3]), (two, [4, 5, 6, 7]))
        wait_until(lambda: one.has_retry_queue)  # from then on every round of both is complete
        for member in (one, two):
            member.reasons()
        yield one, two


# --- the triggers: each is a member c that comes or goes, or a topic that changes ---


@contextmanager
def comes(group: Group) -> Iterator[Callable[[], None]]:
    with ExitStack() as stack:
        yield lambda: stack.enter_context(group.member("c")) and None


@contextmanager
def goes(group: Group) -> Iterator[Callable[[], None]]:
    with group.member("c") as third:
        yield third.consumer.close


@contextmanager
def dies(group: Group) -> Iterator[Callable[[], None]]:
    with group.process("c") as process:
        yield process.kill


@contextmanager
def loses_its_connection(group: Group) -> Iterator[Callable[[], None]]:
    """A member that was only ever a heartbeat; its connection is reset."""
    host, _, port = group.cluster.broker.address.rpartition(":")
    topics = (group.topic, f"%RETRY%{group.name}")
    subscriptions = [Subscription(topic=topic, sub_string="*", sub_version=1) for topic in topics]
    data = HeartbeatData(
        client_id=f"{local_ip(group.cluster.namesrv)}@c",
        consumer_data_set=[
            ConsumerData(group_name=group.name, subscription_data_set=subscriptions)
        ],
    )
    with socket.create_connection((host, int(port)), timeout=10) as peer:
        peer.sendall(encode_command(Command(RequestCode.HEART_BEAT, {}, data.encode())))
        assert peer.recv(4)

        def reset() -> None:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            peer.close()

        yield reset


THREE_MEMBERS = ([0, 1, 2], [3, 4, 5])
TWO_MEMBERS = ([0, 1, 2, 3], [4, 5, 6, 7])


@pytest.mark.feature("F115")
@pytest.mark.parametrize("mode", ["notice", "interval"])
@pytest.mark.parametrize("trigger", [comes, goes, dies, loses_its_connection])
def test_all_members_share_anew_when_a_member(trigger, mode, cluster):
    group = make_group(cluster, mode)
    with two_members(group) as (one, two), trigger(group) as act:
        before, after = THREE_MEMBERS, TWO_MEMBERS
        if trigger is comes:
            before, after = after, before
        else:
            wait_shares((one, before[0]), (two, before[1]))
            one.reasons(), two.reasons()

        act()
        wait_shares((one, after[0]), (two, after[1]))

        assert (one.reasons(), two.reasons()) == ({mode}, {mode})


@pytest.mark.feature("F115")
@pytest.mark.parametrize("mode", ["notice", "interval"])
@pytest.mark.parametrize(
    ("queues", "shares"),
    [(12, (range(6), range(6, 12))), (4, (range(2), range(2, 4)))],
    ids=["more", "fewer"],
)
def test_all_members_share_anew_when_a_topic_has(queues, shares, mode, cluster):
    group = make_group(cluster, mode)
    with two_members(group) as (one, two):
        group.set_queues(queues)
        wait_shares((one, list(shares[0])), (two, list(shares[1])))

        # With a notice a member asks for the route, and that changed.
        assert "route" in one.reasons() & two.reasons()


@pytest.mark.feature("F115")
def test_without_a_notice_nothing_happens_before_the_interval(cluster):
    group = make_group(cluster, "neither")
    with two_members(group) as (one, two), group.member("c") as third:
        group.set_queues(12)
        wait_until(lambda: third.queues)
        with Admin(cluster.namesrv) as admin:
            for member in (one, two):  # whatever the broker had to say came before this answer
                admin.running_info(group.name, member.consumer.client_id)

        assert (one.reasons(), two.reasons()) == (set(), set())
        assert (one.queues, two.queues) == TWO_MEMBERS


@pytest.mark.feature("F115")
def test_a_killed_member_that_is_started_with_the_same_name_gets_its_queues_back(cluster):
    group = make_group(cluster, "notice")
    with group.member("a") as one, group.member("c") as three:
        with group.process("b") as process:
            wait_shares((one, [0, 1, 2]), (three, [6, 7]))
            process.kill()
            wait_shares((one, [0, 1, 2, 3]), (three, [4, 5, 6, 7]))
        with group.member("b") as two:
            wait_shares((one, [0, 1, 2]), (two, [3, 4, 5]), (three, [6, 7]))


@pytest.mark.feature("F115")
def test_the_same_name_at_another_address_is_another_member(cluster):
    """The address is a part of the client id: members are sorted by it first."""
    group = make_group(cluster, "notice")
    with group.member("m", client_ip="10.0.0.2") as one:
        with group.member("x", client_ip="10.0.0.1") as two:
            wait_shares((two, [0, 1, 2, 3]), (one, [4, 5, 6, 7]))
        with group.member("x", client_ip="10.0.0.3") as two:
            wait_shares((one, [0, 1, 2, 3]), (two, [4, 5, 6, 7]))


@pytest.mark.feature("F115")
def test_a_topic_that_name_servers_forgot_is_known_again_when_it_is_created_anew(cluster):
    topic = cluster.create(cluster.name("Orders"), queues=3)
    with Admin(cluster.namesrv) as admin:
        admin.opened_loop.run(admin._inner._namesrv.delete_topic(topic))
    assert cluster.command("topic", "stats", topic).exit_code != 0

    cluster.create(topic, queues=3)

    assert len(cluster.json("topic", "stats", topic)["queues"]) == 3
