"""What follows from looks at a group: which queues moved, and the bounds of what that cost."""

from dataclasses import astuple

import pytest

from orbitmq.client.rebalance.report import GivenUpNote, MemberNotes, TakenNote
from orbitmq.client.rebalance.sample import GroupSample, MemberSample, QueueReach
from orbitmq.client.rebalance.watch import (
    PATIENT_LOOKS,
    RESTLESS_MS,
    QueueMove,
    Rebalance,
    RebalanceWatch,
)
from orbitmq.wire.bodies.message_queue import MessageQueue
from orbitmq.wire.bodies.running_info import ConsumerRunningInfo, ProcessQueueInfo

ROUND_TRIP_MS = 2
Q0, Q1 = (MessageQueue("Orders", "broker-a", number) for number in range(2))

pytestmark = pytest.mark.feature("F116")


def look(
    at_ms: float,
    reading: dict[str, dict[MessageQueue, int]],
    reach: dict[MessageQueue, tuple[int, int]] | None = None,
    *,
    notes: dict[str, MemberNotes] | None = None,
    started: str = "1",
    silent: tuple[str, ...] = (),
) -> GroupSample:
    """Return a look that was asked for then; `reading`: client id -> queue -> what it is done with."""
    end_ms = at_ms + ROUND_TRIP_MS
    members = {
        name: MemberSample(
            name, started, at_ms, end_ms, dict(queues), (notes or {}).get(name, MemberNotes())
        )
        for name, queues in reading.items()
    }
    ends = {queue: QueueReach(*offsets) for queue, offsets in (reach or {}).items()}
    return GroupSample(round(at_ms), at_ms, end_ms, members, set(silent), ends)


def report(*looks: GroupSample) -> Rebalance:
    """Return the one rebalance that these looks show."""
    watch = RebalanceWatch(looks[0], settle_ms=50)
    found = [one for sample in looks[1:] if (one := watch.see(sample)) is not None]
    assert len(found) == 1
    return found[0]


def figures(move: QueueMove) -> list[tuple[float, float] | None]:
    bounds = (move.pause_ms, move.duplicates, move.burst)
    return [None if one is None else astuple(one) for one in bounds]


def test_a_member_that_comes_takes_a_queue_over():
    reach = {Q0: (5, 5), Q1: (5, 5)}
    one = report(
        look(1_000, {"a": {Q0: 5, Q1: 5}}, reach),
        look(1_100, {"a": {Q0: 5}, "b": {Q1: 5}}, reach),
        look(1_200, {"a": {Q0: 5}, "b": {Q1: 5}}, reach),
    )

    assert (one.joined, one.left, one.restarted, one.members) == (["b"], [], [], ["a", "b"])
    assert [(move.queue, move.source, move.target) for move in one.moves] == [(Q1, "a", "b")]
    assert figures(one.moves[0]) == [(0, 102), (0, 0), (0, 0)]
    assert (one.at_ms, one.duration_ms) == (1_100, 102)


def test_nothing_is_said_while_nothing_changes():
    watch = RebalanceWatch(look(1_000, {"a": {Q0: 0}}, {Q0: (0, 0)}))

    assert watch.see(look(1_100, {"a": {Q0: 3}}, {Q0: (3, 3)})) is None
    assert watch.see(look(1_200, {"a": {Q0: 3}}, {Q0: (3, 3)})) is None
    assert watch.owners == {Q0: "a"}


def test_members_that_never_agree_are_told_before_they_do():
    """A queue changes hands with each look, faster than anything settles."""
    watch = RebalanceWatch(look(0, {"a": {Q0: 0}, "b": {}}, {Q0: (0, 0)}), settle_ms=500)
    looks = [
        look(at_ms, {"a": {}, "b": {Q0: 0}} if number % 2 else {"a": {Q0: 0}, "b": {}})
        for number, at_ms in enumerate(range(100, 2 * RESTLESS_MS + 400, 100), start=1)
    ]

    found = [one for sample in looks if (one := watch.see(sample)) is not None]

    assert [one.settled for one in found] == [False, False]
    assert all(len(one.moves) > 100 for one in found)
    assert report(looks[0], looks[1], look(400, {"a": {Q0: 0}, "b": {}})).settled


def test_how_long_nobody_read_lies_between_looks():
    """Held at 1000, not any more at 1102; nobody at 1200, somebody at 1302: 98 to 302 ms."""
    one = report(
        look(1_000, {"a": {Q0: 5}, "b": {}}, {Q0: (5, 5)}),
        look(1_100, {"b": {}}, {Q0: (5, 5)}),
        look(1_200, {"b": {}}, {Q0: (5, 5)}),
        look(1_300, {"b": {Q0: 5}}, {Q0: (5, 5)}),
        look(1_400, {"b": {Q0: 5}}, {Q0: (5, 5)}),
    )

    assert one.left == ["a"]
    assert figures(one.moves[0])[0] == (98, 302)


def test_duplicates_and_burst_of_members_that_note_nothing_lie_between_offsets():
    """a was done with 40 when it was last seen, 30 were stored; then 50 were there, later 60."""
    one = report(
        look(1_000, {"a": {Q0: 40}, "b": {}}, {Q0: (45, 30)}),
        look(1_100, {"b": {}}, {Q0: (50, 30)}),
        look(1_200, {"b": {Q0: 35}}, {Q0: (60, 35)}),
        look(1_300, {"b": {Q0: 60}}, {Q0: (60, 60)}),
    )

    _, duplicates, burst = figures(one.moves[0])
    assert duplicates == (40 - 35, 50 - 30)
    assert burst == (50 - 35, 60 - 30)


def test_members_that_tell_what_they_noted_make_all_figures_exact():
    """a gave Q0 up 60 ms before its answer, at offset 20 and with 3 in hand; b began 10 ms ago at 18."""
    given_up = GivenUpNote(Q0, 20, 3, 60)
    taken = TakenNote(Q0, 18, 10)
    notes = {"a": MemberNotes([], [given_up]), "b": MemberNotes([taken], [])}
    one = report(
        look(1_000, {"a": {Q0: 20}, "b": {}}, {Q0: (30, 18)}),
        look(1_100, {"a": {}, "b": {Q0: 18}}, {Q0: (30, 20)}, notes=notes),
        look(1_200, {"a": {}, "b": {Q0: 30}}, {Q0: (30, 30)}, notes=notes),
    )

    assert figures(one.moves[0]) == [(50, 50), (3 + 2, 3 + 2), (12, 12)]
    assert all(bounds.exact for bounds in (one.moves[0].pause_ms, one.moves[0].burst))


def test_an_old_note_is_not_taken_for_this_move():
    """Given up long before the last look at which a read the queue again."""
    notes = {"a": MemberNotes([], [GivenUpNote(Q0, 1, 7, 5_000)])}
    one = report(
        look(1_000, {"a": {Q0: 5}, "b": {}}, {Q0: (5, 5)}, notes=notes),
        look(1_100, {"a": {}, "b": {Q0: 5}}, {Q0: (5, 5)}, notes=notes),
        look(1_200, {"a": {}, "b": {Q0: 5}}, {Q0: (5, 5)}, notes=notes),
    )

    assert figures(one.moves[0]) == [(0, 102), (0, 0), (0, 0)]


def test_two_readers_at_once_are_no_pause():
    one = report(
        look(1_000, {"a": {Q0: 5}, "b": {}}, {Q0: (5, 5)}),
        look(1_100, {"a": {Q0: 5}, "b": {Q0: 5}}, {Q0: (5, 5)}),
        look(1_200, {"a": {}, "b": {Q0: 5}}, {Q0: (5, 5)}),
        look(1_300, {"a": {}, "b": {Q0: 5}}, {Q0: (5, 5)}),
    )

    assert [move.target for move in one.moves] == ["b"]
    assert figures(one.moves[0])[0] == (0, 102)


def test_a_member_that_was_restarted_with_its_name_gets_its_queues_from_itself():
    one = report(
        look(1_000, {"a": {Q0: 5}}, {Q0: (5, 5)}),
        look(1_100, {"a": {Q0: 5}}, {Q0: (5, 5)}, started="2"),
        look(1_200, {"a": {Q0: 5}}, {Q0: (5, 5)}, started="2"),
    )

    assert (one.joined, one.left, one.restarted) == ([], [], ["a"])
    assert [(move.source, move.target) for move in one.moves] == [("a", "a")]


def test_a_member_that_does_not_answer_keeps_what_it_had():
    watch = RebalanceWatch(look(1_000, {"a": {Q0: 5}, "b": {Q1: 5}}))

    assert watch.see(look(1_100, {"b": {Q1: 5}}, silent=("a",))) is None
    assert watch.see(look(1_200, {"b": {Q1: 5}}, silent=("a",))) is None
    assert watch.owners == {Q0: "a", Q1: "b"}


def test_a_queue_that_nobody_takes_is_told_after_a_while_and_its_pause_goes_on():
    watch = RebalanceWatch(look(1_000, {"a": {Q0: 5}, "b": {}}, {Q0: (5, 5)}), settle_ms=50)
    times = range(1_100, 1_100 + 100 * (PATIENT_LOOKS + 1), 100)

    told = [watch.see(look(time, {"b": {}}, {Q0: (5, 5)})) for time in times]
    watch.see(look(9_000, {"b": {Q0: 5}}, {Q0: (9, 5)}))
    later = watch.see(look(9_100, {"b": {Q0: 9}}, {Q0: (9, 9)}))

    assert [one is None for one in told] == [True] * PATIENT_LOOKS + [False]
    assert (told[-1].left, told[-1].moves, told[-1].unread) == (["a"], [], [Q0])
    assert (later.moves[0].source, later.moves[0].target) == ("a", "b")
    assert later.moves[0].pause_ms.most == 9_000 + ROUND_TRIP_MS - 1_000


def test_what_happens_before_it_has_settled_belongs_to_one_rebalance():
    """b joins at 1100 and takes its queue at 1500; nothing changes for half a second until 2100."""
    reach = {Q0: (5, 5), Q1: (5, 5)}
    watch = RebalanceWatch(look(1_000, {"a": {Q0: 5, Q1: 5}}, reach))
    looks = [look(time, {"a": {Q0: 5, Q1: 5}, "b": {}}, reach) for time in range(1_100, 1_500, 100)]
    looks += [look(time, {"a": {Q0: 5}, "b": {Q1: 5}}, reach) for time in range(1_500, 2_200, 100)]

    told = [(sample.at_ms, one) for sample in looks if (one := watch.see(sample)) is not None]

    ((at_ms, one),) = told
    assert (at_ms, one.joined, len(one.moves)) == (2_100, ["b"], 1)
    assert (one.at_ms, one.duration_ms) == (1_100, 502)


def test_a_group_that_everybody_left_is_told_at_once():
    one = report(
        look(1_000, {"a": {Q0: 5}}, {Q0: (5, 5)}),
        look(1_100, {}, {Q0: (5, 5)}),
        look(1_200, {}, {Q0: (5, 5)}),
    )

    assert (one.left, one.members, one.unread) == (["a"], [], [Q0])


def test_queues_that_are_added_have_no_source_and_queues_that_are_removed_no_reader():
    added = report(
        look(1_000, {"a": {Q0: 5}}, {Q0: (5, 5)}),
        look(1_100, {"a": {Q0: 5, Q1: 0}}, {Q0: (5, 5), Q1: (2, 0)}),
        look(1_200, {"a": {Q0: 5, Q1: 2}}, {Q0: (5, 5), Q1: (2, 2)}),
    )
    removed = report(
        look(1_000, {"a": {Q0: 5, Q1: 5}}, {Q0: (5, 5), Q1: (5, 5)}),
        look(1_100, {"a": {Q0: 5}}, {Q0: (5, 5)}),
        look(1_200, {"a": {Q0: 5}}, {Q0: (5, 5)}),
    )

    assert [(move.queue, move.source) for move in added.moves] == [(Q1, None)]
    assert figures(added.moves[0])[:2] == [None, None]
    assert (removed.moves, removed.removed, removed.unread) == ([], [Q1], [])


def test_a_member_without_queues_is_told_too():
    one = report(
        look(1_000, {"a": {Q0: 5}}, {Q0: (5, 5)}),
        look(1_100, {"a": {Q0: 5}, "b": {}}, {Q0: (5, 5)}),
        look(1_200, {"a": {Q0: 5}, "b": {}}, {Q0: (5, 5)}),
    )

    assert (one.joined, one.moves, one.unread) == (["b"], [], [])


def test_of_a_running_info_only_queues_that_are_not_dropped_count():
    info = ConsumerRunningInfo(
        properties={"PROP_CONSUMER_START_TIMESTAMP": "77", "orbitmq.rebalance": "nonsense"},
        mq_table={Q0: ProcessQueueInfo(commit_offset=-1), Q1: ProcessQueueInfo(droped=True)},
    )

    one = MemberSample.of("a", info, 1_000, 1_002)

    assert (one.identity, one.reading, one.notes) == (("a", "77"), {Q0: None}, MemberNotes())
