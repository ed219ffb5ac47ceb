"""Clients of two clusters in one process: each talks to its own, whatever they are called."""

from orbitmq.client import Admin, Message, Producer
from orbitmq.testing import Broker


def test_clients_with_one_name_in_two_clusters_do_not_meet() -> None:
    given = {"instance_name": "shop"}
    with (
        Broker(name="near") as near,
        Broker(name="far") as far,
        Producer(near.namesrv, "makers", **given) as to_near,
        Producer(far.namesrv, "makers", **given) as to_far,
    ):
        with Admin(near.namesrv, **given) as admin, Admin(far.namesrv, **given) as other:
            for one in (admin, other):
                one.create_topic("Orders")
            told = [list(one.topic("Orders").brokers) for one in (admin, other)]
        sent = [one.send(Message("Orders", b"m")).queue.broker_name for one in (to_near, to_far)]

    assert sent == ["near", "far"]
    assert told == [["near"], ["far"]]
