"""The JSON dialect: odd keys in and out, nulls, nonsense."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from golden_frames import good_frames
from orbitmq.errors import FieldError
from orbitmq.wire.bodies.dialect import DEPTH_MAX, dumps, loads, without_nulls
from orbitmq.wire.bodies.message_queue import MessageQueue

QUEUE = MessageQueue("t", "b", 0)
QUEUE_TEXT = b'{"brokerName":"b","queueId":0,"topic":"t"}'

TEXTS = st.text(st.characters(codec="utf-8"), max_size=12)
QUEUES = st.builds(MessageQueue, TEXTS, TEXTS, st.integers(-(2**31), 2**31 - 1))
KEYS = TEXTS.filter(lambda text: not text.startswith("{"))
LEAVES = st.booleans() | st.integers(-(2**63), 2**63 - 1) | TEXTS
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(KEYS, inner, max_size=3)
        | st.dictionaries(QUEUES, inner, min_size=1, max_size=3)
    ),
    max_leaves=12,
)


@given(value=VALUES)
def test_what_is_written_is_read(value):
    assert loads(dumps(value)) == value


@given(value=st.dictionaries(st.integers(), st.integers(-(2**63), 2**63 - 1)))
def test_numbers_as_keys_are_read_as_texts(value):
    expected = {str(key): item for key, item in value.items()}

    assert loads(dumps(value)) == expected
    assert loads(dumps(value, quote_keys=True)) == expected


def test_keys_are_written_as_rocketmq_does():
    assert dumps({0: "a:1", 1: "b:2"}) == b'{0:"a:1",1:"b:2"}'
    assert dumps({0: "a:1"}, quote_keys=True) == b'{"0":"a:1"}'
    assert dumps({QUEUE: 5}) == b"{" + QUEUE_TEXT + b":5}"
    assert dumps({QUEUE: 5}, quote_keys=True) == b"{" + QUEUE_TEXT + b":5}"
    assert dumps([QUEUE]) == b"[" + QUEUE_TEXT + b"]"


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (b'{0:"a",-1 : {2:3}}', {"0": "a", "-1": {"2": 3}}),
        (b"{\n\t0:1,\n\t1:2\n}\n", {"0": 1, "1": 2}),
        (b"{" + QUEUE_TEXT + b":5}", {QUEUE: 5}),
        (b'{ { "topic":"t", "queueId":"0", "brokerName":"b" } : 5 }', {QUEUE: 5}),
        (b'{{"other":1}:5}', {'{"other":1}': 5}),
        (b'{{"a":"}:\\"{"}:5}', {'{"a":"}:\\"{"}': 5}),
        (b'{0:1,"text":"{0:1,{}:2}"}', {"0": 1, "text": "{0:1,{}:2}"}),
        (b'[{0:1},{"a":[1,2,3]}]', [{"0": 1}, {"a": [1, 2, 3]}]),
        (b'{"a":null}', {"a": None}),
        (b"null", None),
        (b'"text" \n', "text"),
    ],
)
def test_the_dialect_is_read(raw, value):
    assert loads(raw) == value


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"}",
        b'"',
        b'{"a"}',
        b"{a:1}",
        b"{1.5:1}",
        b"{{}}",
        b"{[]:1}",
        b'{"a":1}x',
        b"\xff",
        b'{0:"\xff"}',
        b'{"a":1,}',
        b"{'a':1}",
        b"NaN",
    ],
)
def test_nonsense_is_refused(raw):
    with pytest.raises(FieldError, match="body"):
        loads(raw)


@pytest.mark.parametrize("opening", [b"[", b"{0:", b'{"a":', b"{{", b'{0:"', b"[\\", b'[{"a":1},'])
def test_bombs_are_refused(opening):
    with pytest.raises(FieldError):
        loads(opening * 100_000)


def test_only_deep_bodies_are_refused_for_their_depth():
    assert loads(b"{0:" * DEPTH_MAX + b"1" + b"}" * DEPTH_MAX)
    with pytest.raises(FieldError, match="64 levels"):
        loads(b"{0:" * (DEPTH_MAX + 1) + b"1" + b"}" * (DEPTH_MAX + 1))


def test_null_is_left_out_everywhere_but_in_lists():
    value = {"a": None, "b": [None, {"c": None, "d": 0}]}

    assert dumps(value) == b'{"b":[null,{"d":0}]}'
    assert without_nulls(value) == {"b": [None, {"d": 0}]}
    assert dumps({"a": None}) == dumps({}) == b"{}"


def test_every_recorded_json_body_is_read_and_written_again_as_an_equal_value():
    count = 0
    for frame in good_frames():
        body = frame.command.body
        if body[:1] not in (b"{", b"["):
            continue
        value = loads(body)
        count += 1
        assert loads(dumps(value)) == without_nulls(value), frame

    assert count > 1500


def test_bodies_with_odd_keys_are_written_byte_for_byte():
    """Members and entries keep the order in which they were read, so the text comes out the same."""
    seen = set()
    for frame in good_frames("java-json/mqadmin", "raw/answers", "broker/slave-and-ha"):
        body, code = frame.command.body, frame.request_code
        if code in (202, 208, 317) and frame.command.is_response and body:
            assert dumps(loads(body)) == body, frame
            seen.add(code)

    assert seen == {202, 208, 317}
