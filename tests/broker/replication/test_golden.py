"""What a RocketMQ 5.3.3 replica and its primary said to each other, with ours on either side."""

import base64
import gzip
import json
from functools import cache
from pathlib import Path

from async_run import until
from golden_frames import WIRE
from ha_world import Peer, fake_primary, log_bytes, replica
from live_broker import live_config, run_live
from orbitmq.broker.broker import Broker
from orbitmq.format.ha_frame import HEADER, REPORT
from orbitmq.units import MiB

SEGMENT = {"segment_bytes": 64 * MiB}
BATCH = 32_768


@cache
def said(direction: str) -> bytes:
    """Return all bytes of one direction of the HA port."""
    text = gzip.decompress((WIRE / "broker" / "slave-and-ha.jsonl.gz").read_bytes())
    rows = [row for row in map(json.loads, text.splitlines()) if row.get("role") == "ha"]
    chunks = [row["raw"] for row in rows if row["kind"] == "raw" and row["dir"] == direction]
    return b"".join(map(base64.b64decode, chunks))


def frames() -> list[tuple[int, bytes]]:
    raw, at, found = said("s2c"), 0, []
    while at < len(raw):
        log_offset, size = HEADER.unpack_from(raw, at)
        at += HEADER.size + size
        found.append((log_offset, raw[at - size : at]))
    assert at == len(raw)
    return found


def reports() -> list[int]:
    return [log_offset for (log_offset,) in REPORT.iter_unpack(said("c2s"))]


def test_the_recording_is_as_long_as_its_log() -> None:
    assert (len(frames()), len(reports())) == (35, 36)
    assert sum(len(data) for _, data in frames()) == reports()[-1] == 142_433


def test_our_replica_takes_what_a_java_primary_said_and_our_primary_says_it_again(
    tmp_path: Path,
) -> None:
    log = b"".join(data for _, data in frames())

    async def main() -> None:
        async with (
            fake_primary(said("s2c")) as java,
            replica(tmp_path, java.address, SEGMENT) as ours,
        ):
            await until(lambda: java.reports and java.reports[-1] == len(log))
            assert java.reports[0] == reports()[0]
            assert java.connections == 1
            store = ours.context.store
            await until(lambda: store.dispatched_offset == len(log))
            assert log_bytes(store) == log
        config = live_config(tmp_path / "replica", store=SEGMENT)
        async with Broker(config) as primary:
            peer = await Peer.connect(primary)
            told = reports()
            peer.report(told[0])
            got = [await peer.frame() for _ in range(5)]
            assert got[:4] == frames()[:4]
            # Behind the recorded log lies what the broker delivered at its start: messages were due.
            assert b"".join(data for _, data in got)[: len(log)] == log
            primary.config.ha_heartbeat_ms = 1
            peer.report(*told[1:])
            # All recorded reports are good, and what follows silence is RocketMQ's heartbeat.
            after = [await peer.frame() for _ in range(10)]
            assert after[-1] == (primary.context.store.max_log_offset, b"")
            assert frames()[-1] == (len(log), b"")
            peer.close()

    run_live(main)
