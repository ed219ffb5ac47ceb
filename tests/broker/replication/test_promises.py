"""With several replicas: the others leave the primary before, for the one that comes after it."""

from pathlib import Path

import pytest

from async_run import until
from ha_world import SYNC, equal, primary, replica, send_many
from live_broker import LiveClient, run_live
from orbitmq.broker.replication.promises import Promises
from orbitmq.store.config import Role
from orbitmq.store.epochs import EpochFile
from orbitmq.wire.bodies.replication import PromiseBody
from orbitmq.wire.codes import RequestCode, ResponseCode
from promotion_world import became, ending, epochs, name_server, promote

pytestmark = pytest.mark.feature("F84")


def test_the_other_replicas_leave_a_primary_that_goes_on_and_follow_the_one_after_it(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        given = {"in_sync_replicas": 2, "replica_timeout_ms": 10_000}
        async with name_server() as names, ending() as started:
            one = primary(tmp_path, SYNC, **names, **given)
            other = replica(tmp_path / "other", **names, **given)
            third = replica(tmp_path / "third", broker_id=2, **names, **given)
            for broker in (one, other, third):
                started.append(broker)
                await broker.start()
            for broker in (other, third):
                await until(lambda broker=broker: broker.context.replication.connected)
            assert set(await send_many(one, 20)) == {0}
            # As if it was paused, and nobody could tell it anything: it is the primary still.
            one._succession.is_above = lambda its: False  # type: ignore[method-assign]
            one.config.replica_timeout_ms = 200
            assert (await promote(other, force=True)).code == 0
            assert set(await send_many(one, 2)) == {ResponseCode.FLUSH_SLAVE_TIMEOUT}
            await became(other, Role.SYNC_PRIMARY)
            assert set(await send_many(other, 20)) == {0}
            await equal(other, third)
            await until(lambda: not other._succession.epochs.role.others)  # all were told
            promised = third._succession.epochs.promised
            assert (promised, await epochs(third)) == (2, await epochs(other))

    run_live(main, seconds=60)


def test_a_promise_is_on_disk_when_it_is_given(tmp_path: Path) -> None:
    async def main() -> None:
        async with primary(tmp_path) as one, replica(tmp_path, one.ha_address) as other:
            body = PromiseBody(broker_name=other.config.name, number=7).encode()
            answer = await LiveClient(other.address).ask(RequestCode.PROMISE_EPOCH, body=body)
            assert answer.code == ResponseCode.SUCCESS
            assert EpochFile(other.config.store.layout().epochs, None).read().promised == 7

    run_live(main)


def test_a_replica_promises_nothing_to_others_than_those_of_its_name(tmp_path: Path) -> None:
    async def main() -> None:
        async with primary(tmp_path) as one, replica(tmp_path, one.ha_address) as other:
            for broker, name in ((one, one.config.name), (other, "another")):
                body = PromiseBody(broker_name=name, number=7).encode()
                answer = await LiveClient(broker.address).ask(RequestCode.PROMISE_EPOCH, body=body)
                assert answer.code == ResponseCode.ILLEGAL_OPERATION
            assert other._succession.epochs.promised == 0
            await send_many(one, 5)
            await equal(one, other)

    run_live(main)


@pytest.mark.parametrize(
    ("given", "refused", "in_sync", "problem"),
    [
        ({}, {}, 2, ""),
        ({"b:1": 100}, {}, 2, ""),
        ({"b:1": 101}, {}, 1, "b:1 has 1 bytes more: promote that one"),
        ({"b:1": 100}, {"c:1": "away"}, 3, ""),
        ({"b:1": 100}, {"c:1": "away"}, 2, "c:1: away"),
        ({}, {"c:1": "away"}, 1, ""),  # a primary that waits for nobody cannot be kept from it
    ],
)
def test_who_has_not_promised_may_be_too_few_for_the_primary_before(
    given: dict[str, int], refused: dict[str, str], in_sync: int, problem: str
) -> None:
    found = Promises(2, given, refused).problem(100, in_sync)
    assert problem in found
    assert bool(found) == bool(problem)
