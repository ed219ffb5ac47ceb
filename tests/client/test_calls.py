"""Requests and their answers."""

import pytest

from async_run import run_async
from fake_cluster import FakeBroker, refuse, silent
from orbitmq.client.core.calls import Calls
from orbitmq.client.core.config import ClientConfig
from orbitmq.errors import RequestTimeoutError, ResponseError, UnreachableError
from orbitmq.net.channels import Channels
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Encoding

BEAT = RequestCode.HEART_BEAT


def run_with_broker(test, **settings):
    async def main():
        broker = FakeBroker("broker-a")
        broker.scripted = {BEAT}
        await broker.start()
        calls = Calls(ClientConfig(**settings), Channels())
        try:
            await test(broker, calls)
        finally:
            await calls.channels.close()
            await broker.stop()

    run_async(main)


@pytest.mark.parametrize("encoding", Encoding)
def test_requests_have_the_encoding_that_was_chosen(encoding):
    async def test(broker, calls):
        await calls.checked(broker.address, BEAT, {"a": "b"}, b"body")

        (request,) = broker.requests
        assert (request.encoding, request.fields, request.body) == (encoding, {"a": "b"}, b"body")
        assert request.language == "PYTHON"

    run_with_broker(test, encoding=encoding)


def test_an_answer_that_says_no_is_an_error_with_a_next_step():
    async def test(broker, calls):
        broker.script = [refuse(ResponseCode.NO_PERMISSION, "not readable")]

        with pytest.raises(
            ResponseError, match=r"not readable\. Look at the permissions"
        ) as caught:
            await calls.checked(broker.address, BEAT)
        assert (caught.value.code, caught.value.remark) == (16, "not readable")

    run_with_broker(test)


def test_a_remark_that_is_a_sentence_needs_no_advice():
    async def test(broker, calls):
        broker.script = [refuse(ResponseCode.NO_PERMISSION, "Do this instead.")]

        with pytest.raises(ResponseError, match=r"Do this instead\.$"):
            await calls.checked(broker.address, BEAT)

    run_with_broker(test)


def test_codes_that_are_expected_are_no_errors():
    async def test(broker, calls):
        broker.script = [refuse(22)]

        answer = await calls.checked(broker.address, BEAT, also=frozenset({22}))

        assert answer.code == 22

    run_with_broker(test)


def test_go_away_is_answered_with_a_new_connection_and_the_same_request():
    async def test(broker, calls):
        await calls.checked(broker.address, BEAT)
        (old,) = broker.connections
        broker.script = [refuse(ResponseCode.GO_AWAY)]

        answer = await calls.request(broker.address, BEAT, {"n": "1"})

        assert answer.code == 0
        assert [request.fields for request in broker.requests[1:]] == [{"n": "1"}] * 2
        assert len(broker.connections) == 2
        assert not old.closed  # what is on its way there may finish

    run_with_broker(test)


def test_a_second_go_away_is_the_answer():
    async def test(broker, calls):
        broker.script = [refuse(ResponseCode.GO_AWAY)] * 2

        assert (await calls.request(broker.address, BEAT)).code == ResponseCode.GO_AWAY

    run_with_broker(test)


def test_no_answer_in_time():
    async def test(broker, calls):
        broker.script = [silent]

        with pytest.raises(RequestTimeoutError):
            await calls.request(broker.address, BEAT, timeout_ms=20)

    run_with_broker(test)


def test_a_late_answer_does_not_disturb_the_next_one():
    async def test(broker, calls):
        late = []
        broker.script = [lambda connection, request: late.append(request)]
        with pytest.raises(RequestTimeoutError):
            await calls.request(broker.address, BEAT, timeout_ms=20)

        broker.connections[0].send(late[0].answer(1, "too late"))
        answer = await calls.request(broker.address, BEAT)

        assert answer.code == 0

    run_with_broker(test)


def test_nobody_there():
    async def test(broker, calls):
        await broker.stop()

        with pytest.raises(UnreachableError):
            await calls.request(broker.address, BEAT)

    run_with_broker(test)


def test_oneway_requests_have_their_flag():
    async def test(broker, calls):
        await calls.oneway(broker.address, RequestCode.UPDATE_CONSUMER_OFFSET, {"a": "b"})
        await calls.checked(broker.address, BEAT)

        assert [request.is_oneway for request in broker.requests] == [True, False]

    run_with_broker(test)


def test_signed_requests():
    async def test(broker, calls):
        await calls.checked(broker.address, BEAT, {"a": "b"})

        assert "Signature" in broker.requests[0].fields

    run_with_broker(test, access_key="key", secret_key="secret")


def test_the_vip_port_is_two_below():
    calls = Calls(ClientConfig(vip_channel=True), Channels())

    assert calls.vip("10.0.0.1:10911") == "10.0.0.1:10909"
    assert Calls(ClientConfig(), Channels()).vip("10.0.0.1:10911") == "10.0.0.1:10911"
