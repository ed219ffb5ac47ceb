"""A real etcd decides who is the primary, while brokers and etcd itself are killed, paused and cut off.

Producers send to both brokers all the time, whoever is the primary. At most one acknowledges, and nothing
acknowledged is lost. ORBITMQ_FAILOVER_KILLS sets the number of rounds: a fifth of
it, one by default. The time from each fault to the first acknowledgement after it is printed.
"""

import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Final

import pytest

from compat.server_process import ServerProcess
from crash.etcd_cluster import EtcdCluster, etcd_cluster
from crash.test_failover_kill import await_equal, log_bytes, read_queues, told
from etcd_server import why_no_etcd
from orbitmq.client import Admin

pytestmark = [
    pytest.mark.crash,
    pytest.mark.feature("F84"),
    pytest.mark.skipif(why_no_etcd() is not None, reason=why_no_etcd() or ""),
]

ROUNDS: Final = max(1, int(os.environ.get("ORBITMQ_FAILOVER_KILLS", "5")) // 5)
SEED: Final = int(os.environ.get("ORBITMQ_CRASH_SEED", "0"))


def killed(cluster: EtcdCluster, old: int) -> tuple[int, float]:
    """Kill the primary; return who came after it, and when that acknowledged first."""
    cluster.nodes[old].process.kill()
    first = cluster.await_acks(1 - old)
    cluster.nodes[old].process.start()
    return 1 - old, first


def paused(cluster: EtcdCluster, old: int) -> tuple[int, float]:
    """Pause the primary, and wake it up when another one is there."""
    cluster.nodes[old].signal(signal.SIGSTOP)
    first = cluster.await_acks(1 - old)
    cluster.nodes[old].signal(signal.SIGCONT)
    return 1 - old, first


def cut_off(cluster: EtcdCluster, old: int) -> tuple[int, float]:
    """Cut the primary off from everybody but its producers."""
    cluster.nodes[old].cut_off()
    first = cluster.await_acks(1 - old)
    cluster.nodes[old].heal()
    return 1 - old, first


def etcd_killed(cluster: EtcdCluster, old: int) -> tuple[int, float]:
    """Kill etcd until the primary refuses messages, and start it again."""
    node = cluster.nodes[old]
    cluster.etcd.kill()
    cluster.await_acks(old)
    cluster.wait(lambda: "refuses messages" in str(node.told().get("failover")))
    before = len(cluster.acks)
    cluster.etcd.start()
    cluster.wait(lambda: len(cluster.acks) > before)
    return cluster.acks[before].broker, cluster.acks[before].told


SCENES: Final = (killed, paused, cut_off, etcd_killed)


def check_one_at_a_time(cluster: EtcdCluster, old: int, new: int, first: float) -> None:
    """Since the new one acknowledged, whoever asks the one before gets no acknowledgement."""
    if new != old:
        late = [ack for ack in cluster.acks if ack.broker == old and ack.asked > first]
        assert late == []


@pytest.mark.timeout(120 + 240 * ROUNDS)
def test_at_most_one_acknowledges_and_nothing_acknowledged_is_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chance, times = random.Random(f"etcd {SEED}"), dict[str, list[float]]()
    with etcd_cluster(tmp_path) as cluster, told(cluster.history, tmp_path):
        for _ in range(ROUNDS):
            for scene in chance.sample(SCENES, len(SCENES)):
                old = cluster.await_whole()
                cluster.await_acks(old, chance.randrange(5, 60))
                began = time.monotonic()
                new, first = scene(cluster, old)
                times.setdefault(scene.__name__, []).append(first - began)
                cluster.wait(lambda: cluster.primary >= 0)
                check_one_at_a_time(cluster, old, new, first)
        primary = cluster.await_whole()
        cluster.await_acks(primary)
        cluster.end()
        processes: list[ServerProcess] = [node.process for node in cluster.nodes]
        with Admin(cluster.namesrv) as admin:
            end = await_equal(*processes, admin)
        assert list(cluster.history.problems(read_queues(cluster.namesrv))) == []
        assert log_bytes(processes[0], end) == log_bytes(processes[1], end)
    with capsys.disabled():
        words = (f"{name} {max(took):.1f} s" for name, took in sorted(times.items()))
        sys.stdout.write(f"\nfirst acknowledgement after the primary was ... {', '.join(words)}\n")
