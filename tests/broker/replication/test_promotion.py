"""A replica becomes the primary, and the primary before it comes back as its replica: brokers, live."""

from pathlib import Path

import pytest

from async_run import until
from ha_world import SYNC, equal, log_bytes, primary, replica, send_many
from live_broker import LOOPBACK, LiveClient, run_live
from orbitmq.errors import StateFileError, WireError
from orbitmq.files.disk import Disk
from orbitmq.store.config import Role
from orbitmq.store.cut import wish_cut
from orbitmq.store.store import MessageStore
from orbitmq.wire.bodies.replication import (
    FollowBody,
    PromotedAnswer,
)
from orbitmq.wire.codes import RequestCode, ResponseCode
from promotion_world import became, ending, epochs, name_server, promote
from quarantine_journal import kept_log

pytestmark = pytest.mark.feature("F84")


@pytest.mark.feature("F84")
def test_a_former_primary_comes_back_as_a_replica_and_its_extra_tail_is_kept(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async with name_server() as names, ending() as started:
            one, other = primary(tmp_path, **names), replica(tmp_path, **names)
            started += [one, other]
            await one.start()
            await other.start()
            assert set(await send_many(one, 100)) == {0}
            await equal(one, other)
            await other.stop()
            common = one.context.store.max_log_offset
            assert set(await send_many(one, 800, topic="Lost")) == {0}  # into the next segments
            tail = log_bytes(one.context.store)[common:]
            await one.stop()

            await other.start()
            refused = await promote(other)
            assert refused.code == ResponseCode.ILLEGAL_OPERATION
            assert "has not heard of its primary" in refused.remark
            answer = await promote(other, force=True)
            assert PromotedAnswer.decode(answer.body).start == common
            await became(other, Role.ASYNC_PRIMARY)
            assert other.config.broker_id == 0
            assert await epochs(other) == [(1, 0), (2, common)]
            assert set(await send_many(other, 70)) == {0}

            await one.start()
            await became(one, Role.REPLICA)
            await until(lambda: one._context is not None and one.context.replication.connected)
            await equal(other, one)
            assert one.config.broker_id == 1
            assert await epochs(one) == await epochs(other)
            assert one.context.store.max_offset("Lost", 0) == 0
            kept = tmp_path / "primary" / "orbitmq.quarantine"
            assert kept_log(kept, common, len(tail)) == tail
            assert set(await send_many(other, 30)) == {0}
            await equal(other, one)

            # Both stay what they became.
            for broker in (one, other):
                await broker.stop()
            await other.start()
            await one.start()
            assert (one.config.is_replica, other.config.is_replica) == (True, False)
            assert set(await send_many(other, 10)) == {0}
            await equal(other, one)

    run_live(main, seconds=60)


def test_a_primary_whose_replica_was_promoted_acknowledges_nothing_and_follows(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        given = {"in_sync_replicas": 2, "replica_timeout_ms": 200}
        async with (
            name_server() as names,
            primary(tmp_path, SYNC, **names, **given) as one,
            replica(tmp_path, **names, **given) as other,
        ):
            assert (await promote(one, force=True)).code == ResponseCode.ILLEGAL_OPERATION
            one.config.replica_timeout_ms = 10_000
            assert set(await send_many(one, 20)) == {0}
            await until(lambda: other.context.replication.connected)
            refused = await promote(other)
            assert refused.code == ResponseCode.ILLEGAL_OPERATION
            assert "is alive" in refused.remark
            one.config.replica_timeout_ms = 200

            assert (await promote(other, force=True)).code == 0
            codes: list[int] = []
            client = LiveClient(one.address)
            while not one.config.is_replica:
                try:
                    codes.append((await client.send("T", b"too late")).code)
                except WireError:  # it is starting again
                    break
            assert 0 not in codes
            await became(other, Role.SYNC_PRIMARY)
            await became(one, Role.REPLICA)
            other.config.replica_timeout_ms = 10_000
            await until(lambda: one._context is not None and one.context.replication.connected)
            assert set(await send_many(other, 20)) == {0}
            await equal(other, one)
            await until(lambda: not other._succession.decided.former)

    run_live(main)


def test_a_replica_refuses_a_primary_that_was_one_before(tmp_path: Path) -> None:
    async def main() -> None:
        async with name_server() as names, ending() as started:
            one, other = primary(tmp_path, **names), replica(tmp_path, **names)
            started += [one, other]
            third = replica(tmp_path / "third", **names, broker_id=2)
            started.append(third)
            for broker in (one, other, third):
                await broker.start()
            await send_many(one, 10)
            await equal(one, other)
            await one.stop()
            assert (await promote(other, force=True)).code == 0
            await became(other, Role.ASYNC_PRIMARY)
            await send_many(other, 10)
            await equal(other, third)
            await other.stop()
            end = third.context.store.max_log_offset

            await one.start()  # it hears of nobody: the one after it is away
            assert not one.config.is_replica
            await send_many(one, 40)
            third.context.registration.register_now()
            await until(lambda: "was a primary before" in third.context.replication.state)
            assert third.context.store.max_log_offset == end

    run_live(main, seconds=60)


def test_what_a_primary_lost_stays_at_its_replica_which_says_so(tmp_path: Path) -> None:
    async def main() -> None:
        async with name_server() as names, ending() as started:
            one, other = primary(tmp_path, **names), replica(tmp_path, **names)
            started += [one, other]
            await one.start()
            await send_many(one, 10)
            there = one.context.store.max_log_offset
            await other.start()
            await send_many(one, 10)
            await equal(one, other)
            end = other.context.store.max_log_offset
            await one.stop()
            # As a power cut leaves it: the end of the log is gone, and nobody stopped it in order.
            layout = one.config.store.layout()
            wish_cut(layout, Disk(), there, "lost")
            MessageStore.open(one.config.store, background=False).close()
            layout.abort.write_text("1")
            await one.start()
            assert await epochs(one) == [(1, 0), (1, there)]
            await send_many(one, 20)

            def has_heard() -> bool:
                other.context.registration.register_now()  # its primary may have come back just now
                return "that it lost: promote" in other.context.replication.state

            await until(has_heard, seconds=30)
            assert other.context.store.max_log_offset == end
            assert (await promote(other, force=True)).code == 0
            await became(other, Role.ASYNC_PRIMARY)
            await became(one, Role.REPLICA)
            await until(lambda: one._context is not None and one.context.replication.connected)
            await equal(other, one)

    run_live(main, seconds=60)


def test_a_new_primary_skips_nothing_for_a_group_that_had_read_more_than_it_has(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async with name_server() as names, ending() as started:
            one, other = primary(tmp_path, **names), replica(tmp_path, **names)
            started += [one, other]
            await one.start()
            await other.start()
            await send_many(one, 8)
            one.context.offsets.commit("G", "T", 0, 900)
            one.context.offsets.commit("G", "T", 1, 1)
            await until(lambda: other.context.offsets.get("G", "T", 0) == 900)
            await equal(one, other)
            await one.stop()
            await until(lambda: not other.context.replication.connected)
            assert (await promote(other)).code == 0  # it heard of its primary, and lacks nothing
            await became(other, Role.ASYNC_PRIMARY)
            assert other.context.offsets.get("G", "T", 0) == 2
            assert other.context.offsets.get("G", "T", 1) == 1
            await one.start()
            await became(one, Role.REPLICA)
            await until(lambda: one.context.offsets.get("G", "T", 0) == 2)

    run_live(main, seconds=60)


def test_another_role_in_the_configuration_ends_what_was_decided(tmp_path: Path) -> None:
    async def main() -> None:
        async with replica(tmp_path) as other:
            assert (await promote(other, force=True)).code == 0
            await became(other, Role.ASYNC_PRIMARY)
            assert set(await send_many(other, 5)) == {0}
        async with replica(tmp_path) as other:
            assert not other.config.is_replica
        async with replica(tmp_path, broker_id=2) as other:
            assert other.config.is_replica
        async with replica(tmp_path) as other:
            assert other.config.is_replica

    run_live(main)


def test_a_replica_that_lacks_much_is_not_promoted(tmp_path: Path) -> None:
    async def main() -> None:
        async with name_server() as names, ending() as started:
            one, other = primary(tmp_path, **names), replica(tmp_path, **names)
            started += [one, other]
            await one.start()
            await other.start()
            await send_many(one, 10)
            await equal(one, other)
            await one.stop()
            replication = other.context.replication
            await until(lambda: not replication.connected)
            replication.primary_end += 5000  # as it tells when it is ahead
            other.config.in_sync_gap_bytes = 5000
            refused = await promote(other)
            assert refused.code == ResponseCode.ILLEGAL_OPERATION
            assert "it lacks 5000 bytes (haMaxGapNotInSync)" in refused.remark
            other.config.in_sync_gap_bytes = 5001
            answer = await promote(other)
            assert PromotedAnswer.decode(answer.body).lacked == 5000

    run_live(main)


def test_a_primary_that_starts_finds_who_came_after_it_before_it_serves(tmp_path: Path) -> None:
    async def main() -> None:
        async with name_server() as names, ending() as started:
            one, other = primary(tmp_path, **names), replica(tmp_path, **names)
            started += [one, other]
            await one.start()
            await other.start()
            await send_many(one, 10)
            await equal(one, other)
            await one.stop()
            await until(lambda: not other.context.replication.connected)
            assert (await promote(other)).code == 0
            await became(other, Role.ASYNC_PRIMARY)
            other._succession.heard(other._succession.decided.former)  # nobody tells it
            await one.start()
            assert one.config.is_replica
            await equal(other, one)

    run_live(main)


def test_a_broker_that_cannot_start_again_says_so_to_who_runs_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with replica(tmp_path) as other:
            ended: list[str] = []
            other.on_failure = lambda: ended.append("told")
            other.config.store.layout().epochs.write_text("{")
            other._succession.restart("as if it had been promoted")
            await until(lambda: ended)
            assert isinstance(other.failure, StateFileError)

    run_live(main)


def test_a_primary_follows_nobody_who_only_says_that_it_is_to(tmp_path: Path) -> None:
    async def main() -> None:
        async with primary(tmp_path) as one, primary(tmp_path / "second") as other:
            await send_many(one, 5)
            client = LiveClient(one.address)
            for address in (other.address, one.address, f"{LOOPBACK}:1", "nonsense"):
                body = FollowBody(address=address).encode()
                answer = await client.ask(RequestCode.FOLLOW_PRIMARY, body=body)
                assert answer.code in (ResponseCode.ILLEGAL_OPERATION, ResponseCode.SYSTEM_ERROR)
                assert address in answer.remark
            assert set(await send_many(one, 5)) == {0}

    run_live(main)
