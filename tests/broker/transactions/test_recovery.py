"""What a start finds out: nothing that was committed is committed again, nothing is forgotten."""

from pathlib import Path

from broker_world import STORE_HOST
from golden_stores import unpack
from orbitmq.broker.transactions.forms import op_message
from orbitmq.files.state_file import read_state
from orbitmq.format.record import decode_record
from orbitmq.message import SCHEDULE_TOPIC, AppendRequest
from orbitmq.testing.fake_clock import FakeClock
from transaction_world import CHECK_MAX_TOPIC, COMMIT, HALF_TOPIC, ROLLBACK, TransactionWorld

JAVA_STOPPED_MS = 1_794_768_930_000


def killed(world: TransactionWorld, root: Path) -> TransactionWorld:
    """Return the broker that is started after this one was killed: what it collected is lost."""
    offsets = world.context.offsets.snapshot()
    clock = world.clock
    world.turn()
    world.store.close()
    world.loop.close()
    again = TransactionWorld(root, clock=clock, offsets=offsets)
    again.transactions.start()
    return again


def test_a_committed_message_is_its_own_proof(tmp_path: Path) -> None:
    before = TransactionWorld(tmp_path)
    committed, waiting = before.half(b"yes"), before.half(b"later", key="K2")
    before.end(committed, oneway=True)
    assert before.ops() == []
    with killed(before, tmp_path) as world:
        producer = world.join()
        assert world.end(committed).code == 0
        world.round()
        (question,) = producer.take()
        assert decode_record(question.body).body == b"later"
        world.end(waiting, ROLLBACK)
        assert world.bodies() == [b"yes"]
        assert world.ops() == [b"0,2,"]


def test_an_end_that_an_op_message_lists_is_known(tmp_path: Path) -> None:
    before = TransactionWorld(tmp_path)
    yes, no, waiting = before.half(b"yes"), before.half(b"no", key="K2"), before.half(key="K3")
    before.end(yes)
    before.end(no, ROLLBACK)
    with killed(before, tmp_path) as world:
        producer = world.join()
        assert world.end(yes).code == 0
        assert world.end(no).code == 1
        assert world.end(no, ROLLBACK).code == 0
        world.round()
        assert [q.fields["msgId"] for q in producer.take()] == ["K3"]
        assert world.bodies() == [b"yes"]
        assert world.end(waiting).code == 0
        assert world.bodies() == [b"yes", b"paid"]


def test_a_copy_that_was_made_before_a_kill_is_not_asked_about_twice(tmp_path: Path) -> None:
    before = TransactionWorld(tmp_path)
    half = before.half()
    before.round()  # copied, and the offsets were not saved
    assert len(before.records(HALF_TOPIC)) == 2
    assert before.offsets() == (-1, -1)
    with killed(before, tmp_path) as world:
        producer = world.join()
        world.round()
        (question,) = producer.take()
        assert question.fields["tranStateTableOffset"] == "2"
        assert world.end(half).code == 0
        assert world.end(question).code == 0
        assert world.bodies() == [b"paid"]
        world.round()
        assert producer.take() == []


def test_a_delayed_message_of_a_transaction_is_committed_once(tmp_path: Path) -> None:
    before = TransactionWorld(tmp_path)
    half = before.half(more={"DELAY": "1"})
    before.end(half, oneway=True)
    before.later(1_000)
    with killed(before, tmp_path) as world:
        assert world.end(half).code == 0
        assert len(world.records(SCHEDULE_TOPIC, 0)) == 1


def test_what_lies_between_does_not_matter(tmp_path: Path) -> None:
    # Over several segments, with the commit in another one than its half message.
    before = TransactionWorld(tmp_path)
    half, waiting = before.half(b"yes"), before.half(b"later", key="K2")
    filler = [AppendRequest("Other", 0, bytes(30_000)) for _ in range(20)]
    before.store.append_many(filler)
    before.end(half, oneway=True)
    before.store.append_many(filler)
    with killed(before, tmp_path) as world:
        assert world.end(half).code == 0
        assert world.bodies() == [b"yes"]
        assert world.end(waiting).code == 0
        assert world.bodies() == [b"yes", b"later"]


def test_a_fresh_broker_saves_no_offsets(tmp_path: Path) -> None:
    with TransactionWorld(tmp_path) as world:
        world.transactions.start()
        world.round()
        world.transactions.stop()
        assert world.offsets() == (-1, -1)


def test_a_java_brokers_waiting_transactions_go_on(tmp_path: Path) -> None:
    root = unpack("mixed", tmp_path)
    sizes = {
        "segment_bytes": 65_536,
        "cq_file_bytes": 2_000,
        "index_slots": 500,
        "index_items": 400,
        "message_bytes_max": 32_768,
    }
    offsets = read_state(root / "config" / "consumerOffset.json")
    clock = FakeClock(JAVA_STOPPED_MS)
    with TransactionWorld(root, store=sizes, offsets=offsets, clock=clock) as world:
        counts = root / "config" / "transactionMetrics"
        world.transactions.counts.load(read_state(counts), counts)
        assert world.transactions.counts.snapshot()["transactionCount"]["GoldTx"]["count"] == 5
        table = world.transactions.table
        assert (table.checked, table.op_checked) == (110, 2)
        producer = world.join("Gold_tx_group")
        world.round()
        questions = producer.take()
        asked = [decode_record(question.body) for question in questions]
        assert len(asked) == 5
        assert {one.property_map["TRANSACTION_CHECK_TIMES"] for one in asked} == {"15"}
        before = len(world.records("GoldTx", asked[0].queue_id))
        answer = world.end(questions[0], COMMIT, producerGroup="Gold_tx_group")
        assert answer.code == 0
        assert len(world.records("GoldTx", asked[0].queue_id)) == before + 1
        world.round()
        assert len(world.records(CHECK_MAX_TOPIC)) == 4


def test_an_op_message_ends_no_half_message_that_lies_behind_it(tmp_path: Path) -> None:
    before = TransactionWorld(tmp_path)
    before.half(b"first")
    # As a power cut may leave it: the op message is there, the half message that it lists is not.
    op = op_message("1,", before.clock.now_ms(), STORE_HOST)
    before.store.append(op)
    before.half(b"second", key="K2")
    with killed(before, tmp_path) as world:
        producer = world.join()
        world.round()
        asked = [decode_record(question.body).body for question in producer.take()]
        assert asked == [b"first", b"second"]
