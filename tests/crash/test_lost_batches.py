"""Records of batch queues that are lost between others: the queue goes on without a gap."""

import shutil
from pathlib import Path

import pytest

from crash.checker import History, broker_settings, check_after_crash
from crash.queue_files import by_queue, message_count
from crash.workload import BATCH_TOPIC, Ack, write_topics
from crash.writer import config
from orbitmq.files.disk import Disk
from orbitmq.format.record import Record
from orbitmq.message import AppendStatus
from orbitmq.store.config import StoreConfig
from orbitmq.store.offline.repair import repair_store
from orbitmq.store.store import MessageStore

MESSAGES = 120


@pytest.mark.parametrize("units_are_left", [True, False])
def test_a_lost_batch_leaves_no_gap_in_its_queue(units_are_left: bool, tmp_path: Path) -> None:
    settings, history, records = _killed_store(tmp_path / "store")
    lost = _smallest_batches(records)
    for record in lost:
        _lose(settings, history, record)
    if not units_are_left:  # as after a power cut: nothing tells how many messages there were
        _lose_units(settings)

    report = check_after_crash(settings, history, may_fill=True)

    filled = [one for repair in report.repairs for one in repair.lost]
    assert [repair.left_out for repair in report.repairs] == [()] * len(lost)
    assert [(one.queue_offset, one.batch_count) for one in filled] == [
        (int(record.property_map["INNER_BASE"]), message_count(record)) for record in lost
    ]


def test_a_dry_run_of_a_repair_tells_the_same(tmp_path: Path) -> None:
    settings, history, records = _killed_store(tmp_path / "store")
    for record in _smallest_batches(records):
        _lose(settings, history, record)
    _lose_units(settings)
    planned = repair_store(settings.root, broker_settings(settings), dry_run=True)

    report = check_after_crash(settings, history, may_fill=True)

    assert [repair.lost for repair in planned.plan.repairs] == [r.lost for r in report.repairs]
    assert all(repair.lost for repair in report.repairs)


def _killed_store(root: Path) -> tuple[StoreConfig, History, list[Record]]:
    """Return a store that was not stopped, what its writer was told, and its records."""
    live = config(root.with_name("live"), "sync")
    history = History(seed=20_261_118, batches=True)
    write_topics(live.root, Disk())
    records = []
    with MessageStore.open(live, background=False) as store:
        for number in range(MESSAGES):
            result = store.append(history.request(number))
            assert result.status is AppendStatus.PUT_OK
            history.learn([Ack(number, result.log_offset, result.queue_offset, result.size)])
            record = store.record_at(result.log_offset)
            assert record is not None
            records.append(record)
        assert store.wait_dispatched(timeout=60)
        store._parts.dispatcher.queues.write_out(thorough=True)
        store._parts.dispatcher.batch_queues.write_out()
        store.flush()
        shutil.copytree(live.root, root)
    return config(root, "sync"), history, records


def _smallest_batches(records: list[Record]) -> list[Record]:
    """Return, of each batch queue, the batch with the least bytes for each of its messages."""
    queues = [queue for (topic, _), queue in by_queue(records).items() if topic == BATCH_TOPIC]
    inside = [[one for one in queue[1:-1] if message_count(one) > 2] for queue in queues]
    found = [min(queue, key=lambda one: one.size / message_count(one)) for queue in inside if queue]
    assert len(found) > 1
    return sorted(found, key=lambda one: one.log_offset)


def _lose_units(settings: StoreConfig) -> None:
    for name in ("consumequeue", "batchconsumequeue"):
        shutil.rmtree(settings.root / name)


def _lose(settings: StoreConfig, history: History, record: Record) -> None:
    base = record.log_offset - record.log_offset % settings.segment_bytes
    with (settings.root / "commitlog" / f"{base:020d}").open("r+b") as file:
        file.seek(record.log_offset - base)
        file.write(bytes(record.size))
    (number,) = [n for n, ack in history.acked.items() if ack.log_offset == record.log_offset]
    del history.acked[number]
