"""Routes and cluster information: the recorded ones, and how ours are written."""

from golden_frames import good_frames
from orbitmq.wire.bodies import dialect
from orbitmq.wire.bodies.route import (
    BrokerData,
    BrokerMembersAnswer,
    ClusterInfo,
    QueueData,
    TopicRoute,
)


def answers(code):
    return [
        f
        for f in good_frames()
        if f.role == "namesrv" and f.request_code == code and f.command.is_response
        if f.command.code == 0 and f.command.body
    ]


def test_recorded_routes_are_read_and_written_byte_for_byte():
    quoted = 0
    for frame in answers(105):
        route = TopicRoute.decode(frame.command.body)
        quote_keys = b'{"0":' in frame.command.body
        quoted += quote_keys

        assert route.encode(quote_keys=quote_keys) == frame.command.body, frame
        assert route.queue_datas
        assert all(broker.primary for broker in route.broker_datas)

    assert 0 < quoted < len(answers(105))  # Java writes both, depending on the client's version


def test_recorded_cluster_information_is_read_and_written_byte_for_byte():
    for frame in answers(106):
        assert ClusterInfo.decode(frame.command.body).encode() == frame.command.body


def test_recorded_members_are_read_and_written_byte_for_byte():
    assert len(answers(901)) > 1
    for frame in answers(901):
        assert BrokerMembersAnswer.decode(frame.command.body).encode() == frame.command.body


def test_a_route_is_plain_json_when_keys_are_quoted():
    route = TopicRoute(
        broker_datas=[BrokerData(broker_name="b", cluster="c", broker_addrs={0: "a:1", 1: "a:2"})],
        queue_datas=[QueueData(broker_name="b", read_queue_nums=4, write_queue_nums=4, perm=6)],
    )

    assert route.encode(quote_keys=True) == (
        b'{"brokerDatas":[{"brokerAddrs":{"0":"a:1","1":"a:2"},"brokerName":"b","cluster":"c",'
        b'"enableActingMaster":false}],"filterServerTable":{},"queueDatas":[{"brokerName":"b",'
        b'"perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}'
    )
    assert TopicRoute.decode(route.encode()) == route
    assert dialect.loads(route.encode(quote_keys=True)) == dialect.loads(route.encode())
