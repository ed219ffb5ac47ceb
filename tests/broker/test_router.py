"""The router: who answers what, and what becomes of errors."""

import logging
from collections.abc import Sequence

import pytest

from broker_world import FakeConnection
from orbitmq.broker.refusal import Refusal
from orbitmq.broker.router import BrokerHandler, Router, unsupported_remark
from orbitmq.errors import FieldError
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import ONEWAY_FLAG, Command


def ok(connection: object, request: Command) -> Command:
    return request.answer(remark="fine")


def raising(error: Exception) -> object:
    def handler(connection: object, request: Command) -> Command:
        raise error

    return handler


def ask(router: Router, request: Command) -> list[Command]:
    connection = FakeConnection()
    router.handle(connection, request)  # type: ignore[arg-type]
    return connection.take()


def test_a_request_goes_to_its_handler_and_the_answer_back() -> None:
    router = Router()
    router.add({5: ok})

    (answer,) = ask(router, Command(5, opaque=77))

    assert (answer.code, answer.opaque, answer.is_response) == (0, 77, True)


def test_an_unknown_code_is_answered_with_3() -> None:
    (answer,) = ask(Router(), Command(4711))

    assert (answer.code, answer.remark) == (3, " request type 4711 not supported")


def test_what_comes_later_is_named() -> None:
    (answer,) = ask(Router(), Command(906))

    assert answer.code == 3
    assert "OrbitMQ does not do replication yet" in (answer.remark or "")


def test_static_topics_stay_out_and_the_answer_says_what_to_do() -> None:
    remark = unsupported_remark(RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC)

    assert remark.startswith(" request type 513 not supported")
    assert "leaves static topics (logic queues) out: create an ordinary topic" in remark


@pytest.mark.parametrize(
    ("error", "code", "remark"),
    [
        (Refusal(17, "no such topic", fields={"a": "b"}), 17, "no such topic"),
        (FieldError("queueId", "is missing"), 1, "header field queueId: is missing"),
        (KeyError("x"), 1, "KeyError: 'x'"),
    ],
)
def test_errors_become_answers(
    error: Exception, code: int, remark: str, caplog: pytest.LogCaptureFixture
) -> None:
    router = Router()
    router.add({5: raising(error)})  # type: ignore[dict-item]

    with caplog.at_level(logging.ERROR):
        (answer,) = ask(router, Command(5))

    assert answer.code == code
    assert (answer.remark or "").startswith(remark)
    assert answer.fields == ({"a": "b"} if isinstance(error, Refusal) else None)
    assert bool(caplog.records) is isinstance(error, KeyError)


@pytest.mark.parametrize("code", [5, 6, 7])
def test_one_way_requests_are_never_answered(code: int) -> None:
    router = Router()
    router.add({5: ok, 6: raising(Refusal(1, "no"))})  # type: ignore[dict-item]

    assert ask(router, Command(code, flag=ONEWAY_FLAG)) == []


def test_a_closed_connection_is_not_answered() -> None:
    router, connection = Router(), FakeConnection(closed=True)
    router.add({5: ok})

    router.handle(connection, Command(5))  # type: ignore[arg-type]

    assert connection.take() == []


def test_two_processors_for_one_code_are_a_mistake() -> None:
    router = Router()
    router.add({5: ok})

    with pytest.raises(AssertionError, match="two processors for code 5"):
        router.add({5: ok})


class Sends:
    """Notes which sends came together."""

    def __init__(self, error: Exception | None = None) -> None:
        self.runs: list[list[int]] = []
        self._error = error

    def handle_many(self, connection: object, requests: Sequence[Command]) -> None:
        self.runs.append([request.opaque for request in requests])
        if self._error is not None:
            raise self._error


def test_consecutive_sends_of_one_read_go_together_and_in_order() -> None:
    router, sends, connection = Router(), Sends(), FakeConnection()
    order: list[int] = []

    def note(connection: object, request: Command) -> None:
        order.append(request.opaque)
        assert sum(map(len, sends.runs)) == request.opaque - len(order) + 1

    router.add({11: note})
    handler = BrokerHandler(router, sends)
    codes = [10, 310, 11, 320, 11, 11, 310]

    handler.on_commands(connection, [Command(code, opaque=n) for n, code in enumerate(codes)])  # type: ignore[arg-type]

    assert sends.runs == [[0, 1], [3], [6]]
    assert order == [2, 4, 5]


def test_a_connection_whose_sends_end_in_a_bug_is_closed(caplog: pytest.LogCaptureFixture) -> None:
    connection = FakeConnection()
    handler = BrokerHandler(Router(), Sends(KeyError("bug")))

    with caplog.at_level(logging.CRITICAL):
        handler.on_commands(connection, [Command(310)])  # type: ignore[arg-type]

    assert connection.closed


def test_everybody_hears_of_a_close_even_if_one_fails(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[object] = []
    connection = FakeConnection()

    def fail(connection: object) -> None:
        raise KeyError("x")

    handler = BrokerHandler(Router(), None, [fail, heard.append])
    with caplog.at_level(logging.CRITICAL):
        handler.on_close(connection, None)  # type: ignore[arg-type]

    assert heard == [connection]
