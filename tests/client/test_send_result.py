"""What answers to sends mean."""

import pytest

from golden_frames import frames
from orbitmq.client.producer.send_result import (
    STATUS_BY_CODE,
    SendStatus,
    batch_results,
    send_result,
)
from orbitmq.errors import FieldError
from orbitmq.wire.bodies.message_queue import MessageQueue

QUEUE = MessageQueue("T", "broker-a", 2)
FIELDS = {"msgId": "AB", "queueId": "2", "queueOffset": "7"}


def answers(code: int) -> list[dict[str, str]]:
    found = [
        frame.command
        for frame in frames("java-json/producer")
        if not frame.to_server and frame.request_code == code and frame.command.code == 0
    ]
    return [command.fields or {} for command in found]


def test_the_answer_of_a_java_broker():
    result = send_result(SendStatus.OK, "ID", QUEUE, answers(310)[0])

    assert result.is_ok
    assert (result.queue.queue_id, result.queue_offset, result.region) == (2, 0, "DefaultRegion")
    assert result.trace_on
    assert len(result.offset_id) == 32


def test_a_batch_has_a_result_for_each_message():
    first = next(fields for fields in answers(320) if fields["msgId"].count(",") == 2)

    results = batch_results(send_result(SendStatus.OK, "x", QUEUE, first), ["a", "b", "c"])

    assert [result.message_id for result in results] == ["a", "b", "c"]
    assert [result.offset_id for result in results] == first["msgId"].split(",")
    assert [result.queue_offset - results[0].queue_offset for result in results] == [0, 1, 2]


def test_a_batch_that_is_kept_as_one_record_has_one_offset_id():
    results = batch_results(send_result(SendStatus.OK, "x", QUEUE, FIELDS), ["a", "b"])

    assert [result.offset_id for result in results] == ["AB", "AB"]
    assert [result.queue_offset for result in results] == [7, 8]


def test_the_queue_is_the_one_that_was_really_used():
    result = send_result(SendStatus.OK, "x", QUEUE, FIELDS | {"queueId": "5"})

    assert result.queue == MessageQueue("T", "broker-a", 5)


def test_codes_that_mean_stored():
    assert {code: status.value for code, status in STATUS_BY_CODE.items()} == {
        0: "SEND_OK",
        10: "FLUSH_DISK_TIMEOUT",
        11: "SLAVE_NOT_AVAILABLE",
        12: "FLUSH_SLAVE_TIMEOUT",
    }
    assert not send_result(SendStatus.FLUSH_DISK_TIMEOUT, "x", QUEUE, FIELDS).is_ok


@pytest.mark.parametrize("fields", [None, {}, {"msgId": "x"}, FIELDS | {"queueId": "x"}])
def test_an_answer_without_its_fields_is_an_error(fields):
    with pytest.raises(FieldError):
        send_result(SendStatus.OK, "x", QUEUE, fields)


def test_tracing_can_be_switched_off_by_the_broker():
    assert not send_result(SendStatus.OK, "x", QUEUE, FIELDS | {"TRACE_ON": "false"}).trace_on
