"""What every client with transactions must be able to do: each message as its producer said, and once."""

import os
import sys
import time
from collections import Counter
from typing import Final

from compat.client_kinds import CLIENTS
from compat.client_program import Client, ClientProgram
from compat.clusters import Cluster
from compat.scenarios import QUEUES, fresh

QUIET_SECONDS: Final = 3.0  # longer than a round of checks
PLAN: Final = "CR,RC,UC,UR,CC"
SEEN: Final = ("0-CR", "2-UC", "4-CC")


def ends_its_transactions(cluster: Cluster, client: Client) -> None:
    """Commit, roll back, and say later what became of it: consumers get exactly what was committed."""
    topic, group = fresh("Tx"), fresh("tx-group")
    cluster.create_topic(topic, QUEUES)
    producer = client.transact(topic=topic, group=group, plan=PLAN, body="tx-")
    consumer = client.subscribe(topic=topic, group=fresh("tx-readers"))
    consumer.wait("got", len(SEEN))
    producer.wait("checked", 2)
    time.sleep(QUIET_SECONDS)  # sleep: for a message that must not come
    asked = set(producer.bodies("checked"))
    producer.resign()
    bodies = Counter(row["body"] for row in consumer.leave())
    assert asked == {"tx-2-UC", "tx-3-UR"}
    assert bodies == Counter(f"tx-{body}" for body in SEEN)


def answers_for_a_dead_member(cluster: Cluster, client: Client) -> None:
    """A member of the group says what became of the transactions of another one, which was killed."""
    topic, group = fresh("TxDead"), fresh("tx-dead-group")
    cluster.create_topic(topic, QUEUES)
    directory = client.program.errors.parent / fresh("dead")
    command = [sys.executable, str(CLIENTS / "ours" / "program.py"), "JSON"]
    program = ClientProgram("dead", command, directory, **os.environ)
    try:
        dead = Client(program, cluster.namesrv, ())
        dead.transact(topic=topic, group=group, plan="UC,UR,UC", body="dead-")
    finally:
        program.kill()
    # A producer is known to the brokers that it sends to.
    producer = client.transact(topic=topic, group=group, plan="CC", body="alive-")
    consumer = client.subscribe(topic=topic, group=fresh("tx-dead-readers"))
    consumer.wait("got", 3)
    producer.wait("checked", 3)
    time.sleep(QUIET_SECONDS)  # sleep: for a message that must not come
    producer.resign()
    bodies = Counter(row["body"] for row in consumer.leave())
    assert bodies == Counter(["dead-0-UC", "dead-2-UC", "alive-0-CC"])
