"""Brokers of ours as primary and replica, over real sockets."""

import asyncio
import os
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from async_run import until
from ha_world import SYNC, Peer, equal, log_bytes, primary, replica, send_many
from live_broker import LOOPBACK, LiveClient, run_live
from orbitmq.broker.replication import link
from orbitmq.broker.replication.link import LARGE_FRAME_BYTES, LARGE_FRAME_BYTES_MAX
from orbitmq.namesrv.config import NamesrvConfig
from orbitmq.namesrv.server import NameServer
from orbitmq.store.config import FlushMode
from orbitmq.wire.codes import ResponseCode


@pytest.mark.feature("F84")
def test_a_replica_finds_its_primary_by_the_name_server_and_has_its_log(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncExitStack() as stack:
            server = NameServer(NamesrvConfig(host=LOOPBACK, port=0))
            await server.start()
            stack.push_async_callback(server.stop)
            names = {"namesrv": (server.address,)}
            one = await stack.enter_async_context(primary(tmp_path, **names))
            assert set(await send_many(one, 700)) == {0}
            other = await stack.enter_async_context(replica(tmp_path, **names))
            await equal(one, other)
            assert one.context.store.max_log_offset > 256 * 1024  # a blank and a second segment
            await send_many(one, 100)
            await equal(one, other)
            (key,) = [key for key in other.context.store.queues() if key == ("T", 1)]
            found = other.context.store.get(*key, 0)
            assert len(found.records) == 32

    run_live(main)


def test_a_replica_takes_no_messages_of_its_own(tmp_path: Path) -> None:
    async def main() -> None:
        async with primary(tmp_path) as one, replica(tmp_path, one.ha_address) as other:
            await send_many(one, 1)
            await equal(one, other)
            (code,) = await send_many(other, 1)
            assert code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert other.context.store.max_log_offset == one.context.store.max_log_offset

    run_live(main)


def test_either_side_may_come_back(tmp_path: Path) -> None:
    async def main() -> None:
        async with primary(tmp_path) as one:
            port = one.ha_address.rpartition(":")[2]
            await send_many(one, 100)
            async with replica(tmp_path, one.ha_address) as other:
                await equal(one, other)
            await send_many(one, 600)
        async with replica(tmp_path, f"{LOOPBACK}:{port}") as other:
            async with primary(tmp_path, ha_port=int(port)) as one:
                await equal(one, other)
            async with primary(tmp_path, ha_port=int(port)) as one:
                await send_many(one, 100)
                await equal(one, other)

    run_live(main, seconds=60)


@pytest.mark.feature("F84")
def test_a_sync_primary_answers_when_enough_have_it(tmp_path: Path) -> None:
    async def main() -> None:
        given = {"in_sync_replicas": 2, "replica_timeout_ms": 300}
        async with primary(tmp_path, SYNC, **given) as one:
            assert await send_many(one, 1) == [ResponseCode.FLUSH_SLAVE_TIMEOUT]
            async with replica(tmp_path, one.ha_address) as other:
                await equal(one, other)
                one.config.replica_timeout_ms = 10_000
                assert set(await send_many(one, 200)) == {0}
                assert other.context.store.max_log_offset == one.context.store.max_log_offset
            one.config.replica_timeout_ms = 300
            assert await send_many(one, 1) == [ResponseCode.FLUSH_SLAVE_TIMEOUT]
            one.config.in_sync_replicas = 1
            assert await send_many(one, 1) == [0]

    run_live(main)


def test_both_disks_have_what_is_answered_with_sync_flush_on_both_sides(tmp_path: Path) -> None:
    async def main() -> None:
        sync = {**SYNC, "flush_mode": FlushMode.SYNC}
        async with (
            primary(tmp_path, sync, in_sync_replicas=2, replica_timeout_ms=10_000) as one,
            replica(tmp_path, one.ha_address, {"flush_mode": FlushMode.SYNC}) as other,
        ):
            for _ in range(20):
                assert await send_many(one, 1) == [0]
                end = one.context.store.max_log_offset
                assert one.context.store.flushed_offset == end
                assert other.context.store.flushed_offset == end

    run_live(main)


@pytest.mark.feature("F86")
def test_with_rocketmq_4s_meaning_nobody_waits_for_a_replica_that_is_not_there(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        given = {"sync_as_v4": True, "replica_timeout_ms": 60_000}
        async with primary(tmp_path, SYNC, **given) as one:
            assert await send_many(one, 2) == [ResponseCode.SLAVE_NOT_AVAILABLE] * 2
            async with replica(tmp_path, one.ha_address) as other:
                await equal(one, other)
                assert await send_many(one, 2) == [0, 0]
                one.config.in_sync_gap_bytes = 1
                # It lacks the message that is being sent: that much is too much now.
                assert await send_many(one, 1) == [ResponseCode.SLAVE_NOT_AVAILABLE]
                one.config.in_sync_gap_bytes = 1 << 28
                assert await send_many(one, 1) == [0]
            replicas = one.context.replicas
            await until(lambda: replicas is not None and replicas.count == 1)
            assert await send_many(one, 1) == [ResponseCode.SLAVE_NOT_AVAILABLE]

    run_live(main)


def test_messages_are_refused_when_too_few_are_in_sync(tmp_path: Path) -> None:
    async def main() -> None:
        given = {"min_in_sync_replicas": 2, "auto_in_sync": True, "in_sync_replicas": 3}
        async with primary(tmp_path, SYNC, **given, replica_timeout_ms=10_000) as one:
            answer = await LiveClient(one.address).send("T", b"x")
            assert (answer.code, answer.remark) == (
                ResponseCode.SYSTEM_ERROR,
                "in-sync replicas not enough: 1 of 2 (minInSyncReplicas)",
            )
            assert one.context.store.max_log_offset == 0
            async with replica(tmp_path, one.ha_address) as other:
                await until(lambda: one.context.replicas and not one.context.replicas.refusal)
                # Three are wanted and two are there: as many as are in sync have to do.
                assert await send_many(one, 3) == [0, 0, 0]
                await equal(one, other)

    run_live(main)


def test_reports_that_cannot_be_release_nothing_and_end_the_connection(tmp_path: Path) -> None:
    async def main() -> None:
        given = {"in_sync_replicas": 2, "replica_timeout_ms": 60_000}
        async with primary(tmp_path, SYNC, **given) as one:
            store, client = one.context.store, LiveClient(one.address)
            sending = asyncio.create_task(client.send("T", b"waits"))
            await until(lambda: store.max_log_offset > 0)
            end = store.max_log_offset
            for reports in ([-1], [end + 1], [0, end, end - 1], [0, end + 1], [0, 1 << 62]):
                peer = await Peer.connect(one)
                peer.report(*reports[:1])
                if reports[0] == 0:
                    assert (await peer.frame())[0] == 0
                    if reports[1] == end:
                        # Goes back: even what it said first counts no more than its connection.
                        one.config.in_sync_replicas = 3
                    peer.report(*reports[1:])
                assert await peer.is_closed()
                assert not sending.done()
            one.config.in_sync_replicas = 2
            peer = await Peer.connect(one)
            peer.report(0)
            await peer.frame()
            peer.report(end)
            assert (await sending).code == 0
            peer.close()

    run_live(main)


def test_frames_have_the_size_that_is_set_and_silence_is_filled_with_heartbeats(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async with primary(tmp_path, ha_batch_bytes=1000, ha_heartbeat_ms=100) as one:
            await send_many(one, 600)
            store = one.context.store
            await until(lambda: store.dispatched_offset == store.max_log_offset)
            end = store.max_log_offset
            start = end - 200_000  # so little that no large frame is made of it, in two segments
            assert start < 262_144 < end
            peer, at, parts = await Peer.connect(one), start, []
            peer.report(start)
            while at < end:
                log_offset, data = await peer.frame()
                segment_end = (at // 262_144 + 1) * 262_144
                left = min(segment_end, end) - at
                assert (log_offset, len(data)) == (at, min(1000, left))
                parts.append(data)
                at += len(data)
            assert b"".join(parts) == log_bytes(store)[start:]
            assert await peer.frame() == (at, b"")
            assert await peer.frame() == (at, b"")
            peer.close()

    run_live(main)


def test_who_says_nothing_is_sent_nothing_and_goes(tmp_path: Path) -> None:
    async def main() -> None:
        async with primary(tmp_path, ha_silence_ms=200) as one:
            await send_many(one, 1)
            silent, half = await Peer.connect(one), await Peer.connect(one)
            half.writer.write(b"\0\0\0")
            assert await asyncio.wait_for(silent.reader.read(1), 10) == b""
            assert await asyncio.wait_for(half.reader.read(1), 10) == b""
            silent.close()
            half.close()

    run_live(main)


def test_a_replica_far_behind_gets_everything_in_larger_frames(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_file: list[int] = []
    sendfile = os.sendfile

    def counted(*given: int) -> int:
        by_file.append(sendfile(*given))
        return by_file[-1]

    async def main() -> None:
        sizes = {"segment_bytes": 4 << 20}
        async with primary(tmp_path, sizes) as one:
            await send_many(one, 260, size=60_000)
            monkeypatch.setattr(link, "BEHIND_BYTES", 8 << 20)
            monkeypatch.setattr(os, "sendfile", counted)
            assert one.context.store.max_log_offset > 12 << 20  # more than is taken to be in memory
            async with replica(tmp_path, one.ha_address, sizes) as other:
                await equal(one, other)
            end, peer, at = one.context.store.max_log_offset, await Peer.connect(one), 0
            peer.report(0)
            lengths: dict[bool, set[int]] = {True: set(), False: set()}
            while at < end:
                _, data = await peer.frame()
                lengths[end - at >= LARGE_FRAME_BYTES].add(len(data))
                at += len(data)
            assert (max(lengths[True]), max(lengths[False])) == (LARGE_FRAME_BYTES_MAX, 32 << 10)
            assert sum(by_file) > end // 2  # the rest are small frames, and what a full socket left
            peer.close()
            near = await Peer.connect(one)
            near.report(end - 600_000)
            segment_end = ((end - 600_000) // sizes["segment_bytes"] + 1) * sizes["segment_bytes"]
            _, data = await near.frame()
            assert len(data) == min(segment_end, end) - (end - 600_000)
            near.close()

    run_live(main)
