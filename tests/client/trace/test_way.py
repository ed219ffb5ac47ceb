"""The way of a message, put together from the records of many clients."""

from dataclasses import replace

from orbitmq.client.trace.records import ConsumeCode, TraceKind, TraceRecord
from orbitmq.client.trace.way import ways

SENT = TraceRecord(
    kind=TraceKind.PUB,
    message_id="I1",
    time_ms=100,
    group="PG",
    topic="T",
    tag="A",
    keys="k1 k2",
    store_host="b:1",
    cost_ms=3,
    offset_id="O1",
)


def before(request_id, time_ms, retry=0, group="G"):
    return TraceRecord(
        kind=TraceKind.SUB_BEFORE,
        message_id="I1",
        time_ms=time_ms,
        group=group,
        request_id=request_id,
        retry_times=retry,
    )


def after(request_id, time_ms, **given):
    return TraceRecord(
        kind=TraceKind.SUB_AFTER, message_id="I1", time_ms=time_ms, request_id=request_id, **given
    )


def shown(*records):
    (way,) = ways([(record, "host") for record in records])
    return [(s.what, s.time_ms, s.group, s.attempt, s.cost_ms, s.result) for s in way.steps]


def test_steps_are_joined_by_request_and_told_in_order_of_time():
    failed = after("R1", 210, cost_ms=10, success=False, code=ConsumeCode.FAILED, group="G")

    steps = shown(
        after("R2", 1305, cost_ms=5), failed, before("R2", 1300, 1), before("R1", 200), SENT
    )

    assert steps == [
        ("sent", 100, "PG", None, 3, "ok"),
        ("consumed", 200, "G", 0, 10, "failed"),
        ("consumed", 1300, "G", 1, 5, "ok"),
    ]


def test_half_a_consumption_is_told_as_far_as_it_is_known():
    assert shown(before("R1", 200), after("R9", 300, cost_ms=50, group="H")) == [
        ("consumed", 200, "G", 0, None, "end unknown"),
        ("consumed", 250, "H", None, 50, "ok"),
    ]


def test_what_handlers_said_is_told():
    def result(**given):
        return shown(after("R", 1, group="G", **given))[0][-1]

    assert result(success=False, code=ConsumeCode.EXCEPTION) == "exception"
    assert result(success=False, code=ConsumeCode.TIME_OUT) == "failed, too late"
    assert result(success=False, code=ConsumeCode.NOTHING_RETURNED) == "failed"
    assert result(code=ConsumeCode.TIME_OUT) == "ok, too late"


def test_transactions_and_recalls_are_steps_too():
    end = replace(
        SENT, kind=TraceKind.END_TRANSACTION, time_ms=150, state="COMMIT_MESSAGE", from_check=True
    )
    recall = replace(SENT, kind=TraceKind.RECALL, time_ms=160, success=False)
    unsafe = replace(SENT, success=False)

    assert [(step[0], step[-1]) for step in shown(unsafe, end, recall)] == [
        ("sent", "not stored safely"),
        ("transaction", "commit after a check"),
        ("recalled", "failed"),
    ]


def test_each_message_has_its_own_way_and_the_oldest_comes_first():
    other = replace(SENT, message_id="I0", time_ms=50, keys=None, tag=None)

    found = ways([(SENT, "h1"), (other, "h2")])

    assert [(w.message_id, w.topic, w.tag, w.keys) for w in found] == [
        ("I0", "T", "", []),
        ("I1", "T", "A", ["k1", "k2"]),
    ]
    assert found[1].steps[0].offset_id == "O1"
    assert found[1].steps[0].client == "h1"
