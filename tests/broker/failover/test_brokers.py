"""Brokers of one name and a coordinator that a test owns: who is the primary, what is acknowledged."""

from pathlib import Path
from typing import Any

import pytest

from async_run import until
from failover_world import FakeCoordinator, FakeEtcd, member_broker
from ha_world import Peer, equal, send_many
from live_broker import LiveClient, run_live
from orbitmq.broker.broker import Broker
from orbitmq.errors import WireError
from orbitmq.store import epochs as store_epochs
from orbitmq.store.flags import Flag
from orbitmq.wire.bodies.failover import FailoverState, Member
from orbitmq.wire.bodies.replication import EpochsAnswer
from orbitmq.wire.codes import RequestCode, ResponseCode
from promotion_world import ending

pytestmark = pytest.mark.feature("F84")

TWO: dict[str, Any] = {"in_sync_replicas": 2, "replica_timeout_ms": 300}
AUTO: dict[str, Any] = {**TWO, "auto_in_sync": True, "sync_lag_ms": 300}


def is_there(broker: Broker) -> bool:
    return broker._context is not None and broker._restarting is None


def is_primary(broker: Broker) -> bool:
    """Tell whether it has the lease, and its store knows: that is told the store a turn later."""
    there = is_there(broker) and not broker.config.is_replica
    if not there or not broker.context.failover.is_primary:
        return False
    return not broker.context.store.flags.bits & Flag.FENCED


def follows(broker: Broker) -> bool:
    there = is_there(broker) and broker.config.is_replica
    return there and broker.context.replication.connected


def in_sync(etcd: FakeEtcd) -> set[str]:
    return {member.address for member in etcd.state.in_sync} if etcd.state is not None else set()


async def started(
    brokers: list[Broker], root: Path, etcd: FakeEtcd, count: int = 2, **given: Any
) -> list[FakeCoordinator]:
    """Start a primary and its replicas; all are in sync."""
    ways = []
    for broker_id in range(count):
        broker, way = member_broker(root / str(broker_id), etcd, broker_id, **(TWO | given))
        brokers.append(broker)
        ways.append(way)
        await broker.start()
    await until(lambda: len(in_sync(etcd)) == count)
    return ways


async def codes_of(broker: Broker, count: int = 3) -> set[int]:
    """Send to a broker that may start again meanwhile; return what it answered."""
    client, codes = LiveClient(broker.address), set()
    for _ in range(count):
        try:
            codes.add((await client.send("T", b"x")).code)
        except WireError:
            break
    return codes


async def told(broker: Broker) -> EpochsAnswer:
    answer = await LiveClient(broker.address).ask(RequestCode.GET_EPOCHS)
    return EpochsAnswer.decode(answer.body)


async def promote(broker: Broker, *, force: bool = True) -> tuple[int, str]:
    fields = {"force": "true"} if force else {}
    answer = await LiveClient(broker.address).ask(RequestCode.PROMOTE_REPLICA, fields)
    return answer.code, answer.remark or ""


def test_a_replica_takes_over_when_the_lease_ends_and_the_primary_before_follows_it(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        etcd = FakeEtcd()
        async with ending() as brokers:
            ways = await started(brokers, tmp_path, etcd, **AUTO)
            one, other = brokers
            assert set(await send_many(one, 20)) == {0}
            ways[0].is_away = True
            etcd.end_lease()
            await until(lambda: is_primary(other))
            acknowledged = 0 in await codes_of(one) if is_there(one) else False
            assert not acknowledged
            assert (etcd.state.epoch, other._succession.epochs.number) == (2, 2)
            assert set(await send_many(other, 20)) == {0}
            ways[0].is_away = False
            await until(lambda: follows(one))
            await until(lambda: len(in_sync(etcd)) == 2)
            assert set(await send_many(other, 20)) == {0}
            await equal(other, one)

    run_live(main, seconds=60)


def test_a_primary_that_is_stopped_gives_its_place_away_at_once(tmp_path: Path) -> None:
    async def main() -> None:
        etcd = FakeEtcd()
        async with ending() as brokers:
            ways = await started(brokers, tmp_path, etcd, **AUTO, failover_lease_ms=600_000)
            one, other = brokers
            await one.stop()
            await until(lambda: is_primary(other), seconds=10)
            assert ways[0].is_closed
            await one.start()
            await until(lambda: follows(one))
            assert set(await send_many(other, 3)) == {0}

    run_live(main, seconds=60)


def test_without_its_coordinator_a_primary_goes_on_until_its_lease_ends(tmp_path: Path) -> None:
    async def main() -> None:
        etcd = FakeEtcd()
        async with ending() as brokers:
            ways = await started(brokers, tmp_path, etcd)
            way, one = ways[0], brokers[0]
            assert set(await send_many(one, 3)) == {0}
            for each in ways:  # nobody reaches it, so nobody takes over
                each.is_away = True
            assert set(await send_many(one, 3)) == {0}
            await until(lambda: not is_primary(one))
            answer = await LiveClient(one.address).send("T", b"late")
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert "no lease says that this broker is the primary" in answer.remark
            assert "away" in answer.remark
            way.is_away = False
            await until(lambda: is_primary(one))
            assert set(await send_many(one, 3)) == {0}
            assert etcd.state.epoch == 1

    run_live(main, seconds=60)


def test_what_is_answered_late_is_not_acknowledged_when_the_lease_has_ended_meanwhile(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        etcd = FakeEtcd()
        async with ending() as brokers:
            await started(brokers, tmp_path, etcd)
            one, other = brokers
            lease = one.context.failover._lease
            taken = other.context.store.replication.take
            until_ms = lease._until_ms

            def take(log_offset: int, data: memoryview) -> None:
                lease._until_ms = 0.0  # as after a pause: the clock has gone on, no timer has run
                taken(log_offset, data)

            other.context.replication._log.take = take  # type: ignore[method-assign]
            one.context.failover._lease.keep = _nothing  # type: ignore[method-assign]
            answer = await LiveClient(one.address).send("T", b"in between")
            assert answer.code == ResponseCode.FLUSH_SLAVE_TIMEOUT
            assert until_ms > 0

    run_live(main)


async def _nothing() -> bool:
    return False


def test_answers_wait_for_all_who_may_take_over(tmp_path: Path) -> None:
    async def main() -> None:
        etcd = FakeEtcd()
        async with ending() as brokers:
            given = {"in_sync_replicas": 1, "sync_lag_ms": 600_000}
            await started(brokers, tmp_path, etcd, count=3, **given)
            one, other, third = brokers
            assert set(await send_many(one, 3)) == {0}
            await third.stop()
            # Two have it, and one would be enough: but the third may take over, and has not.
            assert await codes_of(one, 1) == {ResponseCode.FLUSH_SLAVE_TIMEOUT}
            one.config.sync_lag_ms = 1
            await until(lambda: len(in_sync(etcd)) == 2)
            assert set(await send_many(one, 3)) == {0}
            assert in_sync(etcd) == {one.address, other.address}

    run_live(main, seconds=60)


def test_the_set_gets_no_smaller_than_what_answers_need(tmp_path: Path) -> None:
    async def main() -> None:
        etcd = FakeEtcd()
        async with ending() as brokers:
            await started(brokers, tmp_path, etcd, sync_lag_ms=1)
            one, other = brokers
            there = other.address
            await other.stop()
            assert await codes_of(one, 1) == {ResponseCode.FLUSH_SLAVE_TIMEOUT}
            assert in_sync(etcd) == {one.address, there}
            await other.start()
            await until(lambda: follows(other))
            one.config.replica_timeout_ms = 10_000
            assert await codes_of(one, 1) == {0}

    run_live(main, seconds=60)


def test_who_may_lack_something_does_not_take_over_and_is_promoted_by_force_only(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        etcd = FakeEtcd()
        async with ending() as brokers:
            given = {"in_sync_replicas": 1, "sync_lag_ms": 1}
            await started(brokers, tmp_path, etcd, **given)
            one, other = brokers
            await other.stop()
            await until(lambda: len(in_sync(etcd)) == 1)
            assert set(await send_many(one, 3)) == {0}  # it alone has them
            alone = one.address
            await one.stop()
            await other.start()
            failover = other.context.failover
            await until(lambda: "it may lack" in failover.told().state)
            said = failover.told()
            assert (said.may, said.has_primary, said.in_sync) == (False, False, [alone])
            code, remark = await promote(other, force=False)
            assert code == ResponseCode.ILLEGAL_OPERATION
            assert "in sync are" in remark
            assert (await promote(other))[0] == 0
            await until(lambda: is_primary(other))
            assert in_sync(etcd) == {other.address}
            assert set(await send_many(other, 3)) == {0}
            await one.start()
            await until(lambda: follows(one))
            await equal(other, one)
            code, remark = await promote(one)
            assert (code, "has the lease" in remark) == (ResponseCode.ILLEGAL_OPERATION, True)

    run_live(main, seconds=60)


def test_a_coordinator_that_forgot_everything_makes_nobody_the_primary(tmp_path: Path) -> None:
    async def main() -> None:
        etcd = FakeEtcd()
        async with ending() as brokers:
            await started(brokers, tmp_path, etcd)
            one, other = brokers
            assert set(await send_many(one, 3)) == {0}
            etcd.forget()
            for broker in (one, other):
                failover = broker.context.failover
                await until(lambda failover=failover: "has forgotten" in failover._why)
            assert await codes_of(one, 1) == {ResponseCode.SYSTEM_ERROR}
            assert (await promote(one))[0] == 0
            await until(lambda: is_primary(one) and follows(other) and len(in_sync(etcd)) == 2)
            assert etcd.state.epoch == 2
            assert set(await send_many(one, 3)) == {0}

    run_live(main, seconds=60)


def test_a_log_that_may_have_lost_its_end_with_the_power_may_not_take_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        etcd = FakeEtcd()
        async with ending() as brokers:
            await started(brokers, tmp_path, etcd, sync_lag_ms=200)
            one, other = brokers
            assert set(await send_many(one, 3)) == {0}
            before = other._succession.member
            for broker in (other, one):
                await broker.stop()
            layout = other.config.store.layout()
            layout.abort.write_text("1")  # a kill: what was written is in the page cache
            await other.start()
            assert other._succession.member == before
            await other.stop()
            boot = tmp_path / "boot_id"
            boot.write_text("another start of the machine")
            monkeypatch.setattr(store_epochs, "_BOOT_ID", boot)
            layout.abort.write_text("1")
            await other.start()
            assert other._succession.member != before
            etcd.end_lease()
            await until(lambda: "it may lack" in other.context.failover.told().state)
            await one.start()  # closed in order: it has everything, whatever the machine did
            await until(lambda: is_primary(one))
            own = {one._succession.member, other._succession.member}
            await until(lambda: {member.id for member in etcd.state.in_sync} == own)
            assert await codes_of(one, 1) == {0}

    run_live(main, seconds=60)


def test_who_was_interrupted_between_the_lease_and_its_disk_goes_on_under_the_same_epoch(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        etcd = FakeEtcd()
        async with ending() as brokers:
            await started(brokers, tmp_path, etcd, **AUTO)
            one, other = brokers
            assert set(await send_many(one, 3)) == {0}
            own = Member(id=other._succession.member, address=other.address)
            for broker in (other, one):
                await broker.stop()
            etcd.put(FailoverState(epoch=7, primary=own, in_sync=(own,)))
            await other.start()
            await until(lambda: is_primary(other))
            assert (etcd.state.epoch, other._succession.epochs.number) == (7, 7)
            assert set(await send_many(other, 3)) == {0}

    run_live(main, seconds=60)


def test_a_connection_that_says_no_token_counts_for_nobody(tmp_path: Path) -> None:
    async def main() -> None:
        etcd = FakeEtcd()
        async with ending() as brokers:
            await started(brokers, tmp_path, etcd)
            one, other = brokers
            await other.stop()
            peer = await Peer.connect(one)
            peer.report(one.context.store.max_log_offset)
            client = LiveClient(one.address)
            pending = client.send("T", b"x")
            answer = await pending
            assert answer.code == ResponseCode.FLUSH_SLAVE_TIMEOUT
            peer.close()
            stranger = await Peer.connect(one)
            stranger.report(-12345)
            assert await stranger.is_closed()

    run_live(main)
