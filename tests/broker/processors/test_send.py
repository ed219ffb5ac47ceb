"""Sends: what real clients sent, asked again, must be stored and answered as a RocketMQ broker did."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from message_replay import (
    SENDS,
    MessageWorld,
    recorded,
    recorded_records,
    recorded_requests,
    replay,
    send_command,
    without_port,
)
from orbitmq.broker.router import BrokerHandler
from orbitmq.errors import StoreFailedError
from orbitmq.format.client_batch import ClientMessage, encode_client_batch
from orbitmq.format.record import Record
from orbitmq.message import Host
from orbitmq.store.config import FlushMode
from orbitmq.units import KiB, MiB
from orbitmq.wire.bodies.message_queue import MessageQueue
from orbitmq.wire.command import ONEWAY_FLAG, Command, Encoding

TIMER = "TIMER_"


def content(record: Record) -> tuple[object, ...]:
    """Return what a message is, without where and when it was stored."""
    return (
        record.topic,
        record.queue_id,
        record.queue_offset,
        record.flag,
        record.sys_flag,
        record.born_ms,
        record.reconsume_times,
        record.body,
        record.property_map,
    )


def by_place(records: list[Record]) -> list[tuple[object, ...]]:
    return [
        content(record) for record in sorted(records, key=lambda r: (r.queue_id, r.queue_offset))
    ]


@pytest.mark.parametrize("kind", ["java-json", "java-binary"])
def test_the_java_producer_is_answered_as_recorded(tmp_path: Path, kind: str) -> None:
    with MessageWorld(tmp_path) as world:
        client = world.connect()
        answers = {
            ask.command.opaque: answer.command
            for ask, answer in recorded(f"{kind}/producer", *SENDS)
        }
        for request in recorded_requests(f"{kind}/producer", *SENDS):
            if TIMER in (request.fields or {})["i"]:
                continue
            answer = replay(world, client, request)
            if request.is_oneway:
                assert answer is None
                continue
            wanted = answers[request.opaque]
            assert answer is not None
            assert answer.code == wanted.code
            assert answer.encoding is request.encoding
            assert without_port(answer.remark) == without_port(wanted.remark)
            assert (answer.fields or {}).keys() == (wanted.fields or {}).keys()
            for name, text in (wanted.fields or {}).items():
                # Queues of delay levels were not empty when the later recording was made.
                if name != "msgId" and not (
                    name == "queueOffset" and "DELAY" in request.fields["i"]
                ):
                    assert (answer.fields or {})[name] == text, (request, name)


def test_records_lie_where_the_java_broker_put_them(tmp_path: Path) -> None:
    # The property texts have the same lengths, so from an empty store on all log offsets are equal.
    with MessageWorld(tmp_path) as world:
        client = world.connect()
        for request in recorded_requests("java-json/producer", *SENDS):
            if TIMER in (request.fields or {})["i"]:
                break
            answer = replay(world, client, request)
            wanted = [
                a.command for q, a in recorded("java-json/producer", *SENDS) if q.command is request
            ]
            if wanted and "msgId" in (wanted[0].fields or {}):
                ours, theirs = (answer.fields or {})["msgId"], wanted[0].fields["msgId"]
                assert [i[16:] for i in ours.split(",")] == [i[16:] for i in theirs.split(",")]


@pytest.mark.parametrize(
    ("kind", "topic"), [("java-json", "GwBasicJ"), ("java-binary", "GwBasicB")]
)
def test_what_is_stored_equals_what_the_java_broker_stored(
    tmp_path: Path, kind: str, topic: str
) -> None:
    with MessageWorld(tmp_path) as world:
        client = world.connect()
        for request in recorded_requests(f"{kind}/producer", *SENDS):
            replay(world, client, request)
        world.later(1_000)
        ours = [record for queue in range(4) for record in world.records(topic, queue)]
        theirs = [
            record
            for record in recorded_records(f"{kind}/read-back", topic)
            if TIMER.encode() not in record.properties
        ]
        assert len(theirs) == 16
        assert by_place(ours) == by_place(theirs)


def test_properties_of_batch_elements_are_byte_for_byte_theirs_and_then_the_batchs(
    tmp_path: Path,
) -> None:
    with MessageWorld(tmp_path) as world:
        client = world.connect()
        for request in recorded_requests("java-json/producer", 320):
            replay(world, client, request)
        elements = [r for q in (0, 3) for r in world.records("GwBasicJ", q)]
        theirs = {r.body: r for r in recorded_records("java-json/read-back", "GwBasicJ")}
        for element in elements:
            own_end = theirs[element.body].properties.index(b"MSG_REGION")
            assert element.properties[:own_end] == theirs[element.body].properties[:own_end]
            assert len(element.properties) == len(theirs[element.body].properties)


@pytest.mark.parametrize("name", ["go/basic", "node/basic", "cpp/basic"])
def test_other_clients_are_answered_as_recorded(tmp_path: Path, name: str) -> None:
    with MessageWorld(tmp_path, default_topic_queues=8) as world:
        client = world.connect()
        for ask, wanted in recorded(name, *SENDS):
            request = ask.command
            fields = request.fields or {}
            text = fields.get("properties", fields.get("i", ""))
            queue_count = {"defaultTopicQueueNums": "8", "d": "8"}
            known = {key: queue_count.get(key, value) for key, value in fields.items()}
            answer = replay(world, client, replace(request, fields=known))
            assert answer is not None
            assert answer.code == wanted.command.code
            assert answer.remark == wanted.command.remark
            assert (answer.fields or {}).keys() == (wanted.command.fields or {}).keys()
            for key in ("queueId", "transactionId", "MSG_REGION", "TRACE_ON"):
                if key == "transactionId" and "UNIQ_KEY" not in text:
                    continue
                assert (answer.fields or {}).get(key) == (wanted.command.fields or {}).get(key)


def test_faulty_sends_are_refused_as_recorded(tmp_path: Path) -> None:
    with MessageWorld(
        tmp_path, store={"segment_bytes": 4 * MiB, "message_bytes_max": 4 * MiB}
    ) as world:
        client = world.connect()
        replay(world, client, send_command("GwBasicJ"))  # known to that broker
        count = 0
        for ask, wanted in recorded("raw/answers", *SENDS):
            request = ask.command
            if (request.fields or {}) == {}:
                continue  # asked of the name server
            answer = replay(world, client, request)
            assert answer is not None
            count += 1
            remark = wanted.command.remark or ""
            text = (request.fields or {}).get("i", "")
            if TIMER in text:
                assert answer.code == 1
                assert "this store has no timer wheel" in (answer.remark or "")
                assert "is false" not in (answer.remark or "")  # the setting is true
            elif request.body.startswith(b"garbage"):
                assert answer.code == 13  # RocketMQ's 1 comes from an exception by accident
            elif "java." in remark:
                assert answer.code == wanted.command.code == 1
                assert answer.remark
            else:
                assert answer.code == wanted.command.code, request
                assert (without_port(answer.remark) or "").startswith(without_port(remark) or "")
                assert (answer.fields or {}).keys() == (wanted.command.fields or {}).keys()
        assert count >= 25


def test_a_queue_below_zero_means_any(tmp_path: Path) -> None:
    with MessageWorld(tmp_path) as world:
        client = world.connect()
        used = {
            (replay(world, client, send_command(queue_id=-1)).fields or {})["queueId"]
            for _ in range(60)
        }
        assert used == {"0", "1", "2", "3"}


def test_sends_of_one_read_are_stored_in_order_whatever_way_they_go(tmp_path: Path) -> None:
    with MessageWorld(tmp_path) as world:
        world.handler = BrokerHandler(world.router, world.sends, world.context.on_close)
        client = world.connect()
        batch = encode_client_batch([ClientMessage(b"c"), ClientMessage(b"d")])
        requests = [
            send_command(body=b"a"),
            send_command(body=b"b", properties=""),
            send_command(body=batch, m="true", code=320),
            send_command(body=b"e"),
            send_command(body=b"f", queue_id=99),
            send_command(body=b"g", flag=ONEWAY_FLAG),
            send_command(body=b"h", properties="UNIQ_KEY\x01K2"),
        ]
        for number, request in enumerate(requests):
            request.opaque = number
        answers = {answer.opaque: answer for answer in world.tell(client, *requests)}
        assert b"".join(record.body for record in world.records("Orders")) == b"abcdegh"
        assert answers.keys() == {0, 1, 2, 3, 4, 6}
        assert [answers[n].code for n in sorted(answers)] == [0, 0, 0, 0, 29, 0]
        offsets = [(answers[n].fields or {})["queueOffset"] for n in (0, 1, 2, 3, 6)]
        assert offsets == ["0", "1", "2", "4", "6"]


def test_born_host_is_the_peer_and_the_id_says_where_the_message_lies(tmp_path: Path) -> None:
    with MessageWorld(tmp_path) as world:
        client = world.connect(peer_host=Host(b"\x0a\x01\x02\x03", 4444))
        answer = replay(world, client, send_command())
        (record,) = world.records("Orders")
        assert record.born_host == Host(b"\x0a\x01\x02\x03", 4444)
        assert (answer.fields or {})["msgId"] == record.offset_id
        assert world.store.by_id(record.offset_id) == record


@pytest.mark.parametrize("encoding", list(Encoding))
def test_a_unique_key_that_needs_escaping_is_answered_right(
    tmp_path: Path, encoding: Encoding
) -> None:
    with MessageWorld(tmp_path) as world:
        client = world.connect()
        for _ in range(2):  # the long way, then the short one
            request = send_command(properties='UNIQ_KEY\x01a"b\\c é\x02')
            answer = replay(world, client, replace(request, encoding=encoding))
            assert (answer.fields or {})["transactionId"] == 'a"b\\c é'


def test_of_two_unique_keys_the_last_counts_and_no_part_of_another_name(tmp_path: Path) -> None:
    with MessageWorld(tmp_path) as world:
        client = world.connect()
        replay(world, client, send_command())
        answer = replay(
            world, client, send_command(properties="UNIQ_KEY\x01A\x02UNIQ_KEY\x01B\x02")
        )
        assert (answer.fields or {})["transactionId"] == "B"
        text = "UNIQ_KEY\x01A\x02MY_UNIQ_KEY\x01B\x02"
        answer = replay(world, client, send_command(properties=text))
        assert (answer.fields or {})["transactionId"] == "A"


def test_pop_ck_of_a_client_is_dropped(tmp_path: Path) -> None:
    with MessageWorld(tmp_path) as world:
        client = world.connect()
        for _ in range(2):
            replay(world, client, send_command(properties="UNIQ_KEY\x01A\x02POP_CK\x01x\x02"))
        assert all("POP_CK" not in record.property_map for record in world.records("Orders"))


def test_transaction_bits_without_a_transaction_do_not_hide_a_message(tmp_path: Path) -> None:
    with MessageWorld(tmp_path) as world:
        client = world.connect()
        for _ in range(2):
            assert replay(world, client, send_command(f="4")).code == 0
        assert len(world.records("Orders")) == 2


def test_a_message_forwarded_with_its_properties_does_not_grow(tmp_path: Path) -> None:
    with MessageWorld(tmp_path) as world:
        client = world.connect()
        replay(world, client, send_command())
        (first,) = world.records("Orders")
        replay(world, client, send_command(properties=first.properties.decode()))
        assert sorted(world.records("Orders")[1].properties) == sorted(first.properties)


def test_changed_settings_show_in_messages_and_answers(tmp_path: Path) -> None:
    with MessageWorld(tmp_path) as world:
        client = world.connect()
        replay(world, client, send_command())
        world.config.take(world.config.changed({"regionId": 'a"%d', "traceOn": "false"}))
        answer = replay(world, client, send_command())
        assert (answer.fields or {})["MSG_REGION"] == 'a"%d'
        assert (answer.fields or {})["TRACE_ON"] == "false"
        assert world.records("Orders")[1].property_map["MSG_REGION"] == 'a"%d'


def test_a_topic_that_shrinks_takes_no_more_messages_for_its_lost_queues(tmp_path: Path) -> None:
    with MessageWorld(tmp_path) as world:
        client = world.connect()
        assert replay(world, client, send_command(queue_id=3)).code == 0
        config = world.context.topics.get("Orders")
        world.context.topics.put(
            type(config)(topic_name="Orders", read_queue_nums=2, write_queue_nums=2)
        )
        assert replay(world, client, send_command(queue_id=3)).code == 29
        world.context.topics.delete("Orders")
        assert replay(world, client, send_command(c="Nothing")).code == 17


def test_retries_beyond_the_limit_become_dead_letters(tmp_path: Path) -> None:
    with MessageWorld(tmp_path) as world:
        client = world.connect()
        replay(world, client, send_command("%RETRY%Cid", j="3", l="3", d="1"))
        assert len(world.records("%RETRY%Cid")) == 1
        answer = replay(world, client, send_command("%RETRY%Cid", j="4", l="3", d="1"))
        (dead,) = world.records("%DLQ%Cid")
        assert answer.code == 0
        assert dead.property_map["DELAY"] == "-1"
        assert dead.reconsume_times == 4


def test_old_clients_have_the_groups_limit(tmp_path: Path) -> None:
    with MessageWorld(tmp_path) as world:
        client = world.connect()
        replay(world, client, replace(send_command("%RETRY%Cid", j="4", l="3", d="1"), version=63))
        assert len(world.records("%RETRY%Cid")) == 1
        replay(world, client, replace(send_command("%RETRY%Cid", j="17", d="1"), version=63))
        assert len(world.records("%DLQ%Cid")) == 1


def test_the_orderly_consumers_dead_letter_is_stored_as_recorded(tmp_path: Path) -> None:
    with MessageWorld(tmp_path) as world:
        client = world.connect()
        world.context.locks.lock("GwOrdCidJ", "client", [MessageQueue("GwOrdJ", "broker-a", 1)])
        for request in recorded_requests("java-json/orderly-consumer", 310):
            replay(world, client, request)
        ours = world.records("%DLQ%GwOrdCidJ")
        theirs = recorded_records("java-json/read-back", "%DLQ%GwOrdCidJ")
        assert by_place(ours) == by_place(theirs)


def test_a_full_store_is_told_with_code_14(tmp_path: Path) -> None:
    with MessageWorld(tmp_path) as world:
        client = world.connect()
        replay(world, client, send_command())
        world.store.close()
        answer = world.tell(client, send_command())[0]
        assert answer.code == 14
        assert "the store is closed" in (answer.remark or "")
        batch = encode_client_batch([ClientMessage(b"c")])
        assert world.tell(client, send_command(body=batch, m="true"))[0].code == 14


def test_batches_refuse_what_they_cannot_do(tmp_path: Path) -> None:
    with MessageWorld(tmp_path) as world:
        client = world.connect()
        batch = encode_client_batch([ClientMessage(b"c")])
        assert replay(world, client, send_command("%RETRY%Cid", batch, m="true")).code == 13
        delayed = send_command(body=batch, m="true", properties="DELAY\x011\x02")
        assert replay(world, client, delayed).code == 13
        assert replay(world, client, send_command(body=batch, m="true", f="4")).code == 13
        for letter, code in (("f", 1), ("g", 0), ("j", 1)):
            request = send_command(body=batch, m="true", **{letter: str(-(1 << 63))})
            assert replay(world, client, request).code == code, letter
        assert replay(
            world, client, send_command(body=batch, m="true", properties="")
        ).fields.keys() == {
            "queueId",
            "msgId",
            "TRACE_ON",
            "MSG_REGION",
            "queueOffset",
        }


def test_a_topic_with_several_tags_marks_its_messages(tmp_path: Path) -> None:
    with MessageWorld(tmp_path) as world:
        client = world.connect()
        replay(world, client, send_command())
        config = world.context.topics.get("Orders")
        world.context.topics.put(
            type(config)(topic_name="Orders", topic_filter_type="MULTI_TAG", attributes={})
        )
        for _ in range(2):
            replay(world, client, send_command())
        batch = encode_client_batch([ClientMessage(b"c")])
        replay(world, client, send_command(body=batch, m="true"))
        assert [record.sys_flag for record in world.records("Orders")] == [0, 2, 2, 2]


@pytest.mark.parametrize("letter", "defghj")
@pytest.mark.parametrize("text", ["", "x", "1.5", " 7", "1_0", "٣", str(1 << 80), f"-{1 << 80}"])
def test_a_field_that_is_no_number_is_refused(tmp_path: Path, letter: str, text: str) -> None:
    with MessageWorld(tmp_path) as world:
        client = world.connect()
        replay(world, client, send_command())
        end = world.store.max_log_offset

        answer = replay(world, client, send_command(**{letter: text}))

        assert answer.code == 1
        assert answer.remark
        assert world.store.max_log_offset == end


@pytest.mark.parametrize(
    ("letter", "text", "code"),
    [
        ("f", str(1 << 31), 1),
        ("g", str(1 << 63), 1),
        ("h", str(1 << 31), 1),
        ("h", str((1 << 31) - 1), 0),
        ("h", "-1", 0),
        ("j", str(1 << 31), 1),
        ("j", "-1", 0),
        ("g", "-1", 0),
        ("e", str(1 << 40), 1),
        ("e", "4", 29),
        ("e", "3", 0),
        ("h", "+7", 0),
        ("h", "08", 0),
    ],
)
def test_numbers_are_taken_as_far_as_a_record_can_hold_them(
    tmp_path: Path, letter: str, text: str, code: int
) -> None:
    with MessageWorld(tmp_path) as world:
        client = world.connect()
        for queue in range(4):
            replay(world, client, send_command(queue_id=queue))

        assert replay(world, client, send_command(**{letter: text})).code == code


@pytest.mark.parametrize("letter", "acdijklm")
def test_fields_that_rocketmq_does_not_miss_may_be_missing(tmp_path: Path, letter: str) -> None:
    with MessageWorld(tmp_path) as world:
        client = world.connect()
        request = send_command()
        replay(world, client, request)
        (request.fields or {}).pop(letter, None)
        assert replay(world, client, request).code == 0
        assert len(world.records("Orders")) == 2


@pytest.mark.parametrize("letter", "befgh")
def test_fields_that_a_record_needs_may_not_be_missing(tmp_path: Path, letter: str) -> None:
    with MessageWorld(tmp_path) as world:
        client = world.connect()
        request = send_command()
        replay(world, client, request)
        (request.fields or {}).pop(letter)
        answer = replay(world, client, request)
        assert answer.code == 1
        assert "is missing" in (answer.remark or "")


def test_a_new_topic_needs_the_number_of_its_queues(tmp_path: Path) -> None:
    with MessageWorld(tmp_path) as world:
        client = world.connect()
        request = send_command()
        (request.fields or {}).pop("d")
        answer = replay(world, client, request)
        assert answer.code == 1
        assert "defaultTopicQueueNums" in (answer.remark or "")
        assert world.context.topics.get("Orders") is None


def test_properties_without_a_unique_key_get_one(tmp_path: Path) -> None:
    with MessageWorld(tmp_path) as world:
        client = world.connect()
        for text in ("UNIQ_KEY\x01", "UNIQ_KEY\x01\x02", "\x02", "\x01\x02", "UNIQ_KEY"):
            answer = replay(world, client, send_command(properties=text))
            assert answer.code == 0
            assert len((answer.fields or {})["transactionId"]) == 32
        assert replay(world, client, Command(310, None, b"x")).code == 1


@pytest.mark.parametrize("word", ["true", "TRUE", "True"])
def test_a_batch_is_told_by_a_word_in_any_case(tmp_path: Path, word: str) -> None:
    with MessageWorld(tmp_path) as world:
        client = world.connect()
        batch = encode_client_batch([ClientMessage(b"c"), ClientMessage(b"d")])
        replay(world, client, send_command())
        replay(world, client, send_command(body=batch, m=word))
        replay(world, client, send_command(body=batch, m="1"))
        bodies = [record.body for record in world.records("Orders")]
        assert bodies == [b"hello", b"c", b"d", batch]


def test_a_message_without_a_body_is_refused_whatever_way_it_goes(tmp_path: Path) -> None:
    with MessageWorld(tmp_path) as world:
        client = world.connect()
        for _ in range(2):
            replay(world, client, send_command())
            assert replay(world, client, send_command(body=b"")).code == 1
        assert len(world.records("Orders")) == 2


def test_a_compaction_topic_requires_keys(tmp_path: Path) -> None:
    with MessageWorld(tmp_path) as world:
        client = world.connect()
        replay(world, client, send_command())
        config = world.context.topics.get("Orders")
        attributes = {"cleanup.policy": "COMPACTION"}
        world.context.topics.put(replace(config, attributes=attributes))
        for _ in range(2):
            assert replay(world, client, send_command()).code == 13
            keyed = send_command(properties="UNIQ_KEY\x01K1\x02KEYS\x01k\x02")
            assert replay(world, client, keyed).code == 0


def slow_down(world: MessageWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let one sync take long, so that the flush thread does the next ones."""
    sync = world.store.flush_log

    def slow_sync() -> None:
        world.clock.advance(50)
        sync()

    monkeypatch.setattr(world.store, "flush_log", slow_sync)
    client = world.connect()
    assert [answer.code for answer in world.tell(client, send_command())] == [0]


def test_sync_flush_answers_all_sends_of_a_turn_after_one_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with MessageWorld(tmp_path, store={"flush_mode": FlushMode.SYNC}) as world:
        client, synced = world.connect(), []
        sync = world.store.flush_log

        def counted() -> None:
            assert client.sent == []
            sync()
            synced.append(world.store.flushed_offset)

        monkeypatch.setattr(world.store, "flush_log", counted)
        batch = encode_client_batch([ClientMessage(b"c")])
        sends = [send_command(), send_command(body=batch, m="true"), send_command()]
        world.handler.on_commands(client, sends)
        world.turn()
        assert [answer.code for answer in client.take()] == [0, 0, 0]
        assert synced == [world.store.max_log_offset]


def test_sync_flush_waits_for_the_last_byte_of_what_was_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with MessageWorld(tmp_path, store={"flush_mode": FlushMode.SYNC}) as world:
        client, ends = world.connect(), []
        monkeypatch.setattr(world.sends.flush_wait, "add", lambda end, _: ends.append(end))
        batch = encode_client_batch([ClientMessage(b"c"), ClientMessage(b"d")])
        wanted = []
        for request in (send_command(), send_command(), send_command(body=batch, m="true")):
            world.tell(client, request)
            wanted.append(world.store.max_log_offset)
        assert ends == wanted


def test_sync_flush_of_a_slow_disk_is_left_to_its_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with MessageWorld(tmp_path, store={"flush_mode": FlushMode.SYNC}) as world:
        slow_down(world, monkeypatch)
        client = world.connect()
        assert world.tell(client, send_command()) == []
        no_wait = send_command(properties="UNIQ_KEY\x01K\x02WAIT\x01false\x02")
        assert [answer.code for answer in world.tell(client, no_wait)] == [0]
        batch = encode_client_batch([ClientMessage(b"c")])
        assert world.tell(client, send_command(body=batch, m="true")) == []
        like_it = send_command(properties="UNIQ_KEY\x01K\x02MY_WAIT\x01false\x02")
        assert world.tell(client, like_it) == []
        world.store.flush()
        world.turn()
        assert [answer.code for answer in client.take()] == [0, 0, 0]
        assert world.tell(client, send_command(flag=ONEWAY_FLAG)) == []
        monkeypatch.undo()
        world.clock.advance(1_000)
        for _ in range(3):  # quick again: the slow one is forgotten
            assert [answer.code for answer in world.tell(client, send_command())] == [0]


def test_sync_flush_says_after_its_timeout_that_it_is_not_sure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with MessageWorld(tmp_path, store={"flush_mode": FlushMode.SYNC}) as world:
        slow_down(world, monkeypatch)
        client = world.connect()
        world.tell(client, send_command())
        world.clock.advance(5_000)
        world.sends.flush_wait.look()
        (answer,) = client.take()
        assert answer.code == 10
        assert {"msgId", "queueId", "queueOffset"} <= (answer.fields or {}).keys()


def test_sync_flush_that_fails_is_told_to_all_who_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with MessageWorld(tmp_path, store={"flush_mode": FlushMode.SYNC}) as world:
        client = world.connect()

        def broken() -> None:
            error = StoreFailedError(tmp_path, "a sync failed", "Restart.")
            world.store.flags.fail(error)
            raise error

        monkeypatch.setattr(world.store, "flush_log", broken)
        assert [answer.code for answer in world.tell(client, send_command())] == [10]
        world.store.flags.failure = None  # so that the world can close it


def test_a_large_body_is_stored_whole(tmp_path: Path) -> None:
    sizes = {"segment_bytes": 8 * MiB, "message_bytes_max": 4 * MiB}
    with MessageWorld(tmp_path, store=sizes) as world:
        client = world.connect()
        body = bytes(range(256)) * (16 * KiB)
        assert replay(world, client, send_command(body=body)).code == 0
        (record,) = world.records("Orders")
        assert record.body == body
