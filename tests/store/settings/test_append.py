"""What an append may be and becomes, as a broker.conf says."""

import threading

import pytest

from conf_store import ConfStore, wires
from orbitmq.format.client_batch import ClientMessage, encode_client_batch
from orbitmq.format.property_crc import property_crc_matches
from orbitmq.message import AppendRequest, AppendStatus
from orbitmq.testing.builders import HOST_V4, LONG_TOPIC, delayed_request, make_request
from orbitmq.testing.fake_clock import FakeClock

SECONDS_MAX = 30


@wires("maxMessageSize")
@pytest.mark.parametrize(("given", "limit"), [({}, 4_194_304), ({"maxMessageSize": 1000}, 1000)])
def test_a_body_may_have_so_many_bytes_and_not_one_more(tmp_path, given, limit):
    with ConfStore(tmp_path, {"mappedFileSizeCommitLog": 16 << 20, **given}) as case:
        for _ in range(2):  # the second one takes the fast path
            taken = case.store.append(make_request(0, body=bytes(limit)))
            refused = case.store.append(make_request(0, body=bytes(limit + 1)))

            assert taken.status is AppendStatus.PUT_OK
            assert refused.status is AppendStatus.MESSAGE_ILLEGAL


@wires("autoMessageVersionOnTopicLen")
@pytest.mark.parametrize(
    ("given", "status"),
    [
        ({}, AppendStatus.PUT_OK),
        ({"autoMessageVersionOnTopicLen": False}, AppendStatus.MESSAGE_ILLEGAL),
    ],
)
def test_a_long_topic_needs_the_second_version_of_records(tmp_path, given, status):
    with ConfStore(tmp_path, given) as case:
        assert case.store.append(make_request(0, LONG_TOPIC)).status is status


@wires("enabledAppendPropCRC")
@pytest.mark.parametrize(
    ("given", "has_crc"), [({}, False), ({"enabledAppendPropCRC": True}, True)]
)
def test_records_end_with_a_crc_if_that_is_switched_on(tmp_path, given, has_crc):
    open_end = AppendRequest("T", 0, b"x", properties=b"KEYS\x01k", born_host=HOST_V4)
    batch = AppendRequest("T", 0, encode_client_batch([ClientMessage(b"x", b"", 0)] * 2))
    with ConfStore(tmp_path, given) as case:
        results = case.append(make_request(0, queue_id=0), make_request(1, queue_id=0), open_end)
        results += case.store.append_many([make_request(2, queue_id=0)])
        results += case.store.append_client_batch(batch)

        for result in results:
            record = case.store.record_at(result.log_offset)
            assert ("__CRC32#" in record.property_map) is has_crc
            matches = has_crc and property_crc_matches(case.store.record_bytes(result.log_offset))
            assert matches is has_crc
        assert case.store.record_at(results[2].log_offset).keys == ["k"]


@wires("enabledAppendPropCRC")
@pytest.mark.parametrize(
    ("given", "room"), [({}, 32_767), ({"enabledAppendPropCRC": True}, 32_747)]
)
def test_a_crc_takes_its_room_from_the_properties(tmp_path, given, room):
    with ConfStore(tmp_path, given) as case:
        statuses = []
        for size in (room, room + 1):
            properties = b"K\x01" + b"v" * (size - 3) + b"\x02"
            statuses.append(case.store.append(AppendRequest("T", 0, b"x", properties)).status)

        assert statuses == [AppendStatus.PUT_OK, AppendStatus.PROPERTIES_SIZE_EXCEEDED]


@wires("messageDelayLevel")
@pytest.mark.parametrize(
    ("given", "level", "stored_level", "delay_ms"),
    [
        ({}, 3, 3, 10_000),
        ({}, 99, 18, 7_200_000),
        ({"messageDelayLevel": "1s 7s 1m"}, 2, 2, 7_000),
        ({"messageDelayLevel": "1s 7s 1m"}, 99, 3, 60_000),
    ],
)
def test_a_delayed_message_waits_as_long_as_its_level_says(
    tmp_path, given, level, stored_level, delay_ms
):
    with ConfStore(tmp_path, given) as case:
        (stored,) = case.append(delayed_request(0, "T", level=level))

        (unit,) = case.store.units("SCHEDULE_TOPIC_XXXX", stored_level - 1, 0, 1)
        assert unit.tag_hash == stored.store_ms + delay_ms  # when it is due


@wires("enableLmq", "enableMultiDispatch")
@pytest.mark.parametrize(
    ("given", "reached"),
    [
        ({}, False),
        ({"enableLmq": True}, False),
        ({"enableMultiDispatch": True}, False),
        ({"enableLmq": True, "enableMultiDispatch": True}, True),
    ],
)
def test_a_message_reaches_light_queues_if_both_switches_are_on(tmp_path, given, reached):
    with ConfStore(tmp_path, given) as case:
        (stored,) = case.append(make_request(0, properties={"INNER_MULTI_DISPATCH": "%LMQ%a"}))

        assert (case.store.max_offset("%LMQ%a", 0) == 1) is reached
        record = case.store.record_at(stored.log_offset)
        assert ("INNER_MULTI_QUEUE_OFFSET" in record.property_map) is reached


@wires("maxLmqConsumeQueueNum")
@pytest.mark.parametrize("limit", [3, 7])  # the default, 20 000, is that of the table
def test_there_are_so_many_light_queues_and_not_one_more(tmp_path, limit):
    given = {"enableLmq": True, "enableMultiDispatch": True, "maxLmqConsumeQueueNum": limit}
    with ConfStore(tmp_path, given) as case:
        case.append(light_request(",".join(f"%LMQ%{n}" for n in range(limit))))

        again = case.store.append(light_request("%LMQ%0"))
        one_more = case.store.append(light_request("%LMQ%more"))

        assert again.status is AppendStatus.PUT_OK
        assert one_more.status is AppendStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED


def light_request(queues: str) -> AppendRequest:
    properties = f"INNER_MULTI_DISPATCH\x01{queues}\x02".encode()
    return AppendRequest("T", 0, b"x", properties=properties, born_host=HOST_V4)


@wires("maxMessageSize")
@pytest.mark.parametrize(
    ("size", "status"), [(1000, AppendStatus.PUT_OK), (1001, AppendStatus.MESSAGE_ILLEGAL)]
)
def test_the_whole_record_counts_for_a_message_to_light_queues(tmp_path, size, status):
    given = {"enableLmq": True, "enableMultiDispatch": True, "maxMessageSize": 1000}
    request = light_request("%LMQ%a")
    request.body = bytes(size - 91 - len("T") - len(request.properties))
    with ConfStore(tmp_path, given) as case:
        assert case.store.append(request).status is status


class AskedClock(FakeClock):
    """A clock that tells when a certain thread has looked at it."""

    def __init__(self) -> None:
        super().__init__()
        self.asker: threading.Thread | None = None
        self.asked = threading.Event()

    def now_ms(self) -> int:
        now_ms = super().now_ms()
        if threading.current_thread() is self.asker:
            self.asked.set()
        return now_ms


@wires("osPageCacheBusyTimeOutMills")
@pytest.mark.parametrize(
    ("given", "held_ms", "status"),
    [
        ({}, 1000, AppendStatus.PUT_OK),
        ({}, 1001, AppendStatus.OS_PAGE_CACHE_BUSY),
        ({"osPageCacheBusyTimeOutMills": 50}, 50, AppendStatus.PUT_OK),
        ({"osPageCacheBusyTimeOutMills": 50}, 51, AppendStatus.OS_PAGE_CACHE_BUSY),
    ],
)
@pytest.mark.feature("F119")
@pytest.mark.parametrize("many", [False, True], ids=["one", "many"])
@pytest.mark.parametrize("known", [True, False], ids=["fast path", "first of its topic"])
def test_an_append_is_refused_when_another_has_waited_for_the_disk_for_too_long(
    tmp_path, monkeypatch, given, held_ms, status, known, many
):
    clock = AskedClock()
    with ConfStore(tmp_path, given, clock=clock) as case:
        case.append(make_request(0, "Known", 0, body_bytes=100))
        results = []
        allocate = case.disk.allocate

        def second_append() -> None:
            request = make_request(1, "Known" if known else "New", 0)
            if many:
                results.extend(case.store.append_many([request, request]))
            else:
                results.append(case.store.append(request))

        def slow_allocate(*args: object) -> None:
            monkeypatch.setattr(case.disk, "allocate", allocate)
            clock.advance(held_ms)
            clock.asker.start()
            assert clock.asked.wait(SECONDS_MAX)  # it has seen how long the lock is held
            allocate(*args)

        clock.asker = threading.Thread(target=second_append)
        monkeypatch.setattr(case.disk, "allocate", slow_allocate)

        case.append(make_request(2, "Known", 0, body_bytes=65_200))  # needs the next segment

        clock.asker.join(SECONDS_MAX)
        assert [result.status for result in results] == [status] * (2 if many else 1)
        refused = len(results) if status is AppendStatus.OS_PAGE_CACHE_BUSY else 0
        assert case.store.statistics().busy_messages == refused
