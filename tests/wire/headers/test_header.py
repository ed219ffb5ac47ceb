"""Typed header fields: names, types, what is missing or wrong."""

from dataclasses import field

import pytest

from orbitmq.errors import FieldError
from orbitmq.wire.headers.header import Header


class Sample(Header):
    consumer_group: str
    queue_id: int
    is_force: bool = False
    max_num: int | None = None
    broker_name: str | None = field(default=None, metadata={"wire": "bname"})


def test_fields_are_read_by_their_names_on_the_wire():
    fields = {"consumerGroup": "g", "queueId": "3", "isForce": "TRUE", "bname": "b", "other": "x"}

    assert Sample.read(fields) == Sample(
        consumer_group="g", queue_id=3, is_force=True, broker_name="b"
    )


def test_fields_are_written_and_none_is_left_out():
    sample = Sample(consumer_group="g", queue_id=-1)

    assert sample.write() == {"consumerGroup": "g", "queueId": "-1", "isForce": "false"}
    assert Sample.read(sample.write()) == sample


@pytest.mark.parametrize("fields", [None, {}, {"consumerGroup": "g"}])
def test_a_missing_field_is_named(fields):
    with pytest.raises(FieldError, match=r"header field (consumerGroup|queueId): is missing"):
        Sample.read(fields)


@pytest.mark.parametrize(
    "text",
    ["", "x", "1.5", "1_000", "\u0661", " 1", "1\n", str(2**63), str(-(2**63) - 1), "9" * 5000],
)
def test_a_number_that_is_none_is_named(text):
    with pytest.raises(FieldError, match="header field queueId: "):
        Sample.read({"consumerGroup": "g", "queueId": text})


@pytest.mark.parametrize("number", [2**63 - 1, -(2**63), 0])
def test_numbers_have_64_bits(number):
    assert Sample.read({"consumerGroup": "g", "queueId": str(number)}).queue_id == number


@pytest.mark.parametrize("text", ["false", "", "yes", "1", "0"])
def test_only_true_is_true(text):
    assert not Sample.read({"consumerGroup": "g", "queueId": "1", "isForce": text}).is_force


def test_a_class_of_headers_costs_nothing_until_it_is_used():
    class Unused(Header):
        topic: str

    assert "__dataclass_fields__" not in vars(Unused)

    assert Unused(topic="T").write() == {"topic": "T"}
    assert repr(Unused.read({"topic": "T"})).endswith("Unused(topic='T')")
