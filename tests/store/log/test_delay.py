"""Delayed messages go into the schedule topic and remember where they belong."""

import pytest

from orbitmq.message import SCHEDULE_TOPIC, AppendStatus, SysFlag
from orbitmq.testing.builders import make_request
from store_parts import LogParts, small_config


@pytest.mark.parametrize(
    ("asked", "level"), [("1", 1), ("3", 3), ("18", 18), ("19", 18), ("99", 18)]
)
@pytest.mark.parametrize("many", [False, True])
def test_a_delayed_message_is_rewritten(tmp_path, asked, level, many):
    with LogParts(small_config(tmp_path)) as parts:
        request = make_request(5, "Orders", 2, properties={"DELAY": asked})
        if many:
            (result,) = parts.log.append_many([request])
        else:
            result = parts.log.append_one(request)

        (record,) = parts.records()
        assert result.queue_id == record.queue_id == level - 1
        assert record.topic == SCHEDULE_TOPIC
        assert record.property_map["DELAY"] == str(level)
        assert record.property_map["REAL_TOPIC"] == "Orders"
        assert record.property_map["REAL_QID"] == "2"
        assert record.tags == "TagA"
        assert record.body == request.body


@pytest.mark.parametrize("text", ["0", "-3", "soon"])
def test_a_level_that_is_none_changes_nothing(tmp_path, text):
    with LogParts(small_config(tmp_path)) as parts:
        request = make_request(0, "Orders", properties={"DELAY": text})
        assert parts.log.append_one(request).status is AppendStatus.PUT_OK

        (record,) = parts.records()
        assert record.topic == "Orders"
        assert record.properties == request.properties


def test_a_prepared_message_is_not_delayed_and_a_committed_one_is(tmp_path):
    with LogParts(small_config(tmp_path)) as parts:
        for kind in (SysFlag.PREPARED, SysFlag.COMMIT):
            parts.log.append_one(
                make_request(0, "Orders", properties={"DELAY": "2"}, sys_flag=kind)
            )

        assert [record.topic for record in parts.records()] == ["Orders", SCHEDULE_TOPIC]


def test_a_delay_level_beats_a_timer(tmp_path):
    with LogParts(small_config(tmp_path)) as parts:
        request = make_request(0, properties={"DELAY": "2", "TIMER_DELAY_SEC": "9"})
        assert parts.log.append_one(request).status is AppendStatus.PUT_OK

        (record,) = parts.records()
        assert record.topic == SCHEDULE_TOPIC
        assert "TIMER_DELAY_SEC" not in record.property_map


@pytest.mark.parametrize("many", [False, True])
def test_a_message_that_is_due_is_not_delayed_again(tmp_path, many):
    with LogParts(small_config(tmp_path)) as parts:
        request = make_request(0, "Orders", 2, properties={"DELAY": "2", "TIMER_DELAY_SEC": "9"})
        request.due = True
        if many:
            parts.log.append_many([request])
        else:
            parts.log.append_one(request)

        (record,) = parts.records()
        assert (record.topic, record.queue_id) == ("Orders", 2)
        assert record.properties == request.properties
