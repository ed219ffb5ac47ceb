"""Single messages: by key, by the producer's id and by their place."""

from pathlib import Path

from message_replay import (
    SENDS,
    MessageWorld,
    recorded,
    recorded_requests,
    records_of,
    replay,
    send_command,
)
from orbitmq.wire.command import Command
from orbitmq.wire.headers.query import QueryAnswer

FOREVER = (1 << 63) - 1


def query(key: str, **given: object) -> Command:
    fields = {
        "topic": "Orders",
        "key": key,
        "maxNum": "32",
        "beginTimestamp": "0",
        "endTimestamp": str(FOREVER),
    }
    fields |= {name: str(value) for name, value in given.items()}
    return Command(12, fields, opaque=3)


def test_the_java_clients_queries_are_answered_as_recorded(tmp_path: Path) -> None:
    with MessageWorld(tmp_path) as world:
        client = world.connect()
        count = 0
        for ask, wanted in recorded("java-json/pull-consumer", *SENDS, 12, 33):
            request = ask.command
            if request.code == 33:
                # Other messages lay before these in the recorded log.
                continue
            if request.code == 12 and request.fields["endTimestamp"] != str(FOREVER):
                request = Command(12, {**request.fields, "endTimestamp": str(FOREVER)})
            if request.code == 12:
                request = Command(12, {**request.fields, "beginTimestamp": "0"})
            answer = replay(world, client, request)
            assert answer.code == wanted.command.code
            assert answer.remark == wanted.command.remark
            if request.code == 12:
                count += 1
                ours = [(r.body, r.property_map) for r in records_of(answer.body)]
                theirs = [(r.body, r.property_map) for r in records_of(wanted.command.body)]
                assert ours == theirs
                assert answer.fields.keys() == wanted.command.fields.keys()
        assert count == 4


def test_a_batch_is_found_by_its_own_id_and_not_by_those_of_its_elements(tmp_path: Path) -> None:
    with MessageWorld(tmp_path) as world:
        client = world.connect()
        for request in recorded_requests("java-json/producer", 320):
            replay(world, client, request)
        given = {"topic": "GwBasicJ", "_UNIQUE_KEY_QUERY": "true"}
        answer = replay(world, client, query("0A4D00057DFA30946E094C3265200006", **given))
        assert (answer.code, set(answer.fields.values())) == (22, {"0"})
        answer = replay(world, client, query("0A4D00057DFA30946E094C3265200009", **given))
        bodies = [record.body for record in records_of(answer.body)]
        assert bodies == [b"batch 0", b"batch 1", b"batch 2"]


def test_the_answer_says_how_far_the_index_is(tmp_path: Path) -> None:
    with MessageWorld(tmp_path) as world:
        client = world.connect()
        for key in ("a", "b"):
            replay(world, client, send_command(properties=f"UNIQ_KEY\x01U\x02KEYS\x01{key}\x02"))
        last = world.records("Orders")[-1]
        fields = QueryAnswer.read(replay(world, client, query("a")).fields)
        assert fields.index_last_update_phyoffset == last.log_offset
        assert fields.index_last_update_timestamp == last.store_ms


def test_counts_and_times_of_a_query_are_bounded(tmp_path: Path) -> None:
    with MessageWorld(tmp_path) as world:
        client = world.connect()
        for _ in range(100):
            replay(world, client, send_command(properties="UNIQ_KEY\x01U\x02KEYS\x01k\x02"))
        assert len(list(records_of(replay(world, client, query("k", maxNum=FOREVER)).body))) == 64
        assert len(list(records_of(replay(world, client, query("k", maxNum=5)).body))) == 5
        assert replay(world, client, query("k", maxNum=-1)).code == 22
        assert replay(world, client, query("k", endTimestamp=-5, beginTimestamp=-9)).code == 22
        unique = query("U", maxNum=5, _UNIQUE_KEY_QUERY="true")
        assert len(list(records_of(replay(world, client, unique).body))) == 32
        assert replay(world, client, Command(12, {"topic": "Orders"})).code == 1


def test_a_message_is_found_by_its_place_and_nothing_where_none_starts(tmp_path: Path) -> None:
    with MessageWorld(tmp_path) as world:
        client = world.connect()
        replay(world, client, send_command(body=b"x" * 500))
        replay(world, client, send_command())
        for record in world.records("Orders"):
            answer = replay(world, client, Command(33, {"offset": str(record.log_offset)}))
            assert (answer.code, answer.fields, list(records_of(answer.body))) == (
                0,
                None,
                [record],
            )
        for offset in (1, 7, 100, 1 << 40, -1, -(1 << 63)):
            answer = replay(world, client, Command(33, {"offset": str(offset)}))
            assert answer.code == 1
            assert answer.remark == f"can not find message by the offset, {offset}"
        assert replay(world, client, Command(33)).code == 1


def test_a_record_inside_a_body_that_names_another_place_is_not_given(tmp_path: Path) -> None:
    with MessageWorld(tmp_path) as world:
        client = world.connect()
        replay(world, client, send_command(body=b"real"))
        (real,) = world.records("Orders")
        inner = bytes(world.store.record_bytes(real.log_offset) or b"")
        answer = replay(world, client, send_command(body=inner))
        assert answer.code == 0
        outer = world.records("Orders")[-1]
        raw = bytes(world.store.record_bytes(outer.log_offset) or b"")
        place = outer.log_offset + raw.index(inner)

        asked = replay(world, client, Command(33, {"offset": str(place)}))

        assert (asked.code, asked.body) == (1, b"")
