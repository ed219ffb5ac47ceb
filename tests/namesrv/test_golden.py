"""Recorded requests to RocketMQ's name server, put to ours: the same answers, field by field.

The broker's own registrations stand in a few recordings only. So whatever topic an answer names that our
name server has not heard of, the broker is made to tell of it first.
"""

import pytest

from golden_frames import exchanges, names
from namesrv_world import FakeConnection, NamesrvWorld
from orbitmq.wire.bodies import dialect
from orbitmq.wire.bodies.lists import TopicList
from orbitmq.wire.bodies.route import BrokerData, ClusterInfo, TopicRoute
from orbitmq.wire.bodies.topic_config import DataVersion, Registration, TopicConfig, TopicTable

CLIENT_RECORDINGS = [n for n in names() if not n.startswith("broker/") and n != "raw/framing"]


class Broker:
    """Registers what the recorded answers know of."""

    def __init__(self, world: NamesrvWorld) -> None:
        self._world, self._connection, self._counter = world, FakeConnection(), 0

    def tell(self, broker: BrokerData, topics: dict[str, TopicConfig]) -> None:
        for broker_id, address in broker.broker_addrs.items():
            self._counter += 1
            known = self._world.routes.brokers.get(broker.broker_name)
            is_known = known is not None and broker_id in known.broker_addrs
            table = dict(topics)
            if not is_known:
                table |= {
                    n: TopicConfig(topic_name=n)
                    for n in ("TBW102", broker.broker_name)
                    if n not in topics
                }
            version = DataVersion(counter=self._counter)
            wrapper = TopicTable(data_version=version, topic_config_table=table)
            self._world.register_table(
                broker.broker_name,
                Registration(topic_config_serialize_wrapper=wrapper),
                connection=self._connection,
                broker_id=broker_id,
                broker_addr=address,
                cluster_name=broker.cluster,
            )

    def prepare(self, topic: str, body: bytes) -> None:
        """Tell what a recorded route knows."""
        route = TopicRoute.decode(body)
        for broker in route.broker_datas:
            (queue,) = (q for q in route.queue_datas if q.broker_name == broker.broker_name)
            config = TopicConfig(
                topic_name=topic,
                read_queue_nums=queue.read_queue_nums,
                write_queue_nums=queue.write_queue_nums,
                perm=queue.perm,
                topic_sys_flag=queue.topic_sys_flag,
            )
            self.tell(broker, {topic: config})


def unordered(value):
    """Return a value in which lists are sorted: RocketMQ's are in the order of its hash tables."""
    if isinstance(value, dict):
        return {key: unordered(item) for key, item in value.items()}
    if isinstance(value, list):
        return sorted((unordered(item) for item in value), key=repr)
    return value


def prepare(world: NamesrvWorld, broker: Broker, request, answer) -> None:
    code, body = request.code, answer.body
    if code == 105 and answer.code == 0:
        broker.prepare(request.fields["topic"], body)
    elif code == 105 and (request.fields or {}).get("topic") in world.routes.topics:
        world.routes.delete_topic(request.fields["topic"])
    elif code == 106:
        for data in ClusterInfo.decode(body).broker_addr_table.values():
            broker.tell(data, {})
    elif code in (206, 224):
        known = set(TopicList.decode(body).topic_list)
        new = {n: TopicConfig(topic_name=n) for n in known - world.routes.topics.keys()}
        data = BrokerData(
            broker_name="broker-a",
            cluster="DefaultCluster",
            broker_addrs={0: "127.0.0.2:11311"},
        )
        if (request.fields or {}).get("cluster") != "NoCluster":
            broker.tell(data, new)
            for topic in world.routes.topics.keys() - known:
                world.routes.delete_topic(topic)


def compare(name, asked, answer, ours) -> None:
    code = asked.command.code
    place = f"{asked}: {asked.command.code} {asked.command.fields}"
    assert ours.code == answer.code, place
    if code not in (205, 322, 327):  # numbers and versions of topics that we were not told of
        assert ours.fields == answer.fields, place
    if code != 901:  # RocketMQ forgot to clear "not set any response code"
        assert ours.remark == answer.remark, place
    if code in (319, 322):
        return
    if answer.body:
        assert unordered(dialect.loads(ours.body)) == unordered(dialect.loads(answer.body)), place
    else:
        assert ours.body == b"", place


@pytest.mark.parametrize("name", CLIENT_RECORDINGS)
def test_clients_and_tools_are_answered_as_by_rocketmq(name):
    pairs = exchanges(name, "namesrv")
    world = NamesrvWorld()
    broker = Broker(world)
    if name == "raw/answers":
        start_as_recorded(world, broker)

    for asked, answered in pairs:
        request, answer = asked.command, answered.command
        prepare(world, broker, request, answer)
        if request.code == 104 or (request.code == 103 and answer.code == 0):
            continue
        ours = world.ask_command(request)
        compare(name, asked, answer, ours)


def start_as_recorded(world: NamesrvWorld, broker: Broker) -> None:
    data = BrokerData(
        broker_name="broker-a", cluster="DefaultCluster", broker_addrs={0: "127.0.0.2:11311"}
    )
    broker.tell(data, {})


def test_a_recorded_broker_registers_with_us_as_with_rocketmq():
    world = NamesrvWorld()
    world.kv.put("ORDER_TOPIC_CONFIG", "x", "y")  # the namespace was there from the start
    world.kv.delete("ORDER_TOPIC_CONFIG", "x")
    codes = []
    for asked, answered in exchanges("broker/registration", "namesrv"):
        ours = world.ask_command(asked.command)
        codes.append(asked.command.code)
        assert (ours.code, ours.fields) == (answered.command.code, answered.command.fields)
        if answered.command.body:
            assert dialect.loads(ours.body) == dialect.loads(answered.command.body)

    assert codes.count(103) >= 3
    assert world.routes.brokers["broker-a"].broker_addrs == {0: "127.0.0.2:11311"}
    assert "GwReg" in world.routes.topics


def test_a_recorded_replica_learns_its_primary():
    world = NamesrvWorld()
    answers = []
    for asked, _ in exchanges("broker/registration", "namesrv"):  # of the primary
        world.ask_command(asked.command)
    for asked, answered in exchanges("broker/slave-and-ha", "namesrv"):
        if asked.command.code not in (103, 104):
            continue
        ours = world.ask_command(asked.command)
        if asked.command.code == 103 and asked.command.fields["brokerId"] == "1":
            answers.append((ours.fields, answered.command.fields))

    assert answers
    assert answers[-1][0] == answers[-1][1]
    assert answers[-1][0]["masterAddr"] == "127.0.0.2:11311"


def test_a_broker_that_rocketmq_refused_for_its_own_mistake_is_taken():
    world = NamesrvWorld()
    for asked, answered in exchanges("broker/registration-compressed", "namesrv"):
        ours = world.ask_command(asked.command)
        if asked.command.code == 103 and answered.command.code == 1:
            assert ours.code == 0
            assert world.routes.brokers["broker-b"].primary == "127.0.0.2:11351"
            break
    else:
        pytest.fail("no such registration in the recording")
