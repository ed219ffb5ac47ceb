"""Trace records: the bytes of RocketMQ's own clients, both ways."""

import pytest

from golden_frames import good_frames
from orbitmq.client.trace.records import (
    ConsumeCode,
    MessageKind,
    TraceKind,
    TraceRecord,
    decode_records,
    encode_record,
    keys_of,
)
from orbitmq.format.properties import decode_properties
from orbitmq.wire.codes import RequestCode

ID, OFFSET_ID = "0A4D00051C6D30946E094C34FB470000", "7F00000200002C2F00000000000066BB"


def trace_sends():
    frames = good_frames("java-json/message-trace", "java-binary/message-trace")
    sends = [f.command for f in frames if f.to_server and f.command.code == 310]
    return [one for one in sends if (one.fields or {})["b"] == "RMQ_SYS_TRACE_TOPIC"]


@pytest.mark.feature("F113")
@pytest.mark.parametrize("command", trace_sends(), ids=lambda c: c.fields["a"])
def test_what_java_wrote_is_read_and_written_again_byte_for_byte(command):
    records = decode_records(command.body)

    assert "".join(map(encode_record, records)).encode() == command.body
    keys = decode_properties(command.fields["i"].encode())["KEYS"].split()
    assert set(keys_of(records)) == set(keys)


def test_four_trace_messages_were_recorded():
    assert RequestCode.SEND_MESSAGE_V2 == 310
    assert [len(decode_records(one.body)) for one in trace_sends()] == [1, 2, 1, 2]


def test_a_recorded_pub_is_what_the_producer_did():
    (record,) = decode_records(trace_sends()[0].body)

    assert record == TraceRecord(
        kind=TraceKind.PUB,
        message_id=ID,
        time_ms=1794769740677,
        region="DefaultRegion",
        group="GwTracePidJ",
        topic="GwTraceJ",
        tag="TagTr",
        keys="tr0",
        store_host="127.0.0.2:11311",
        body_bytes=7,
        cost_ms=1085,
        message_kind=MessageKind.NORMAL,
        offset_id=OFFSET_ID,
        success=True,
    )


EXAMPLES = {
    "EndTransaction\x01100\x01R\x01G\x01T\x01ID\x01null\x01k1 k2\x01h:1\x012\x01TX\x01"
    "ROLLBACK_MESSAGE\x01true\x02": TraceRecord(
        kind=TraceKind.END_TRANSACTION,
        message_id="ID",
        time_ms=100,
        region="R",
        group="G",
        topic="T",
        keys="k1 k2",
        store_host="h:1",
        message_kind=MessageKind.TRANSACTION_END,
        transaction_id="TX",
        state="ROLLBACK_MESSAGE",
        from_check=True,
    ),
    "Recall\x01100\x01R\x01G\x01T\x01ID\x01false\x02": TraceRecord(
        kind=TraceKind.RECALL,
        message_id="ID",
        time_ms=100,
        region="R",
        group="G",
        topic="T",
        success=False,
    ),
    "SubAfter\x01RQ\x01ID\x0117\x01false\x01null\x014\x01100\x01G\x02": TraceRecord(
        kind=TraceKind.SUB_AFTER,
        message_id="ID",
        request_id="RQ",
        cost_ms=17,
        success=False,
        code=ConsumeCode.FAILED,
        time_ms=100,
        group="G",
    ),
}


@pytest.mark.parametrize("text", EXAMPLES)
def test_other_kinds_are_written_and_read(text):
    assert encode_record(EXAMPLES[text]) == text
    assert decode_records(text.encode()) == [EXAMPLES[text]]


def test_older_clients_leave_out_last_fields():
    pub = "Pub\x011\x01R\x01G\x01T\x01ID\x01A\x01k\x01h\x015\x016\x010\x01false\x02"
    short = "SubAfter\x01RQ\x01ID\x017\x01true\x01k\x02"
    cloud = "SubAfter\x01RQ\x01ID\x017\x01true\x01k\x012\x01\x02"

    first, second, third = decode_records((pub + short + cloud).encode())

    assert (first.offset_id, first.success, first.cost_ms) == ("", False, 6)
    assert (second.time_ms, second.group, second.code) == (0, "", ConsumeCode.SUCCESS)
    assert (third.code, third.time_ms) == (ConsumeCode.EXCEPTION, 0)


def test_newer_fields_behind_the_last_are_passed_over():
    text = "Pub\x011\x01R\x01G\x01T\x01ID\x01A\x01k\x01h\x015\x016\x010\x01OID\x01true\x01host\x02"

    assert decode_records(text.encode())[0].offset_id == "OID"


def test_a_batch_that_java_wrote_is_one_record_for_each_message():
    text = (
        "Pub\x011\x01R\x01G\x01T\x01I1,I2\x01null\x01null\x01h\x015\x016\x010\x01O1,O2\x01true\x02"
    )

    assert [(r.message_id, r.offset_id) for r in decode_records(text.encode())] == [
        ("I1", "O1"),
        ("I2", "O2"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Pub",
        "Pub\x01now\x01R\x01G\x01T\x01ID\x01A\x01k\x01h\x015\x016\x010\x01O\x01true\x02",
        "Pub\x011\x01R\x01G\x01T\x01ID\x01A\x01k\x01h\x015\x016\x0177\x01O\x01true\x02",
        "Pub\x01"
        + "9" * 5000
        + "\x01R\x01G\x01T\x01ID\x01A\x01k\x01h\x015\x016\x010\x01O\x01true\x02",
        "SubBefore\x011\x01R\x01G\x01RQ\x01ID\x01many\x01k\x02",
        "Whatever\x011\x02",
        "\x01\x01\x02\x02",
    ],
)
def test_what_is_no_record_is_left_out_and_the_next_one_is_read(text):
    good = "Recall\x01100\x01R\x01G\x01T\x01ID\x01true\x02"
    end = "" if text.endswith("\x02") else "\x02"

    assert [r.kind for r in decode_records((text + end + good).encode())] == [TraceKind.RECALL]
    assert decode_records(b"\xff\xfe\x01\x02") == []


def test_a_separator_in_a_key_does_not_end_its_field():
    record = TraceRecord(kind=TraceKind.SUB_BEFORE, message_id="ID", keys="a\x01b\x02c")

    assert decode_records(encode_record(record).encode())[0].keys == "a?b?c"


def test_a_message_is_found_by_its_id_and_each_of_its_keys():
    records = [
        TraceRecord(kind=TraceKind.SUB_BEFORE, message_id=one, keys=keys)
        for one, keys in (("I1", "k1 k2"), ("I2", "k2"), ("I3", None))
    ]

    assert keys_of(records) == ["I1", "k1", "k2", "I2", "I3"]
