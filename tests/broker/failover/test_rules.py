"""Who may be the primary, by what the coordinator holds: one row for each case."""

import pytest

from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.failover.place import parse_place
from orbitmq.broker.failover.rules import Act, Standing, decide, heirs
from orbitmq.errors import ConfigError
from orbitmq.wire.bodies.failover import FailoverState, Member, Seen

A, B, C = (Member(id=name, address=f"{name}:1") for name in "ABC")
PRIMARY = Standing("A", 2, is_replica=False, is_joined=True, holds=True)
REPLICA = Standing("B", 2, is_replica=True, is_joined=True, holds=False)


def seen(holder: str = "", epoch: int = 2, primary: Member = A, *in_sync: Member) -> Seen:
    return Seen(
        FailoverState(epoch=epoch, primary=primary, in_sync=in_sync or (A, B)), 5, holder, 9
    )


@pytest.mark.parametrize(
    ("own", "held", "act", "epoch"),
    [
        pytest.param(PRIMARY, seen("A"), Act.SERVE, 2, id="holder"),
        pytest.param(
            PRIMARY._replace(holds=False), seen("A"), Act.TAKE, 2, id="before-its-restart"
        ),
        pytest.param(PRIMARY, seen(""), Act.TAKE, 2, id="its-lease-ended"),
        pytest.param(PRIMARY, seen("B", 3, B), Act.FOLLOW, 0, id="replaced"),
        pytest.param(PRIMARY, seen("", 3, B), Act.TAKE_OVER, 4, id="replaced-by-who-is-gone"),
        pytest.param(PRIMARY, seen("", 3, B, B), Act.FOLLOW, 0, id="replaced-and-not-in-sync"),
        pytest.param(PRIMARY, seen("", 1), Act.STAY, 0, id="set-back"),
        pytest.param(PRIMARY._replace(member="X"), seen(""), Act.STAY, 0, id="lost-its-end"),
        pytest.param(PRIMARY, Seen(), Act.STAY, 0, id="forgotten"),
        pytest.param(PRIMARY._replace(is_joined=False), Seen(), Act.TAKE, 2, id="first"),
        pytest.param(REPLICA._replace(is_joined=False), Seen(), Act.STAY, 0, id="first-replica"),
        pytest.param(REPLICA, seen("A"), Act.FOLLOW, 0, id="replica"),
        pytest.param(REPLICA, seen(""), Act.TAKE_OVER, 3, id="takes-over"),
        pytest.param(REPLICA, seen("", 2, A, A), Act.FOLLOW, 0, id="not-in-sync"),
        pytest.param(REPLICA, seen("", 2, A, A, C), Act.FOLLOW, 0, id="others-in-sync"),
        pytest.param(REPLICA, seen("", 3, B), Act.TAKE_OVER, 3, id="interrupted"),
        pytest.param(REPLICA, seen("B", 3, B), Act.TAKE_OVER, 3, id="interrupted-with-its-lease"),
        pytest.param(REPLICA, seen("", 1), Act.STAY, 0, id="replica-set-back"),
        pytest.param(REPLICA, seen("C", 2, B), Act.STAY, 0, id="somebody-else-holds"),
    ],
)
def test_what_a_broker_does(own: Standing, held: Seen, act: Act, epoch: int) -> None:
    decision = decide(own, held)

    assert (decision.act, decision.epoch) == (act, epoch)
    assert bool(decision.why) or act is not Act.STAY


def test_the_primary_before_stays_in_sync_where_too_few_would_be_left() -> None:
    state = FailoverState(epoch=1, primary=A, in_sync=(A, B, C))

    assert heirs(state, B, least=2) == (B, C)
    assert heirs(state, B, least=3) == (B, C, A)
    assert heirs(FailoverState(epoch=1, primary=A, in_sync=(A, B)), B, least=1) == (B,)
    assert heirs(FailoverState(epoch=1, primary=B, in_sync=(A, B)), B, least=1) == (B, A)


def test_places_of_coordinators() -> None:
    place = parse_place("etcd://one:2380,[::1]:5,two/my/brokers/")
    assert place == (("one:2380", "[::1]:5", "two:2379"), "/my/brokers", False)
    assert parse_place("etcds://one") == (("one:2379",), "/orbitmq", True)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"failover": "zk://one:2181"}, "must be etcd://"),
        ({"failover": "etcd://"}, "names no server"),
        ({"failover": "etcd://one:x"}, "is no address"),
        ({"failover": "etcd://one", "brokerRole": "ASYNC_MASTER"}, "must be SYNC_MASTER or SLAVE"),
        ({"failover": "etcd://one", "haMasterAddress": "a:1"}, "must be empty with failover"),
        ({"failover": "etcd://one", "failoverLeaseMs": "1999"}, "failoverLeaseMs"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        BrokerConfig.from_settings({"brokerRole": "SYNC_MASTER", **settings})
