"""Batches to BatchCQ topics: one record each. Numbers and fields are what a RocketMQ 5.3.3 broker gave."""

from pathlib import Path

import pytest

from message_replay import MessageWorld, pull_command, records_of, send_command
from orbitmq.broker.processors.offsets import OffsetsProcessor
from orbitmq.broker.processors.topics_admin import TopicsAdminProcessor
from orbitmq.client.core.message import decode_messages
from orbitmq.format.client_batch import ClientMessage, encode_client_batch
from orbitmq.store.config import FlushMode
from orbitmq.wire.bodies.topic_config import TopicConfig
from orbitmq.wire.command import ONEWAY_FLAG, Command

pytestmark = pytest.mark.feature("F31")

THREE = encode_client_batch(
    ClientMessage(b"x%d" % n, b"TAGS\x01T\x02UNIQ_KEY\x01E%d\x02KEYS\x01k%d\x02" % (n, n), 5 + n)
    for n in range(3)
)
TEN = encode_client_batch(ClientMessage(b"y%d" % number) for number in range(10))
ONE = encode_client_batch([ClientMessage(b"y")])


class BatchWorld(MessageWorld):
    """A broker with a BatchCQ topic B of two queues, and T, which is none."""

    def __init__(self, root: Path, **given: object) -> None:
        super().__init__(root, **given)
        self.route(OffsetsProcessor(self.context), TopicsAdminProcessor(self.context))
        attributes = {"queue.type": "BatchCQ"}
        for name, kept in (("B", attributes), ("T", {})):
            self.context.topics.put(
                TopicConfig(topic_name=name, read_queue_nums=2, write_queue_nums=2, attributes=kept)
            )
        self.client = self.connect()

    def send(
        self, body: bytes, properties: str, topic: str = "B", code: int = 320, **letters: object
    ) -> Command:
        """Send a batch and return the answer."""
        given = {"m": "true"} | letters
        request = send_command(topic, body, properties=properties, code=code, **given)
        answer = self.ask(self.client, request)
        self.settle()
        return answer

    def pull(self, offset: int, count: int = 32) -> Command:
        request = pull_command("B", queueOffset=offset, maxMsgNums=count, suspendTimeoutMillis=0)
        return self.ask(self.client, request)


def key(name: str, more: str = "") -> str:
    return f"UNIQ_KEY\x01{name}\x02{more}"


def test_a_batch_with_a_unique_key_is_one_record_and_has_one_id(tmp_path: Path) -> None:
    with BatchWorld(tmp_path) as world:
        answer = world.send(THREE, key("BATCH1", "WAIT\x01true\x02"))

        (record,) = world.records("B")
        assert answer.code == 0
        assert answer.fields == {
            "queueId": "0",
            "batchUniqId": "BATCH1",
            "transactionId": "BATCH1",
            "msgId": record.offset_id,
            "TRACE_ON": "true",
            "MSG_REGION": "DefaultRegion",
            "queueOffset": "0",
        }
        assert (record.sys_flag, record.flag, record.size) == (0xC0, 0, 358)
        assert record.body == THREE
        assert record.property_map == {
            "INNER_BASE": "0",
            "INNER_NUM": "3",
            "MSG_REGION": "DefaultRegion",
            "TRACE_ON": "true",
            "CLUSTER": "DefaultCluster",
            "UNIQ_KEY": "BATCH1",
            "WAIT": "true",
        }


def test_queue_offsets_advance_by_the_number_of_messages(tmp_path: Path) -> None:
    with BatchWorld(tmp_path) as world:
        answers = [
            world.send(THREE, key("BATCH1", "WAIT\x01true\x02")),
            world.send(TEN, key("BATCH2", "WAIT\x01true\x02"), h="9", j="2"),
            world.send(ONE, key("BATCH3")),
            world.send(THREE, "WAIT\x01true\x02"),  # no key: three records
            world.send(THREE, "UNIQ_KEY\x01\x02"),
            world.send(b"single", key("S"), code=310, m="false"),
            world.send(b"single", key("S"), code=320, m="false"),
            world.send(THREE, key("S"), code=310),
            world.send(THREE, key("B4", "KEYS\x01a\x02KEYS\x01b\x02TAGS\x01T\x02")),
            world.send(THREE, key("B5", "INNER_NUM\x0177\x02INNER_BASE\x01500\x02")),
        ]

        offsets = [int((answer.fields or {})["queueOffset"]) for answer in answers]
        assert offsets == [0, 3, 13, 14, 17, 20, 21, 22, 25, 28]
        assert ["batchUniqId" in (answer.fields or {}) for answer in answers] == [
            *(True, True, True, False, False, False, False, True, True, True)
        ]
        assert len((answers[3].fields or {})["msgId"].split(",")) == 3
        found = {record.queue_offset: record for record in world.records("B")}
        sizes = {0: 358, 3: 446, 13: 219, 14: 193, 17: 183, 20: 171, 22: 344, 25: 359, 28: 345}
        assert {offset: found[offset].size for offset in sizes} == sizes
        assert (found[3].flag, found[3].reconsume_times) == (9, 2)
        assert found[28].property_map["INNER_NUM"] == "3"
        assert found[28].property_map["INNER_BASE"] == "28"
        assert world.store.max_offset("B", 0) == 31


def test_pulls_return_whole_batches_and_count_their_messages(tmp_path: Path) -> None:
    with BatchWorld(tmp_path) as world:
        world.send(THREE, key("BATCH1"))
        world.send(TEN, key("BATCH2"))
        world.send(ONE, key("BATCH3"))

        for offset, count, first, following in (
            (0, 1, [0], "3"),
            (1, 1, [0], "3"),
            (1, 4, [0], "3"),
            (5, 3, [3], "13"),
            (2, 32, [0, 3, 13], "14"),
        ):
            answer = world.pull(offset, count)
            assert answer.code == 0
            assert [record.queue_offset for record in records_of(answer.body)] == first
            assert (answer.fields or {})["nextBeginOffset"] == following


def test_our_client_finds_the_messages_with_their_own_ids_and_offsets(tmp_path: Path) -> None:
    with BatchWorld(tmp_path) as world:
        world.send(ONE, key("BATCH0"))
        world.send(THREE, key("BATCH1"))

        _, *messages = decode_messages(world.pull(0).body)

        assert [message.body for message in messages] == [b"x0", b"x1", b"x2"]
        assert [message.queue_offset for message in messages] == [1, 2, 3]
        assert [message.message_id for message in messages] == ["E0", "E1", "E2"]
        assert [message.tag for message in messages] == ["T", "T", "T"]
        assert [message.flag for message in messages] == [5, 6, 7]


def test_a_batch_is_found_by_its_key_and_not_by_those_of_its_messages(tmp_path: Path) -> None:
    with BatchWorld(tmp_path) as world:
        world.send(THREE, key("BATCH1"))
        fields = {"topic": "B", "maxNum": "9", "beginTimestamp": "0", "endTimestamp": str(1 << 62)}

        by_key = world.ask(world.client, Command(12, fields | {"key": "BATCH1"}, opaque=3))
        by_inner = world.ask(world.client, Command(12, fields | {"key": "k1"}, opaque=4))

        assert len(decode_messages(by_key.body)) == 3
        assert by_inner.code == 22


@pytest.mark.parametrize(
    ("topic", "body", "properties", "letters"),
    [
        ("B", THREE, "DELAY\x011\x02", {}),
        ("B", THREE, "", {"f": "4"}),
        ("B", THREE, "", {"f": "12"}),
        ("B", THREE[:-1], "", {}),
        ("B", b"garbage", "", {}),
        ("B", b"garbage-garbage-garbage-garbage", "", {}),
        ("B", THREE, "INNER_NUM\x013\x02", {"m": "false"}),
        ("T", THREE, "INNER_NUM\x013\x02", {"m": "false", "f": "192"}),
        ("T", THREE, "", {"f": "192"}),
        ("%RETRY%Cid", THREE, "", {"d": "1"}),
    ],
)
def test_what_rocketmq_refuses_is_refused(
    tmp_path: Path, topic: str, body: bytes, properties: str, letters: dict[str, str]
) -> None:
    with BatchWorld(tmp_path) as world:
        answer = world.send(body, key("K", properties), topic, **letters)

        assert answer.code == 13
        assert answer.remark
        assert world.store.max_log_offset == 0


def test_a_batch_that_the_store_refuses_is_answered_with_its_id(tmp_path: Path) -> None:
    with BatchWorld(tmp_path) as world:
        answer = world.send(THREE, key("B6", "DELAY\x011\x02"))

        assert (answer.fields or {})["batchUniqId"] == "B6"
        assert "delayed" in (answer.remark or "")


def test_a_batch_to_another_topic_stays_several_records(tmp_path: Path) -> None:
    with BatchWorld(tmp_path) as world:
        answer = world.send(THREE, key("K"), "T")

        assert "batchUniqId" not in (answer.fields or {})
        assert [record.body for record in world.records("T")] == [b"x0", b"x1", b"x2"]


def test_a_consumer_cannot_give_back_a_whole_batch(tmp_path: Path) -> None:
    # Clients then send the one message that failed to the retry topic themselves.
    with BatchWorld(tmp_path) as world:
        world.send(THREE, key("K"))
        (record,) = world.records("B")
        fields = {"offset": str(record.log_offset), "group": "Cid", "delayLevel": "1"}

        answer = world.ask(world.client, Command(36, fields, opaque=5))

        assert answer.code == 1
        assert "inner batch" in (answer.remark or "")


def test_an_empty_batch_queue_begins_at_minus_one(tmp_path: Path) -> None:
    with BatchWorld(tmp_path) as world:

        def offset(code: int, topic: str = "B", queue: str = "0") -> str:
            fields = {"topic": topic, "queueId": queue}
            return (world.ask(world.client, Command(code, fields, opaque=6)).fields or {})["offset"]

        assert [offset(31), offset(31, queue="7"), offset(30)] == ["-1", "-1", "0"]
        assert [offset(31, "T"), offset(31, "Unknown")] == ["0", "0"]
        for asked, code in ((0, 19), (5, 21), (-1, 21)):
            answer = world.pull(asked)
            assert answer.code == code
            fields = answer.fields or {}
            places = [fields[name] for name in ("minOffset", "maxOffset", "nextBeginOffset")]
            assert places == ["-1", "0", "0"]
        stats = world.ask(world.client, Command(202, {"topic": "B"}, opaque=7))
        assert b'"minOffset":0' in stats.body
        assert b'"minOffset":-1' not in stats.body

        world.send(THREE, key("K"))

        assert [offset(31), offset(30), offset(31, queue="1")] == ["0", "3", "-1"]
        assert (world.pull(0).fields or {})["minOffset"] == "0"


def test_the_statistics_count_the_messages_of_a_batch(tmp_path: Path) -> None:
    with BatchWorld(tmp_path) as world:
        world.send(TEN, key("K"))
        world.send(ONE, key("L"))

        assert world.context.statistics.put_totals().now == 11


def test_with_sync_flush_a_batch_is_answered_when_it_is_on_disk(tmp_path: Path) -> None:
    with BatchWorld(tmp_path, store={"flush_mode": FlushMode.SYNC}) as world:
        answer = world.send(THREE, key("K"))
        (record,) = world.records("B")
        assert answer.code == 0
        assert world.store.flushed_offset == record.log_offset + record.size

        request = send_command(
            "B", THREE, properties=key("O"), code=320, m="true", flag=ONEWAY_FLAG
        )
        assert world.tell(world.client, request) == []
        assert len(world.records("B")) == 2


def test_a_batch_topic_survives_a_restart_of_its_broker(tmp_path: Path) -> None:
    with BatchWorld(tmp_path) as world:
        world.send(THREE, key("A"))
        world.send(TEN, key("B"))

    with BatchWorld(tmp_path) as world:
        answer = world.send(ONE, key("C"))

        assert (answer.fields or {})["queueOffset"] == "13"
        assert [record.queue_offset for record in world.records("B")] == [0, 3, 13]
