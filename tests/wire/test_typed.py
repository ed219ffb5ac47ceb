"""Every recorded header and JSON body through its typed class: nothing fails, nothing is lost."""

import pytest

from golden_frames import Frame, good_frames
from orbitmq.errors import FieldError
from orbitmq.wire.bodies import dialect
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.headers.header import wire_names
from orbitmq.wire.headers.send import LETTERS, SendHeader
from wire_registry import (
    ANSWER_BODIES,
    ANSWER_HEADERS,
    COMMON_FIELDS,
    REQUEST_BODIES,
    REQUEST_HEADERS,
)

LATER = {
    *(60, 61, 370),  # timer, recall
    3005,  # access control
    3442,  # pop, as answered by a broker that sees half of its code
    *(50, 9999),  # nobody knows these
}
"""Codes in the recordings whose typed classes come with their features."""

NO_FIELDS = {
    *(
        21,
        25,
        26,
        28,
        34,
        41,
        42,
        43,
        45,
        46,
        106,
        200,
        201,
        206,
        304,
        305,
        306,
        311,
        316,
        319,
        328,
    ),
    *(400, 401, 402, 907, 1007),
}
"""Requests that carry all they have to say in the body, or have nothing to say."""

IGNORED = {
    (21, "topicSeq"),  # paging, which RocketMQ 5.3.3 ignores too
    (21, "maxTopicNum"),
    (30, "timestamp"),  # ali-ons sends it along, nobody reads it
    (31, "timestamp"),
    (32, "timestamp"),
}
TRANSLATED = {  # the C++ client writes the numbers of these names
    (34, "$.consumerDataSet[].consumeFromWhere: 0 is 'CONSUME_FROM_LAST_OFFSET'"),
    (34, "$.consumerDataSet[].consumeType: 1 is 'CONSUME_PASSIVELY'"),
    (34, "$.consumerDataSet[].messageModel: 1 is 'CLUSTERING'"),
}
FAULTY = "raw/answers"  # requests made by hand to be refused


def requests() -> list[Frame]:
    return [f for f in good_frames() if f.role != "ha" and not f.command.is_response]


def answers() -> list[Frame]:
    return [
        f
        for f in good_frames()
        if f.role != "ha" and f.command.is_response and f.request_code is not None
    ]


def names_of(code, header) -> set[str]:
    if header is SendHeader and code != RequestCode.SEND_MESSAGE:
        return set(LETTERS.values())
    return set(wire_names(header))


def test_every_recorded_request_field_is_known():
    unknown = set()
    for frame in requests():
        code = frame.command.code
        if code in LATER:
            continue
        header = REQUEST_HEADERS.get(code)
        assert (header is None) == (code in NO_FIELDS), code
        known = COMMON_FIELDS | (names_of(code, header) if header else set())
        unknown |= {(code, name) for name in frame.command.fields or () if name not in known}

    assert unknown == IGNORED


def test_every_recorded_answer_field_is_known():
    unknown = set()
    for frame in answers():
        code = frame.request_code
        if code in LATER:
            continue
        header = ANSWER_HEADERS.get(code)
        known = set(wire_names(header)) if header else set()
        unknown |= {(code, name) for name in frame.command.fields or () if name not in known}

    assert unknown == set()


def test_every_recorded_request_header_is_read():
    refused = []
    for frame in requests():
        header = REQUEST_HEADERS.get(frame.command.code)
        if header is None:
            continue
        code, fields = frame.command.code, frame.command.fields
        try:
            if header is SendHeader:
                SendHeader.read_any(code, fields)
            else:
                assert set(header.read(fields).write()) >= set(fields) - COMMON_FIELDS - {
                    name for other, name in IGNORED if other == code
                }
        except FieldError:
            refused.append(frame)

    assert {frame.name for frame in refused} == {FAULTY}
    assert len(refused) < 25


def test_every_recorded_answer_header_is_read():
    count = 0
    for frame in answers():
        header = ANSWER_HEADERS.get(frame.request_code)
        # An answer that tells of a failure may have a part of the fields, or none.
        if header is None or frame.command.code not in (0, 19, 20, 21):
            continue
        fields = frame.command.fields or {}
        assert header.read(fields).write() == fields, frame
        count += 1

    assert count > 800


def lost(before, after, path="$") -> list[str]:
    """Return what of a value is not in another; numbers may have been texts, lists have another order."""
    if isinstance(before, dict):
        if not isinstance(after, dict):
            return [path]
        found = []
        for key, item in before.items():
            if key not in after:
                found.append(f"{path}.{key}")
            else:
                found += lost(item, after[key], f"{path}.{key}")
        return found
    if isinstance(before, list):
        if not isinstance(after, list) or len(after) != len(before):
            return [path]
        return [p for b, a in zip(before, after, strict=True) for p in lost(b, a, f"{path}[]")]
    return [] if str(before) == str(after) else [f"{path}: {before!r} is {after!r}"]


def is_json(frame: Frame) -> bool:
    return frame.command.body[:1] == b"{"


@pytest.mark.parametrize(
    ("frames", "bodies", "least"),
    [(requests, REQUEST_BODIES, 200), (answers, ANSWER_BODIES, 1000)],
    ids=["requests", "answers"],
)
def test_every_recorded_json_body_is_read_and_nothing_of_it_is_lost(frames, bodies, least):
    count, problems = 0, {}
    for frame in filter(is_json, frames()):
        code = frame.request_code if frame.command.is_response else frame.command.code
        if code in LATER:
            continue
        body = bodies[code].decode(frame.command.body)
        before = dialect.without_nulls(dialect.loads(frame.command.body))
        for path in lost(before, dialect.loads(body.encode())):
            problems.setdefault((code, path), frame)
        count += 1

    assert problems.keys() - TRANSLATED == set()
    assert count > least
