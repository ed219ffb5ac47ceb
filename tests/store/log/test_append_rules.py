"""The checks before an append: each status, its reason, and which fault is told first."""

import pytest

from orbitmq.format.properties import encode_properties
from orbitmq.message import AppendRequest, AppendStatus, QueueType, SysFlag
from orbitmq.store.config import Role
from orbitmq.store.flags import Flag
from orbitmq.testing.builders import make_request
from orbitmq.testing.fake_clock import FakeClock
from store_parts import LogParts, small_config


def refused(parts: LogParts, request: AppendRequest) -> tuple[AppendStatus, str]:
    """Append both ways; both must refuse with the same words and leave the log as it was."""
    before = parts.log.written_offset
    one = parts.log.append_one(request)
    (many,) = parts.log.append_many([request])
    assert one == many
    assert not one.status.stored
    assert parts.log.written_offset == before
    return one.status, one.reason


@pytest.mark.parametrize(
    ("topic", "words"),
    [
        ("t" * 128, "128 bytes"),
        ("订" * 43, "129 bytes"),
        ("%RETRY%" + "g" * 249, "255"),
        ("", "named"),
        ("..", "named"),
        ("a/b", "character"),
        ("a\0b", "character"),
        ("half \ud800 pair", "UTF-8"),
    ],
    ids=["long", "long in bytes", "long retry", "empty", "parent", "slash", "nul", "surrogate"],
)
def test_a_topic_that_cannot_be_kept_is_illegal(tmp_path, topic, words):
    with LogParts(small_config(tmp_path)) as parts:
        status, reason = refused(parts, make_request(0, topic))

    assert status is AppendStatus.MESSAGE_ILLEGAL
    assert words in reason


@pytest.mark.parametrize(
    ("changes", "status", "words"),
    [
        ({"body": None}, AppendStatus.MESSAGE_ILLEGAL, "no body"),
        ({"queue_id": -1}, AppendStatus.MESSAGE_ILLEGAL, "negative"),
        ({"body": b"x" * 1001}, AppendStatus.MESSAGE_ILLEGAL, "maxMessageSize"),
        (
            {"properties": b"a\x01" + b"v" * 32766},
            AppendStatus.PROPERTIES_SIZE_EXCEEDED,
            "32767",
        ),
        (
            {"properties": encode_properties({"INNER_NUM": "3"})},
            AppendStatus.MESSAGE_ILLEGAL,
            "inner-batch flag",
        ),
        ({"sys_flag": SysFlag.INNER_BATCH}, AppendStatus.MESSAGE_ILLEGAL, "BatchCQ"),
        (
            {"properties": encode_properties({"TIMER_DELAY_SEC": "3"})},
            AppendStatus.WHEEL_TIMER_NOT_ENABLE,
            "TIMER_DELAY_SEC",
        ),
        ({"flag": 2**31}, AppendStatus.MESSAGE_ILLEGAL, "does not fit its field"),
        ({"queue_id": 2**31}, AppendStatus.MESSAGE_ILLEGAL, "does not fit its field"),
    ],
    ids=[
        "no body",
        "negative queue",
        "large body",
        "large properties",
        "INNER_NUM alone",
        "inner batch on a simple topic",
        "timer",
        "flag out of range",
        "queue out of range",
    ],
)
@pytest.mark.parametrize("known", [False, True], ids=["first of its topic", "known topic"])
def test_a_message_that_cannot_be_kept_says_why(tmp_path, changes, status, words, known):
    with LogParts(small_config(tmp_path, message_bytes_max=1000)) as parts:
        if known:
            parts.log.append_one(make_request(0))
        request = make_request(1)
        for name, value in changes.items():
            setattr(request, name, value)

        found, reason = refused(parts, request)

        assert found is status
        assert words in reason


def test_faults_are_told_in_rocketmq_order(tmp_path):
    """A message with every fault at once: mending the first shows the next."""
    clock = FakeClock()
    config = small_config(tmp_path, message_bytes_max=1000)
    with LogParts(config, clock=clock) as parts:
        request = AppendRequest("t" * 200, 0, None, b"INNER_NUM\x013\x02TIMER_DELAY_MS\x011\x02")
        parts.flags.set(Flag.FENCED)
        assert refused(parts, request)[0] is AppendStatus.SERVICE_NOT_AVAILABLE
        parts.flags.clear(Flag.FENCED)
        assert "200 bytes" in refused(parts, request)[1]
        request.topic = "T"
        assert "no body" in refused(parts, request)[1]
        request.body = b"x" * 1001
        assert "INNER_NUM" in refused(parts, request)[1]
        request.properties = b"TIMER_DELAY_MS\x011\x02A\x01" + b"v" * 32767
        assert refused(parts, request)[0] is AppendStatus.WHEEL_TIMER_NOT_ENABLE
        request.properties = b"A\x01" + b"v" * 32767
        assert refused(parts, request)[0] is AppendStatus.PROPERTIES_SIZE_EXCEEDED
        request.properties = b""
        assert "maxMessageSize" in refused(parts, request)[1]
        request.body = b"x"
        assert parts.log.append_one(request).status is AppendStatus.PUT_OK


def test_an_append_that_finds_the_lock_held_for_too_long_is_told_busy(tmp_path):
    clock = FakeClock()
    with LogParts(small_config(tmp_path), clock=clock) as parts:
        parts.log.append_one(make_request(0))
        appender = parts.log.appender
        appender._lock_since_ms = clock.now_ms()  # another append holds the lock from now on
        assert parts.log.append_one(make_request(1)).status is AppendStatus.PUT_OK
        appender._lock_since_ms = clock.now_ms()
        clock.advance(1_000)
        assert parts.log.append_one(make_request(1)).status is AppendStatus.PUT_OK
        appender._lock_since_ms = clock.now_ms()
        clock.advance(1_001)
        busy = parts.log.append_one(make_request(2))

        assert busy.status is AppendStatus.OS_PAGE_CACHE_BUSY
        assert "1001 ms" in busy.reason
        appender._lock_since_ms = 0


def test_a_replica_takes_no_messages(tmp_path):
    with LogParts(small_config(tmp_path, role=Role.REPLICA)) as parts:
        status, reason = refused(parts, make_request(0))

    assert status is AppendStatus.SERVICE_NOT_AVAILABLE
    assert "replica" in reason


@pytest.mark.parametrize("text", ["0", "-1", "many", "99999"])
def test_an_inner_batch_with_an_impossible_count_is_illegal(tmp_path, text):
    with LogParts(small_config(tmp_path), topic_types=lambda _: QueueType.BATCH) as parts:
        request = make_request(0, properties={"INNER_NUM": text}, sys_flag=SysFlag.INNER_BATCH)
        assert refused(parts, request)[0] is AppendStatus.MESSAGE_ILLEGAL
