"""The table of next queue offsets."""

from orbitmq.store.log.queue_offsets import QueueOffsets


def test_an_unknown_queue_starts_at_zero_and_is_remembered_only_when_used():
    offsets = QueueOffsets()

    assert offsets.next_offset("T", 0) == 0
    assert not offsets.routes
    offsets.route("T", 0).next_offset += 3
    assert offsets.next_offset("T", 0) == 3
    assert list(offsets.routes) == [("T", 0)]


def test_a_topic_is_forgotten():
    offsets = QueueOffsets()
    for queue in (("A", 0), ("A", 1), ("B", 0)):
        offsets.route(*queue).next_offset = 7

    offsets.remove_topic("A")

    assert list(offsets.routes) == [("B", 0)]
    assert offsets.next_offset("A", 1) == 0


def test_light_queues_are_counted():
    offsets = QueueOffsets()
    offsets.route("%LMQ%a", 0)
    offsets.route("T", 0)

    assert offsets.light_room([("%LMQ%a", 0), ("%LMQ%b", 0), ("T", 1)], 2)
    assert not offsets.light_room([("%LMQ%b", 0), ("%LMQ%c", 0)], 2)
    offsets.route("%LMQ%b", 0)
    assert not offsets.light_room([("%LMQ%c", 0)], 2)
    offsets.remove_topic("%LMQ%a")
    assert offsets.light_room([("%LMQ%c", 0)], 2)
