"""Headers about messages: what every client writes is read, and what we write is what Java writes."""

import pytest

from golden_frames import good_frames
from live_broker import letters
from orbitmq.errors import FieldError
from orbitmq.wire.command import Command
from orbitmq.wire.headers.pull import PullAnswer, PullHeader
from orbitmq.wire.headers.query import QueryAnswer, QueryHeader, ViewHeader
from orbitmq.wire.headers.send import LETTERS, SendAnswer, SendHeader
from orbitmq.wire.headers.send_back import SendBackHeader

SENDS = (10, 310, 320)
KINDS = {11: PullHeader, 12: QueryHeader, 33: ViewHeader, 36: SendBackHeader}
ANSWERS = {10: SendAnswer, 310: SendAnswer, 320: SendAnswer, 11: PullAnswer, 12: QueryAnswer}
EXTRA = {"ReqT", "AccessKey", "Signature", "OnsChannel", "SecurityToken"}


def requests(name: str, *codes: int) -> list[Command]:
    return [
        frame.command
        for frame in good_frames(name)
        if frame.role == "broker" and frame.to_server and frame.command.code in codes
    ]


@pytest.mark.parametrize(
    "name", ["java-json/producer", "java-binary/producer", "java-json/acl-signed"]
)
def test_sends_of_java_are_written_as_java_does(name: str) -> None:
    for command in requests(name, *SENDS):
        header = SendHeader.read_any(command.code, command.fields)
        wanted = {key: text for key, text in command.fields.items() if key not in EXTRA}
        assert letters(header) == wanted


@pytest.mark.parametrize("name", ["go/basic", "node/basic", "cpp/basic", "java-json/transaction"])
def test_sends_of_all_clients_are_read(name: str) -> None:
    found = requests(name, *SENDS)
    assert found
    for command in found:
        header = SendHeader.read_any(command.code, command.fields)
        assert header.topic.startswith("Gw")
        assert header.born_timestamp > 1_790_000_000_000


@pytest.mark.parametrize(
    "name",
    [
        "java-json/push-consumer",
        "java-binary/push-consumer",
        "java-json/pull-consumer",
        "java-json/mqadmin",
        "go/basic",
        "node/basic",
        "cpp/basic",
    ],
)
def test_requests_are_read_and_written_again(name: str) -> None:
    found = requests(name, *KINDS)
    assert found
    for command in found:
        header = KINDS[command.code].read(command.fields)
        written = header.write()
        for key, text in command.fields.items():
            if key in written:
                assert written[key] == (
                    "false" if text in ("0", "") and key == "unitMode" else text
                )
            else:
                assert key in EXTRA, key


@pytest.mark.parametrize(
    "name", ["java-json/producer", "java-json/push-consumer", "java-json/pull-consumer"]
)
def test_answers_of_the_java_broker_are_read_and_written_again(name: str) -> None:
    for frame in good_frames(name):
        kind = ANSWERS.get(frame.request_code)
        command = frame.command
        if (
            kind is not None
            and frame.role == "broker"
            and not frame.to_server
            and len(command.fields or {}) > 2
        ):
            assert kind.read(command.fields).write() == command.fields


def test_each_field_of_a_send_has_its_letter() -> None:
    header = SendHeader(
        producer_group="g",
        topic="t",
        default_topic="d",
        default_topic_queue_nums=4,
        queue_id=1,
        sys_flag=0,
        born_timestamp=5,
        flag=0,
        properties="",
        reconsume_times=0,
        max_reconsume_times=3,
        bname="b",
    )
    assert sorted(header.write()) == sorted(LETTERS)
    assert sorted(letters(header)) == list("abcdefghijklmn")


def test_a_send_without_its_topic_says_so() -> None:
    with pytest.raises(FieldError, match="topic"):
        SendHeader.read_any(310, {})


def test_letters_and_names_do_not_stand_in_for_each_other() -> None:
    letters = {"b": "T", "e": "1", "f": "0", "g": "2", "h": "3"}
    header = SendHeader.read_any(310, {**letters, "topic": "Other", "queueId": "9"})
    assert (header.topic, header.queue_id, header.flag) == ("T", 1, 3)

    named = {"topic": "T", "queueId": "1", "sysFlag": "0", "bornTimestamp": "2", "flag": "3"}
    header = SendHeader.read_any(10, {**named, "b": "Other", "e": "9"})
    assert (header.topic, header.queue_id, header.flag) == ("T", 1, 3)
