"""Half messages that are kept in memory: the same as in the log, and not too many."""

from pathlib import Path

from broker_world import STORE_HOST
from orbitmq.broker.transactions.recent import RecentHalves
from orbitmq.message import AppendRequest, AppendResult, AppendStatus
from transaction_world import HALF_TOPIC, TransactionWorld


def result(log_offset: int, size: int) -> AppendResult:
    return AppendResult(AppendStatus.PUT_OK, log_offset, size, queue_offset=log_offset // 100)


def test_what_is_kept_equals_what_is_in_the_log(tmp_path: Path) -> None:
    with TransactionWorld(tmp_path) as world:
        world.half(b"paid", h=7, more={"KEYS": "k"})
        (stored,) = world.records(HALF_TOPIC)
        kept = world.transactions.recent.get(stored.log_offset)
        names = set(stored.__dataclass_fields__) - {"body_crc"}
        assert {name: getattr(kept, name) for name in names} == {
            name: getattr(stored, name) for name in names
        }


def test_the_oldest_go_when_it_is_too_much() -> None:
    recent = RecentHalves(STORE_HOST, bytes_max=250)
    for number in range(3):
        recent.add(AppendRequest(HALF_TOPIC, 0, b"x"), result(100 * number, 100))
    assert recent.get(0) is None
    assert recent.get(100) is not None
    recent.drop(100)
    recent.drop(100)
    assert recent.get(100) is None
    recent.add(AppendRequest(HALF_TOPIC, 0, b"x"), result(300, 100))
    assert recent.get(200) is not None


def test_one_that_is_too_large_by_itself_is_not_kept() -> None:
    recent = RecentHalves(STORE_HOST, bytes_max=50)
    recent.add(AppendRequest(HALF_TOPIC, 0, b"x"), result(0, 100))
    assert recent.get(0) is None


def test_what_ended_is_not_kept(tmp_path: Path) -> None:
    with TransactionWorld(tmp_path) as world:
        world.end(world.half())
        (stored,) = world.records(HALF_TOPIC)
        assert world.transactions.recent.get(stored.log_offset) is None
