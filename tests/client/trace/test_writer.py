"""TraceWriter: batches, limits, the end; nobody ever waits for it."""

import asyncio
import logging

import pytest

from async_run import run_async, until
from orbitmq.client.core.config import ClientConfig
from orbitmq.client.trace import writer as module
from orbitmq.client.trace.records import TraceKind, TraceRecord, decode_records
from orbitmq.client.trace.writer import (
    BODY_BYTES_MAX,
    CONTEXTS_MAX,
    KEYS_CHARS_MAX,
    PENDING_MAX,
    TraceWriter,
    trace_config,
    trace_group,
    trace_messages,
)
from orbitmq.errors import ClientClosedError, ConfigError


class FakeProducer:
    """Keeps what it is given; answers when it is told to."""

    def __init__(self, *, answers=True):
        self.sent, self.waiting, self.answers, self.closed = [], [], answers, False
        self.failure = None

    async def open(self):
        self.closed = False
        return self

    async def close(self):
        self.closed = True

    def send_async(self, message):
        if isinstance(self.failure, ClientClosedError):
            raise self.failure
        self.sent.append(message)
        outcome = asyncio.get_running_loop().create_future()
        if self.failure is not None:
            outcome.set_exception(self.failure)
        elif self.answers:
            outcome.set_result(None)
        else:
            self.waiting.append(outcome)
        return outcome

    @property
    def records(self):
        return [record for message in self.sent for record in decode_records(message.body)]


def record(number, **given):
    return TraceRecord(kind=TraceKind.SUB_BEFORE, message_id=f"I{number}", **given)


def with_writer(test, *, producer=None, **settings):
    async def main():
        made = producer or FakeProducer()
        writer = TraceWriter(made, ClientConfig(trace=True, **settings))
        await writer.open()
        try:
            await test(writer, made)
        finally:
            await writer.close()
        assert made.closed

    run_async(main)


def test_a_batch_goes_out_as_soon_as_it_is_full():
    async def test(writer, producer):
        for number in range(9):
            writer.append("T", [record(number)])
        assert producer.sent == []
        writer.append("T", [record(9)])
        (message,) = producer.sent
        assert message.topic == "RMQ_SYS_TRACE_TOPIC"
        assert message.keys == [f"I{n}" for n in range(10)]
        assert [r.message_id for r in producer.records] == message.keys

    with_writer(test)


@pytest.mark.parametrize(("asked", "size"), [(1, 1), (3, 3), (500, 20)])
def test_how_many_are_a_batch_is_a_setting_of_at_most_twenty(asked, size):
    async def test(writer, producer):
        for number in range(size):
            assert producer.sent == []
            writer.append("T", [record(number)])
        assert len(producer.sent) == 1

    with_writer(test, trace_batch=asked)


def test_what_waits_goes_out_after_a_while(monkeypatch):
    monkeypatch.setattr(module, "FLUSH_MS", 20)

    async def test(writer, producer):
        writer.append("T", [record(1)])
        await until(lambda: producer.sent)

    with_writer(test)


def test_what_waits_goes_out_at_the_end_whatever_is_on_its_way():
    producer = FakeProducer(answers=False)

    async def test(writer, producer):
        for number in range(1500):
            writer.append("T", [record(number)])
        assert len(producer.sent) == PENDING_MAX

    with_writer(test, producer=producer)
    assert [r.message_id for r in producer.records] == [f"I{n}" for n in range(1500)]


def test_so_many_wait_and_the_rest_is_lost_and_told_once(caplog):
    producer = FakeProducer(answers=False)

    async def test(writer, producer):
        for number in range(PENDING_MAX * 10 + CONTEXTS_MAX + 7):
            writer.append("T", [record(number)])
        assert writer.lost == 7
        for outcome in producer.waiting:
            outcome.set_result(None)
        await until(lambda: len(producer.records) == PENDING_MAX * 20)

    with caplog.at_level(logging.WARNING):
        with_writer(test, producer=producer)
    assert [r.getMessage() for r in caplog.records] == [
        "topic RMQ_SYS_TRACE_TOPIC: 7 traces were not written"
    ]


@pytest.mark.parametrize("failure", [OSError("no route"), ClientClosedError("closed")])
def test_a_trace_that_cannot_be_sent_hurts_nobody(failure, caplog):
    async def test(writer, producer):
        producer.failure = failure
        for number in range(20):
            writer.append("T", [record(number)])
        await until(lambda: writer.lost == 2)

    with_writer(test)
    assert "2 traces were not written" in caplog.text


def test_each_topic_gets_a_message_of_its_own_and_goes_where_it_is_told():
    contexts = [("A", [record(1)]), ("B", [record(2), record(3)]), ("A", [record(4)])]

    messages = list(trace_messages("Traces", contexts))

    assert {message.topic for message in messages} == {"Traces"}
    assert [message.keys for message in messages] == [["I1", "I4"], ["I2", "I3"]]


@pytest.mark.parametrize("long", [{"group": "g" * 30_000}, {"keys": "k" * 2_500}])
def test_a_message_stays_below_the_limits_of_body_and_keys(long):
    contexts = [("A", [record(n, **long) for n in range(10)])]
    if "keys" in long:
        contexts = [("A", [record(n, keys=f"{n}" + "k" * 2_500) for n in range(10)])]

    messages = list(trace_messages("Traces", contexts))

    assert 3 <= len(messages) < 10
    assert max(len(message.body) for message in messages) <= BODY_BYTES_MAX
    assert max(len(" ".join(message.keys)) for message in messages) <= KEYS_CHARS_MAX
    assert sum(len(decode_records(message.body)) for message in messages) == 10


def test_the_producer_of_traces_is_named_as_java_names_it():
    config = ClientConfig(namesrv=("h:1", "h:2"), trace=True, vip_channel=True, client_ip="1.2.3.4")

    own = trace_config(config)

    assert own.client_id == "1.2.3.4@PID_CLIENT_INNER_TRACE_PRODUCER_h:1;h:2"
    assert (own.trace_topic, own.vip_channel, own.send_timeout_ms) == ("", False, 5000)
    first, second = trace_group("G", "PRODUCE"), trace_group("x" * 120, "CONSUME")
    assert first.startswith("_INNER_TRACE_PRODUCER-G-PRODUCE-")
    assert len(second) == 120
    assert "-CONSUME-" in second


def test_clients_with_keys_do_not_share_the_connections_of_their_traces():
    config = ClientConfig(access_key="ak", secret_key="sk", trace=True)

    assert trace_config(config).instance_name == ""


@pytest.mark.parametrize(
    ("trace", "topic"),
    [(False, ""), ("", ""), (True, "RMQ_SYS_TRACE_TOPIC"), ("MyTraces", "MyTraces")],
)
def test_the_setting_says_whether_and_where(trace, topic):
    assert ClientConfig(trace=trace).trace_topic == topic
    assert ClientConfig().trace is False


def test_a_batch_of_none_is_refused():
    with pytest.raises(ConfigError, match="trace_batch"):
        ClientConfig(trace_batch=0)
