"""The commit log: what lies where after appends, and how it is found again."""

from dataclasses import replace

import pytest

from orbitmq.format.client_batch import ClientMessage, encode_client_batch
from orbitmq.format.properties import decode_properties, encode_properties
from orbitmq.format.property_crc import property_crc_matches
from orbitmq.format.record import BLANK, BLANK_MAGIC, decode_record, encode_record
from orbitmq.message import AppendRequest, AppendStatus, QueueType, SysFlag
from orbitmq.testing.builders import HOST_V4, HOST_V6, LONG_TOPIC, make_request
from store_parts import SMALL_SEGMENT, LogParts, small_config


@pytest.fixture
def parts(tmp_path):
    with LogParts(small_config(tmp_path)) as opened:
        yield opened


@pytest.mark.feature("F1")
def test_messages_of_all_topics_and_queues_lie_in_arrival_order_in_one_log(parts):
    requests = [make_request(n, f"Topic{n % 3}", n // 3 % 4, body_bytes=20) for n in range(60)]

    results = [parts.log.append_one(request) for request in requests]

    records = parts.records()
    assert [r.body for r in records] == [r.body for r in requests]
    assert [r.log_offset for r in records] == [r.log_offset for r in results]
    assert {(r.topic, r.queue_id) for r in records} == {
        (f"Topic{topic}", queue) for topic in range(3) for queue in range(4)
    }


def test_segments_are_named_by_their_start_and_have_the_exact_size(parts):
    for number in range(20):
        parts.log.append_one(make_request(number, body_bytes=500))

    files = sorted((parts.config.root / "commitlog").iterdir())
    assert [path.name for path in files[:3]] == [
        "00000000000000000000",
        "00000000000000004096",
        "00000000000000008192",
    ]
    assert {path.stat().st_size for path in files} == {SMALL_SEGMENT}


@pytest.mark.parametrize(
    "request_",
    [
        make_request(1),
        make_request(2, keys="a b", body=b""),
        make_request(3, LONG_TOPIC),
        make_request(4, born_host=HOST_V6),
        make_request(5, store_host=HOST_V6),
        make_request(6, born_host=HOST_V6, store_host=HOST_V6),
        make_request(7, sys_flag=SysFlag.COMPRESSED | 0x300),
        replace(make_request(8, sys_flag=SysFlag.COMMIT), prepared_offset=4711),
        make_request(9, sys_flag=SysFlag.COMMIT, born_host=HOST_V6),
    ],
    ids=[
        *("plain", "empty body", "version 2", "born v6", "store v6", "both v6", "compressed"),
        *("committed", "committed, born v6"),
    ],
)
@pytest.mark.parametrize("many", [False, True])
def test_a_record_is_what_the_format_module_would_write(parts, request_, many):
    parts.log.append_one(make_request(0))

    for _ in range(2):  # the second one knows topic and host already
        if many:
            (result,) = parts.log.append_many([request_])
        else:
            result = parts.log.append_one(request_)

        expected = encode_record(
            request_,
            log_offset=result.log_offset,
            queue_offset=result.queue_offset,
            store_ms=result.store_ms,
            store_host=parts.config.store_host,
        )
        assert result.status is AppendStatus.PUT_OK
        assert bytes(parts.log.read(result.log_offset, result.size)) == expected


@pytest.mark.feature("F7")
def test_a_message_that_does_not_fit_leaves_a_blank_and_goes_to_the_next_segment(parts):
    sizes = [parts.log.append_one(make_request(n, body_bytes=700)).size for n in range(4)]
    rest = SMALL_SEGMENT - sum(sizes)
    assert rest < max(sizes) + 8

    result = parts.log.append_one(make_request(4, body_bytes=900))

    assert result.log_offset == SMALL_SEGMENT
    blank = parts.log.read(sum(sizes), 8)
    assert BLANK.unpack(blank) == (rest, BLANK_MAGIC)
    assert [r.body for r in parts.records()] == [
        make_request(n, body_bytes=700).body for n in range(4)
    ] + [make_request(4, body_bytes=900).body]


@pytest.mark.parametrize(("spare", "rolls"), [(8, False), (7, True)])
def test_a_record_may_leave_exactly_the_eight_bytes_of_a_blank(parts, spare, rolls):
    overhead = parts.log.append_one(make_request(0, body=b"")).size
    body = b"x" * (SMALL_SEGMENT - 2 * overhead - spare)

    result = parts.log.append_one(make_request(0, body=body))

    assert (result.log_offset == SMALL_SEGMENT) is rolls


def test_stored_bytes_are_read_and_none_outside_of_the_log(parts):
    results = [parts.log.append_one(make_request(n, body_bytes=300)) for n in range(50)]

    for number, result in enumerate(results):
        record = decode_record(parts.log.read(result.log_offset, result.size))
        assert record.body == make_request(number, body_bytes=300).body
    for outside in (-1, -SMALL_SEGMENT, parts.log.written_offset, 10**12):
        assert parts.log.read(outside, 10) is None
    assert parts.log.read(results[-1].log_offset, results[-1].size + 1) is None


def test_queue_offsets_count_up_in_each_queue(parts):
    requests = [make_request(n, f"T{n % 2}", n % 3, body_bytes=10) for n in range(30)]
    mixed = parts.log.append_many(requests[:10])
    mixed += [parts.log.append_one(request) for request in requests[10:20]]
    mixed += parts.log.append_many(requests[20:])

    expected: dict[tuple[str, int], int] = {}
    for request, result in zip(requests, mixed, strict=True):
        key = (request.topic, request.queue_id)
        assert result.queue_offset == expected.get(key, 0)
        expected[key] = result.queue_offset + 1


@pytest.mark.parametrize("kind", [SysFlag.PREPARED, SysFlag.ROLLBACK])
def test_prepared_and_rolled_back_messages_have_no_queue_offset(parts, kind):
    parts.log.append_one(make_request(0, queue_id=0))

    result = parts.log.append_one(make_request(1, queue_id=0, sys_flag=kind))
    after = parts.log.append_one(make_request(2, queue_id=0, sys_flag=SysFlag.COMMIT))

    assert result.queue_offset == 0
    assert parts.records()[1].queue_offset == 0
    assert after.queue_offset == 1


def test_many_messages_cross_segments_and_a_refused_one_does_not_stop_the_rest(parts):
    requests = [make_request(n, body_bytes=600) for n in range(20)]
    requests[7] = make_request(7, "no/such/topic")

    results = parts.log.append_many(requests)

    assert [r.status for r in results].count(AppendStatus.PUT_OK) == 19
    assert results[7].status is AppendStatus.MESSAGE_ILLEGAL
    assert [r.body for r in parts.records()] == [
        request.body for number, request in enumerate(requests) if number != 7
    ]


def test_store_time_goes_on_from_what_recovery_found(tmp_path):
    with LogParts(small_config(tmp_path)) as parts:
        parts.log.resume(0, last_store_ms=parts.clock.now_ms() + 77)

        assert parts.log.append_one(make_request(0)).store_ms == parts.clock.now_ms() + 77


def test_an_inner_batch_is_one_record_that_takes_several_queue_offsets(tmp_path):
    types = {"Batch": QueueType.BATCH}
    with LogParts(small_config(tmp_path), topic_types=lambda t: types[t]) as parts:
        batch = make_request(
            0,
            "Batch",
            0,
            properties={"INNER_NUM": "5"},
            sys_flag=SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP,
        )
        offsets = [
            parts.log.append_one(make_request(1, "Batch", 0)).queue_offset,
            parts.log.append_one(batch).queue_offset,
            parts.log.append_many([batch])[0].queue_offset,
            parts.log.append_one(make_request(2, "Batch", 0)).queue_offset,
        ]

        assert offsets == [0, 1, 6, 11]
        assert decode_properties(parts.records()[2].properties)["INNER_BASE"] == "6"


def test_light_queues_get_their_own_offsets_in_the_record(tmp_path):
    config = small_config(tmp_path, enable_lmq=True, enable_multi_dispatch=True, lmq_count_max=2)
    with LogParts(config) as parts:
        both = make_request(0, properties={"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b"})
        only_b = make_request(1, properties={"INNER_MULTI_DISPATCH": "%LMQ%b"})
        too_many = make_request(2, properties={"INNER_MULTI_DISPATCH": "%LMQ%c"})

        for request in (both, only_b, both):
            assert parts.log.append_one(request).status is AppendStatus.PUT_OK
        refused = parts.log.append_one(too_many)

        listed = [r.property_map["INNER_MULTI_QUEUE_OFFSET"] for r in parts.records()]
        assert listed == ["0,0", "1", "1,2"]
        assert refused.status is AppendStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED


def test_the_property_crc_covers_the_record_as_it_lies_in_the_log(tmp_path):
    with LogParts(small_config(tmp_path, property_crc=True)) as parts:
        for number in range(12):
            result = parts.log.append_one(make_request(number, body_bytes=400))
            assert property_crc_matches(parts.log.read(result.log_offset, result.size))
        for result in parts.log.append_many([make_request(n, body_bytes=400) for n in range(12)]):
            assert property_crc_matches(parts.log.read(result.log_offset, result.size))


def client_batch(count: int, body_bytes: int = 30, **changes: object) -> AppendRequest:
    messages = [
        ClientMessage(bytes([n]) * body_bytes, encode_properties({"UNIQ_KEY": f"own{n}"}), flag=n)
        for n in range(count)
    ]
    request = make_request(0, unique=False, tag=None, queue_id=1, properties={"UNIQ_KEY": "all"})
    request.body = encode_client_batch(messages)
    for name, value in changes.items():
        setattr(request, name, value)
    return request


def test_a_client_batch_becomes_ordinary_records_in_one_segment(parts):
    parts.log.append_many([make_request(n, queue_id=1, body_bytes=900) for n in range(3)])

    results = parts.log.append_client_batch(client_batch(7, 100))

    assert [r.log_offset // SMALL_SEGMENT for r in results] == [1] * 7
    assert [r.queue_offset for r in results] == list(range(3, 10))
    records = parts.records()[3:]
    assert [r.flag for r in records] == list(range(7))
    assert records[4].body == b"\x04" * 100
    assert records[4].properties == b"UNIQ_KEY\x01own4\x02UNIQ_KEY\x01all\x02"
    assert records[4].born_host == HOST_V4
    assert parts.log.append_one(make_request(9, queue_id=1)).queue_offset == 10


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (client_batch(2, sys_flag=SysFlag.PREPARED), "transaction"),
        (client_batch(2, properties=encode_properties({"DELAY": "3"})), "delayed"),
        (client_batch(2, body=b"\x00\x00\x00\x50broken"), "taken apart"),
        (client_batch(0), "no message"),
        (client_batch(50, 500), "does not fit a segment"),
    ],
    ids=["transaction", "delay", "broken", "empty", "larger than a segment"],
)
def test_a_client_batch_that_cannot_be_stored_leaves_nothing(parts, request_, words):
    (result,) = parts.log.append_client_batch(request_)

    assert result.status is AppendStatus.MESSAGE_ILLEGAL
    assert words in result.reason
    assert parts.log.written_offset == 0


def test_ranges_cover_what_was_asked_for_segment_by_segment(parts):
    parts.log.append_many([make_request(n, body_bytes=1000) for n in range(10)])
    end = parts.log.written_offset

    ranges = [(base, start, stop) for base, _, start, stop in parts.log.iter_ranges(100, end)]

    assert ranges[0] == (0, 100, SMALL_SEGMENT)
    assert ranges[-1] == (end // SMALL_SEGMENT * SMALL_SEGMENT, 0, end % SMALL_SEGMENT)
    assert list(parts.log.iter_ranges(end, end)) == []


def test_a_log_goes_on_where_recovery_says(tmp_path):
    config = small_config(tmp_path)
    with LogParts(config) as parts:
        results = [parts.log.append_one(make_request(n, body_bytes=600)) for n in range(12)]
    cut = results[7].log_offset

    with LogParts(config, end_offset=cut) as parts:
        result = parts.log.append_one(make_request(99))

        assert result.log_offset == cut
        assert len(parts.records()) == 8
        assert [segment.base_offset for segment in parts.segments] == [0, SMALL_SEGMENT]


def test_a_closed_log_refuses_appends(parts):
    parts.log.append_one(make_request(0))
    parts.log.appender.close()

    assert parts.log.append_one(make_request(1)).status is AppendStatus.SERVICE_NOT_AVAILABLE
    for result in parts.log.append_many([make_request(1)] * 2):
        assert result.status is AppendStatus.SERVICE_NOT_AVAILABLE


def test_messages_are_counted_however_they_come(parts):
    parts.log.append_one(make_request(0))
    parts.log.append_many([make_request(n) for n in range(5)])
    parts.log.append_client_batch(client_batch(3))
    parts.log.append_one(make_request(0, "a/b"))

    assert parts.counters.appended_messages == 9
    assert parts.counters.refused_messages == 1
    assert parts.counters.append_time.count > 0
