"""Messages for tests: the same number, the same message; all kinds among a few hundred."""

from orbitmq.format.properties import decode_properties
from orbitmq.message import DLQ_PREFIX, Property, SysFlag
from orbitmq.testing.builders import (
    LONG_TOPIC,
    delayed_request,
    make_request,
    mixed_requests,
    transaction_request,
    unique_key,
)


def test_the_same_number_gives_the_same_message() -> None:
    assert make_request(5) == make_request(5)
    assert make_request(5) != make_request(6)
    assert list(mixed_requests(50)) == list(mixed_requests(50))
    assert list(mixed_requests(50, first=50)) == list(mixed_requests(100))[50:]
    assert list(mixed_requests(50)) != list(mixed_requests(50, seed=1))


def test_what_is_given_is_taken() -> None:
    request = make_request(3, "T", 7, body=b"x", tag="a", keys="k1 k2", properties={"p": "v"})

    assert (request.topic, request.queue_id, request.body) == ("T", 7, b"x")
    assert decode_properties(request.properties) == {
        "p": "v",
        Property.TAGS: "a",
        Property.KEYS: "k1 k2",
        Property.UNIQ_KEY: unique_key(3),
    }


def test_steps_of_a_transaction_and_delays_are_marked() -> None:
    commit = transaction_request(4, step=SysFlag.COMMIT)

    assert commit.sys_flag & SysFlag.TRANSACTION == SysFlag.COMMIT
    assert commit.prepared_offset == 4000
    assert decode_properties(delayed_request(1, level=5).properties)[Property.DELAY] == "5"


def test_a_few_hundred_messages_have_every_kind() -> None:
    requests = list(mixed_requests(400))

    steps = {request.sys_flag & SysFlag.TRANSACTION for request in requests}
    assert steps == {0, SysFlag.PREPARED, SysFlag.COMMIT, SysFlag.ROLLBACK}
    assert {len(request.born_host.address) for request in requests} == {4, 16}
    assert any(request.sys_flag & SysFlag.STORE_HOST_V6 for request in requests)
    assert {len(request.body) for request in requests} >= {0, 1, 4000}
    topics = {request.topic for request in requests}
    assert LONG_TOPIC in topics
    assert DLQ_PREFIX + "group" in topics
    names = {name for request in requests for name in decode_properties(request.properties)}
    assert {Property.DELAY, Property.TAGS, Property.KEYS, Property.UNIQ_KEY, "名1"} <= names
    assert {request.queue_id for request in requests} == {0, 1, 2, 3}
