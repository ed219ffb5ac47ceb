"""Receipts of popped messages, as RocketMQ's own client makes them, and what brokers are told with them."""

import pytest

from golden_frames import exchanges
from orbitmq.client.core.message import ReceivedMessage, decode_messages
from orbitmq.client.core.pop_api import (
    add_receipts,
    batch_acks,
    order_counts,
    receipt_of,
    start_offsets,
)
from orbitmq.errors import FieldError, InvalidMessageError
from orbitmq.wire.bodies.pop import BatchAckBody
from orbitmq.wire.headers.pop import PopAnswer, PopHeader


def message(offset: int, receipt: str | None = None, topic: str = "T") -> ReceivedMessage:
    properties = {} if receipt is None else {"POP_CK": receipt}
    return ReceivedMessage(topic, b"x", "b", 0, offset, 0, properties, 0, 0, "", "", "ID")


def test_receipts_are_those_that_the_java_client_acknowledged_with() -> None:
    made, told = {}, {}
    for request, answer in exchanges("java-json/pop-consumer", "broker"):
        fields = request.command.fields or {}
        if request.command.code == 200050 and answer.command.code == 0:
            asked = PopHeader.read(fields)
            messages = decode_messages(answer.command.body, asked.bname or "")
            add_receipts(messages, PopAnswer.read(answer.command.fields), asked)
            made.update({one.properties["POP_CK"]: one for one in messages})
        elif request.command.code in (200051, 200053):
            told[fields["extraInfo"]] = fields
    assert set(told) <= set(made)
    assert len(told) >= 5
    retried = [one for one in made.values() if receipt_of(one).kind == "1"]
    assert retried
    for text, fields in told.items():
        receipt = receipt_of(made[text])
        assert (receipt.queue_id, receipt.offset) == (int(fields["queueId"]), int(fields["offset"]))
        assert made[text].topic in fields["topic"]
        assert int(made[text].properties["1ST_POP_TIME"]) > 0


def test_a_receipt_names_where_its_pop_began() -> None:
    asked = PopHeader(
        consumer_group="G",
        topic="T",
        queue_id=-1,
        max_msg_nums=9,
        invisible_time=1000,
        poll_time=0,
        bname="b",
    )
    answer = PopAnswer(
        pop_time=77, invisible_time=1000, revive_qid=3, start_offset_info="0 0 5;1 0 9"
    )
    popped, again = message(7), message(2, "9 50 1000 3 1 b 0 9")
    add_receipts([popped, again], answer, asked)

    assert popped.properties == {"POP_CK": "5 77 1000 3 0 b 0 7", "1ST_POP_TIME": "77"}
    assert again.properties["POP_CK"] == "9 50 1000 3 1 b 0 9"


def test_offset_texts_that_are_none_are_refused() -> None:
    assert start_offsets(None) == start_offsets("") == {}
    for wrong in ("1 2", "0 x 1", "0 1 2 3", "0 1 2;;x"):
        with pytest.raises(FieldError, match="startOffsetInfo"):
            start_offsets(wrong)


def test_what_was_not_popped_has_no_receipt() -> None:
    with pytest.raises(InvalidMessageError, match="no receipt"):
        receipt_of(message(1))
    with pytest.raises(FieldError):
        receipt_of(message(1, "x"))


def test_acks_of_one_pop_are_one_entry_with_a_bit_for_each_message() -> None:
    acks = batch_acks(
        "G",
        [
            message(5, "5 77 1000 3 0 b 0 5"),
            message(7, "5 77 1000 3 0 b 0 7"),
            message(20, "5 77 1000 3 0 b 0 20"),
            message(5, "5 77 1000 3 0 b 1 5"),
            message(0, "0 77 1000 3 1 b 0 0"),
            message(5, "5 77 1000 3 0 b 0 5", "Other"),
        ],
    )

    # Bit i of byte i // 8, the lowest first: as Java's BitSet writes them.
    assert [(ack.topic, ack.retry, ack.queue_id, ack.bits) for ack in acks] == [
        ("T", "0", 0, "BYA="),
        ("T", "0", 1, "AQ=="),
        ("T", "1", 0, "AQ=="),
        ("Other", "0", 0, "AQ=="),
    ]
    assert [ack.offsets() for ack in acks] == [[5, 7, 20], [5], [0], [5]]
    body = BatchAckBody(broker_name="b", acks=acks[:1]).encode()
    assert BatchAckBody.decode(body).acks[0].pop_time == 77
    assert b'"so":5' in body
    assert b'"rq":3' in body


@pytest.mark.parametrize("text", ["0 0", "0 0 x", "0 qo0%1 1;;0"])
def test_a_broken_count_of_deliveries_is_refused(text: str) -> None:
    with pytest.raises(FieldError, match="orderCountInfo"):
        order_counts(text)


def test_deliveries_are_counted_by_offset_or_else_by_queue() -> None:
    answer = PopAnswer(pop_time=5, order_count_info="0 qo0%1 3;0 0 1;1 0 9")
    messages = [message(0), message(1), message(2)]
    messages[2].queue_id = 4
    asked = PopHeader(
        consumer_group="g",
        topic="T",
        queue_id=-1,
        max_msg_nums=8,
        invisible_time=1_000,
        poll_time=0,
        order=True,
    )
    add_receipts(messages, answer, asked)
    assert [one.reconsume_times for one in messages] == [1, 3, 0]
