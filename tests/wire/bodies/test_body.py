"""Typed bodies: names, order, what is forgiven."""

import msgspec
import pytest

from orbitmq.errors import FieldError
from orbitmq.wire.bodies.body import Body
from orbitmq.wire.bodies.message_queue import MessageQueue

QUEUE = MessageQueue("t", "b", 0)


class Inner(Body):
    count: int
    text: str = ""


class Sample(Body):
    zone_name: str | None = None
    client_id: str = msgspec.field(name="clientID", default="c")
    inner_list: list[Inner] = []  # noqa: RUF012
    broker_addrs: dict[int, str] = {}  # noqa: RUF012
    offset_table: dict[MessageQueue, int] = {}  # noqa: RUF012


def test_members_stand_in_alphabetical_order_and_none_is_left_out():
    sample = Sample(inner_list=[Inner(count=1)])

    assert sample.encode() == (
        b'{"brokerAddrs":{},"clientID":"c","innerList":[{"count":1,"text":""}],"offsetTable":{}}'
    )


def test_tables_are_written_in_rocketmqs_dialect():
    sample = Sample(broker_addrs={0: "a:1"}, offset_table={QUEUE: 7}, zone_name="z")
    queue = b'{"brokerName":"b","queueId":0,"topic":"t"}'

    assert sample.encode() == (
        b'{"brokerAddrs":{0:"a:1"},"clientID":"c","innerList":[],"offsetTable":{%b:7},"zoneName":"z"}'
        % queue
    )
    assert b'{"0":"a:1"}' in sample.encode(quote_keys=True)
    assert Sample.decode(sample.encode()) == sample
    assert Sample.decode(sample.encode(quote_keys=True)) == sample


def test_the_word_null_in_a_text_changes_nothing():
    inner = Inner(count=1, text='x:null,":null')

    assert Inner.decode(inner.encode()) == inner
    assert inner.encode() == b'{"count":1,"text":"x:null,\\":null"}'


@pytest.mark.parametrize(
    "raw",
    [
        b'{"count":"5","text":"x","unknown":[1]} \n',
        b'{"count":5,"text":"x","nothing":null}',
        b'{"count":5.0,"text":"x"}',
        b'{0:1,"count":5,"text":"x"}',
    ],
)
def test_what_clients_write_is_forgiven(raw):
    assert Inner.decode(raw) == Inner(count=5, text="x")


def test_null_counts_as_absent():
    assert Sample.decode(b'{"innerList":null,"clientID":null}') == Sample()


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"[]",
        b"null",
        b"5",
        b"{}",
        b'{"count":null}',
        b'{"count":"x"}',
        b'{"count":[]}',
        b'{"count":5,"text":{}}',
        b'{"count":5',
        b'{"x":' * 50_000,
        b"\xff\xfe",
    ],
)
def test_nonsense_is_a_field_error(raw):
    with pytest.raises(FieldError, match="body"):
        Inner.decode(raw)


def test_queues_are_ordered_hashable_and_cannot_be_changed():
    queues = [MessageQueue("t", "b", 1), MessageQueue("s", "b", 2), MessageQueue("t", "a", 9)]

    assert sorted(queues) == [queues[1], queues[2], queues[0]]
    assert len({*queues, MessageQueue("t", "b", 1)}) == 3
    with pytest.raises(AttributeError):
        queues[0].queue_id = 2  # type: ignore[misc]
