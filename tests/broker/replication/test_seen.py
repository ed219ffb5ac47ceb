"""What a primary and a replica tell of each other (907), and the list of services (28)."""

from pathlib import Path

import pytest

from async_run import until
from golden_frames import good_frames
from ha_world import SYNC, Peer, equal, primary, replica, send_many
from live_broker import LiveClient, run_live
from orbitmq.broker.broker import Broker
from orbitmq.broker.replication.rate import ByteRate
from orbitmq.errors import StoreFailedError
from orbitmq.store.clean import Cleaner
from orbitmq.testing import FakeClock
from orbitmq.wire.bodies.lists import KvTable
from orbitmq.wire.bodies.replication import ReplicationStatus
from orbitmq.wire.codes import RequestCode

NOBODY = "127.0.0.1:9"


async def status(broker: Broker) -> ReplicationStatus:
    answer = await LiveClient(broker.address).ask(RequestCode.GET_BROKER_HA_STATUS)
    assert answer.code == 0
    return ReplicationStatus.decode(answer.body)


async def services(broker: Broker) -> dict[str, str]:
    answer = await LiveClient(broker.address).ask(RequestCode.GET_BROKER_RUNTIME_INFO)
    table = KvTable.decode(answer.body).table
    return {k.removeprefix("service_"): v for k, v in table.items() if k.startswith("service_")}


def test_both_sides_tell_how_far_the_copy_is(tmp_path: Path) -> None:
    async def main() -> None:
        async with primary(tmp_path, ha_heartbeat_ms=50) as one:
            assert await status(one) == ReplicationStatus(master=True)
            began_ms = one.context.clock.now_ms()
            async with replica(tmp_path, one.ha_address, ha_heartbeat_ms=50) as other:
                await send_many(one, 50)
                await equal(one, other)
                end = one.context.store.max_log_offset

                async def reported() -> bool:
                    (link,) = (await status(one)).ha_connection_info
                    return link.slave_ack_offset == end

                await until(reported)
                seen, own = await status(one), await status(other)
                (link,) = seen.ha_connection_info
                assert (seen.master, seen.master_commit_log_max_offset) == (True, end)
                assert (seen.in_sync_slave_nums, link.in_sync, link.diff) == (1, True, 0)
                assert link.transfer_from_where == end
                assert link.addr.startswith("127.0.0.1:")
                assert link.addr != one.ha_address
                told = own.ha_client_runtime_info
                assert (own.master, own.ha_connection_info) == (False, [])
                assert (told.master_addr, told.max_offset) == (one.ha_address, end)
                now_ms = one.context.clock.now_ms()
                assert began_ms <= told.last_read_timestamp <= now_ms
                assert began_ms <= told.last_write_timestamp <= now_ms

                async def rates() -> bool:
                    (link,) = (await status(one)).ha_connection_info
                    own = (await status(other)).ha_client_runtime_info
                    return bool(link.transferred_byte_in_second and own.transferred_byte_in_second)

                await send_many(one, 1)
                await until(rates)

                one.config.in_sync_gap_bytes = 0
                seen = await status(one)
                assert (seen.in_sync_slave_nums, seen.ha_connection_info[0].in_sync) == (0, False)

            async def gone() -> bool:
                return not (await status(one)).ha_connection_info

            await until(gone)

    run_live(main)


def test_who_has_reported_nothing_is_not_in_sync(tmp_path: Path) -> None:
    async def main() -> None:
        async with primary(tmp_path, SYNC) as one:
            peer = await Peer.connect(one)

            async def connected() -> bool:
                return bool((await status(one)).ha_connection_info)

            await until(connected)
            seen = await status(one)
            assert (seen.in_sync_slave_nums, seen.ha_connection_info[0].in_sync) == (0, False)
            peer.close()

    run_live(main)


def test_the_answers_have_the_members_of_recorded_ones(tmp_path: Path) -> None:
    async def main() -> None:
        code = RequestCode.GET_BROKER_HA_STATUS
        recorded = [f.command for f in good_frames() if f.request_code == code]
        bodies = {c.body for c in recorded if c.is_response}
        assert len(bodies) == 4  # three of primaries, one of a replica
        async with primary(tmp_path) as one:
            answer = await LiveClient(one.address).ask(code)
            end = b'"masterCommitLogMaxOffset":'
            assert {body.partition(end)[0] for body in bodies if b'"master":true' in body} == {
                answer.body.partition(end)[0]
            }
            for body in bodies:
                assert ReplicationStatus.decode(body).encode() == body
            (epochs,) = {
                (f.command.code, f.command.remark)
                for f in good_frames()
                if f.request_code == 1007 and f.command.is_response
            }
            refused = await LiveClient(one.address).ask(1007)
            assert (refused.code, refused.remark) == epochs

    run_live(main)


def test_a_rate_is_that_of_the_last_whole_second() -> None:
    clock = FakeClock()
    rate, told = ByteRate(clock), []
    for step_ms, count in ((0, 5), (1000, 7), (500, 2), (500, 0), (1000, 0), (5000, 3)):
        clock.advance(step_ms)
        if count:
            rate.add(count)
        told.append(rate.per_second)

    assert told == [0, 5, 5, 9, 0, 0]


@pytest.mark.feature("F87")
def test_a_broker_lists_its_services(tmp_path: Path) -> None:
    async def main() -> None:
        async with primary(tmp_path) as one, replica(tmp_path, NOBODY) as other:
            found = await services(one)
            names = ("allocate", "dispatch", "statistics", "flush", "flush-queues", "clean")
            assert {name: found[name] for name in names} == dict.fromkeys(names, "running")
            assert found["index"] == "running, in dispatch"
            assert found["replication"] == "running, 0 connected"
            assert found["save-state"] == "running"
            assert "commit" not in found  # there is no transient pool

            async def tells_why() -> bool:
                return "not followed" in (await services(other))["replication"]

            await until(tells_why)
        async with primary(tmp_path, {"index_enabled": False}) as one:
            found = await services(one)
            assert found["index"] == "off"
            async with replica(tmp_path, one.ha_address) as other:

                async def both() -> bool:
                    states = [(await services(broker))["replication"] for broker in (one, other)]
                    return states == [
                        "running, 1 connected",
                        f"running, follows {one.ha_address}",
                    ]

                await until(both)

    run_live(main)


@pytest.mark.feature("F87")
def test_a_service_whose_thread_has_ended_is_listed_as_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bug(_cleaner: Cleaner) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(Cleaner, "tick", bug)
    found: dict[str, str] = {}

    async def main() -> None:
        async with primary(tmp_path) as one:
            one.context.store.delete_expired_now()  # its thread does a round now

            async def stopped() -> bool:
                found.update(await services(one))
                return found["clean"] == "stopped"

            await until(stopped, seconds=5)

    # What it raises hides a wait in vain: the list is looked at afterwards.
    with pytest.raises(StoreFailedError, match="thread clean ended"):
        run_live(main)
    assert (found["clean"], found["flush"]) == ("stopped", "running")
