"""`orbitmq group watch` on a live broker: members come, go and die, and the command says what that cost."""

import threading
from typing import Any

import pytest

from orbitmq.cli import _group_watch
from orbitmq.client import Admin, Consumer
from rebalance_world import (
    BY_NOTICE,
    Member,
    instance,
    member_process,
    moves,
    wait_shares,
    wait_until,
    watching,
)

pytestmark = pytest.mark.feature("F116")


def bounds(rebalance: dict[str, Any], queue_id: int, name: str) -> tuple[int, int]:
    (one,) = [
        one for one in rebalance["moved"] if (one["topic"], one["queue_id"]) == ("Orders", queue_id)
    ]
    return one[f"{name}_min"], one[f"{name}_max"]


def test_members_come_go_and_are_restarted_and_each_time_the_command_says_so(cluster):
    cluster.create("Orders", queues=4)
    cluster.output("group", "create", "readers")
    with Member(cluster.namesrv, "readers", "Orders", "a", **BY_NOTICE) as one:
        wait_until(lambda: one.queues == [0, 1, 2, 3] and one.has_retry_queue)
        with watching(cluster.namesrv, "readers") as watch:
            with Member(cluster.namesrv, "readers", "Orders", "b", **BY_NOTICE) as two:
                wait_shares((one, [0, 1]), (two, [2, 3]))
                came = watch.next_move()
            went = watch.next_move()
            one.consumer.close()
            left = watch.next()
            one.consumer.open()
            back = watch.next_move()
            code, errors = watch.interrupt()

    assert (watch.start["event"], len(watch.start["queues"])) == ("start", 5)
    assert (list(map(instance, came["joined"])), came["left"]) == (["b"], [])
    assert moves(came) == [(2, "a", "b"), (3, "a", "b")]
    least, most = bounds(came, 2, "pause_ms")
    assert least == most  # both members said when
    assert (list(map(instance, went["left"])), went["joined"]) == (["b"], [])
    assert moves(went) == [(2, "b", "a"), (3, "b", "a")]
    assert (left["members"], len(left["unread"])) == ([], 5)
    assert moves(back) == [(queue, "a", "a") for queue in range(4)]
    assert bounds(back, 0, "duplicates") == (0, 0)
    assert (code, "rebalances seen" in errors) == (0, True)


def test_what_a_killed_member_had_comes_twice_and_in_a_burst(cluster):
    """It hangs at all 12 messages of its queue; 8 more come when it is dead."""
    cluster.create("Orders", queues=2)
    cluster.output("group", "create", "readers", "--no-notices")
    came = []

    def handle(message):
        came.append(message.queue_id)

    slow = {**BY_NOTICE, "rebalance_interval_ms": 1_000}
    with Member(cluster.namesrv, "readers", "Orders", "a", handle, **slow) as one:
        wait_until(lambda: one.queues == [0, 1] and one.has_retry_queue)
        with member_process(cluster.namesrv, "readers", "Orders", "b", "hang") as process:
            wait_shares((one, [0]))
            cluster.send("Orders", *["m"] * 24)
            lines = [process.stdout.readline() for _ in range(12)]
            with watching(cluster.namesrv, "readers") as watch:
                process.kill()
                process.wait()
                cluster.send("Orders", *["m"] * 16)
                died = watch.next_move()
                wait_until(lambda: came.count(1) == 20)

    assert lines == ["1\n"] * 12
    assert (list(map(instance, died["left"])), moves(died)) == (["b"], [(1, "b", "a")])
    least, most = bounds(died, 1, "duplicates")
    assert least <= 12 <= most <= 20
    least, most = bounds(died, 1, "burst")
    assert 12 <= least <= most <= 20
    assert bounds(died, 1, "pause_ms")[1] > 0


def test_what_a_member_hands_over_in_the_middle_of_its_work_is_counted_exactly(cluster):
    cluster.create("Orders", queues=2)
    cluster.output("group", "create", "readers")
    free, began, heir = threading.Event(), [], []

    def hang(message):
        began.append(message.queue_id)
        free.wait(30)

    given = {**BY_NOTICE, "handover_wait_ms": 50}
    with Member(cluster.namesrv, "readers", "Orders", "a", hang, **given) as one:
        wait_until(lambda: one.queues == [0, 1] and one.has_retry_queue)
        cluster.send("Orders", *["m"] * 10)
        wait_until(lambda: began.count(1) == 5)
        with watching(cluster.namesrv, "readers") as watch:
            second = Member(
                cluster.namesrv,
                "readers",
                "Orders",
                "b",
                lambda m: heir.append(m.queue_id),
                **given,
            )
            with second:
                came = watch.next_move()
                wait_until(lambda: len(heir) == 5)
                free.set()

    assert moves(came) == [(1, "a", "b")]
    assert (bounds(came, 1, "duplicates"), bounds(came, 1, "burst")) == ((5, 5), (5, 5))


def test_it_goes_on_when_the_broker_was_away(cluster):
    cluster.create("Orders", queues=2)
    cluster.output("group", "create", "readers")
    given = {"rebalance_interval_ms": 100, "heartbeat_interval_ms": 100}
    with Member(cluster.namesrv, "readers", "Orders", "a", **given) as one:
        wait_until(lambda: one.queues == [0, 1] and one.has_retry_queue)
        with watching(cluster.namesrv, "readers") as watch:
            with cluster.broker.down():
                failed = watch.next_note("no look at readers: ")
            watch.next_note("readers can be looked at again")
            with Member(cluster.namesrv, "readers", "Orders", "b", **given):
                wait_until(lambda: one.queues == [0])
                assert moves(watch.next_move())
            code, _ = watch.interrupt()

    assert failed.endswith("; trying again\n")
    assert code == 0


def test_people_get_a_table(cluster, monkeypatch):
    cluster.create("Orders", queues=2)
    cluster.output("group", "create", "readers")
    given = {**BY_NOTICE, "handover_wait_ms": 0}
    with Member(cluster.namesrv, "readers", "Orders", "a", **given) as one:
        wait_until(lambda: one.queues == [0, 1] and one.has_retry_queue)
        two = Member(cluster.namesrv, "readers", "Orders", "b", **given)
        started = _group_watch.print_start
        monkeypatch.setattr(
            _group_watch, "print_start", lambda *words: (started(*words), two.consumer.open())
        )
        words = ["group", "watch", "readers", "--interval", 0.05, "--count", 1, "--for", 20]
        result = cluster.command(*words)
        two.consumer.close()

    assert result.exit_code == 0
    assert "watching readers: 1 member, 3 queues" in result.stderr
    assert "joined 127.0.0.1@b" in result.stdout
    words = [line.split() for line in result.stdout.splitlines()]
    (row,) = [line for line in words if line[:1] == ["Orders"]]
    assert row[:5] == ["Orders", "broker-a", "1", "127.0.0.1@a", "127.0.0.1@b"]


def test_it_ends_after_its_time_and_refuses_what_cannot_be_watched(cluster):
    cluster.create("Orders", queues=1)
    cluster.output("group", "create", "readers")

    quiet = cluster.command("group", "watch", "readers", "--interval", 0.02, "--for", 0.1)
    unknown = cluster.command("group", "watch", "nobody")
    with (
        Consumer(cluster.namesrv, "all", "Orders", lambda message: None, broadcasting=True),
        Admin(cluster.namesrv) as admin,
    ):
        wait_until(lambda: admin.consumers("all").is_online)
        broadcasts = cluster.command("group", "watch", "all")

    assert (quiet.exit_code, "0 rebalances seen" in quiet.stderr) == (0, True)
    assert (unknown.exit_code, "no broker knows the group" in unknown.stderr) == (1, True)
    assert (broadcasts.exit_code, "none moves" in broadcasts.stderr) == (1, True)
