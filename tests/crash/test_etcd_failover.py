"""A real etcd decides who is the primary, while brokers and etcd itself are killed, paused and cut off.

Three brokers of one name, as processes. Producers send to all of them all the time, whoever is the primary.
At most one acknowledges, and nothing acknowledged is lost. ORBITMQ_FAILOVER_KILLS sets the number of faults:
a fifth of it, four by default. The time from each fault to the first acknowledgement after it is printed.
"""

import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Final

import pytest

from crash.failover_cluster import Ack, FailoverCluster, failover_cluster
from etcd_server import why_no_etcd

pytestmark = [
    pytest.mark.crash,
    pytest.mark.feature("F84"),
    pytest.mark.skipif(why_no_etcd() is not None, reason=why_no_etcd() or ""),
]

BROKERS: Final = 3


def killed(cluster: FailoverCluster, old: int) -> Ack:
    """Kill the primary; return the first acknowledgement of who came after it."""
    cluster.nodes[old].process.kill()
    first = cluster.await_acks_of_another(old)
    cluster.nodes[old].process.start()
    return first


def paused(cluster: FailoverCluster, old: int) -> Ack:
    """Pause the primary, and wake it up when another one is there."""
    cluster.nodes[old].signal(signal.SIGSTOP)
    first = cluster.await_acks_of_another(old)
    cluster.nodes[old].signal(signal.SIGCONT)
    return first


def cut_off(cluster: FailoverCluster, old: int) -> Ack:
    """Cut the primary off from everybody but its producers."""
    cluster.nodes[old].cut_off()
    first = cluster.await_acks_of_another(old)
    cluster.nodes[old].heal()
    return first


def etcd_killed(cluster: FailoverCluster, old: int) -> Ack:
    """Kill etcd until the primary refuses messages, and start it again."""
    node = cluster.nodes[old]
    cluster.etcd.kill()
    cluster.await_acks(old)
    cluster.wait(lambda: "refuses messages" in str(node.told().get("failover")))
    before = len(cluster.acks)
    cluster.etcd.start()
    cluster.wait(lambda: len(cluster.acks) > before)
    return cluster.acks[before]


SCENES: Final = (killed, paused, cut_off, etcd_killed)
ROUNDS: Final = max(1, int(os.environ.get("ORBITMQ_FAILOVER_KILLS", "20")) // 5 // len(SCENES))


@pytest.mark.timeout(120 + 240 * ROUNDS)
def test_at_most_one_acknowledges_and_nothing_acknowledged_is_lost(
    tmp_path: Path, seed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    chance, times = random.Random(seed), dict[str, list[float]]()
    with failover_cluster(tmp_path, BROKERS) as cluster:
        for _ in range(ROUNDS):
            for scene in chance.sample(SCENES, len(SCENES)):
                old = cluster.await_whole()
                cluster.await_acks(old, chance.randrange(5, 60))
                began = time.monotonic()
                first = scene(cluster, old)
                times.setdefault(scene.__name__, []).append(first.told - began)
                cluster.wait(lambda: cluster.primary >= 0)
                late = [
                    a for a in cluster.acks if a.broker != first.broker and a.asked > first.told
                ]
                assert late == [], f"{scene.__name__}: {first.broker} is the primary"
        cluster.await_acks(cluster.await_whole())
        cluster.check()
    with capsys.disabled():
        words = (f"{name} {max(took):.1f} s" for name, took in sorted(times.items()))
        sys.stdout.write(f"\nfirst acknowledgement after the primary was ... {', '.join(words)}\n")
