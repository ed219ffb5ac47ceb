"""Every key of a broker.conf that is said to have an effect reaches the place that uses it.

Each test starts a broker from a file with one key, and looks from outside, or at the part that
follows the setting where nothing can be seen from outside. The keys of the store have tests of their own.
"""

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from async_run import until
from failover_world import FakeCoordinator, FakeEtcd
from golden_frames import good_frames
from live_broker import LOOPBACK, LiveClient, letters, run_live, send_header
from orbitmq.broker import config as broker_config
from orbitmq.broker.broker import Broker
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.failover.sync_set import SyncSet
from orbitmq.files.state_file import read_state
from orbitmq.net.config import NET_KEYS
from orbitmq.net.connection import Connection
from orbitmq.net.server import Server
from orbitmq.settings import parse_properties
from orbitmq.store import config as store_config
from orbitmq.testing.fake_clock import FakeClock
from orbitmq.wire.bodies.failover import Member
from orbitmq.wire.bodies.heartbeat import ConsumerData, HeartbeatData
from orbitmq.wire.bodies.stats import ConsumeStats
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command

FAR_MS = 4_000_000_000_000
SIZES = "mappedFileSizeCommitLog=262144\nmaxHashSlotNum=64\nmaxIndexNum=256\n"
HERE = f"brokerIP1={LOOPBACK}\nbindAddress={LOOPBACK}\nlistenPort=0\nbrokerName=broker-a\n"

Look = Callable[[Broker, LiveClient], Awaitable[object]]


def from_conf(root: Path, *lines: str) -> BrokerConfig:
    """Return the config that a broker.conf with these lines makes."""
    file = root / "broker.conf"
    file.write_text(HERE + SIZES + "".join(f"{line}\n" for line in lines))
    return BrokerConfig.load(file, {"storePathRootDir": root / "store"})


def seen(root: Path, look: Look, *lines: str) -> object:
    """Return what can be seen of a broker that was started with these lines."""

    async def main() -> object:
        async with Broker(from_conf(root, *lines)) as broker:
            return await look(broker, LiveClient(broker.address))

    return run_live(main)


# Defaults


def rocketmq_defaults() -> dict[str, str]:
    frames = good_frames("java-json/mqadmin")
    body = next(f.command.body for f in frames if f.request_code == 26 and f.command.body)
    return {key: value for _, key, value in parse_properties(body.decode())}


NOT_TOLD_AS_DEFAULTS = {  # set in the recording, or not told there
    "bindAddress",
    "brokerIP1",
    "brokerName",
    "listenPort",
    "mappedFileSizeCommitLog",
    "mappedFileSizeTimerLog",
    "namesrvAddr",
    "recallMessageEnable",
    "storePathCommitLog",
    "storePathRootDir",
    "traceTopicEnable",
    "readOnlyCommitLogStorePaths",
    "dispatch",
    "indexFileRollInterval",
    "maxIndexFileNum",
    "waitForReaders",
    "enablePropertyFilter",
    "failover",
    "failoverCaFile",
    "failoverCertFile",
    "failoverKeyFile",
    "failoverLeaseMs",
    "failoverPasswordFile",
    "failoverUser",
    "haListenPort",
    "haMasterAddress",
    "memoryTopicBytesMax",
    "memoryTopicEnable",
    "primaryAddress",
    "stateSyncAllInterval",
    "stateSyncInterval",
    "syncMasterAsInV4",
    "pullTransfer",
    "transactionCheckInterval",
}


@pytest.mark.parametrize(
    "key", sorted((broker_config.KEYS | store_config.KEYS | NET_KEYS.keys()) - NOT_TOLD_AS_DEFAULTS)
)
def test_default_is_rocketmqs(key: str) -> None:
    theirs = rocketmq_defaults()
    if key == "flushIntervalCommitLog":
        theirs[key] = "500"  # mqadmin had just changed it

    assert BrokerConfig.from_settings({}).properties()[key] == theirs[key]


def test_defaults_that_the_recording_does_not_tell() -> None:
    ours = BrokerConfig.from_settings({}).properties()

    assert ours["mappedFileSizeCommitLog"] == str(1 << 30)
    assert ours["mappedFileSizeTimerLog"] == str(100 << 20)
    assert ours["recallMessageEnable"] == "false"
    assert ours["bindAddress"] == "0.0.0.0"
    assert ours["listenPort"] == "10911"
    assert ours["brokerName"] == socket.gethostname()
    assert ours["storePathRootDir"] == str(Path.home() / "store")
    assert (ours["namesrvAddr"], ours["traceTopicEnable"], ours["dispatch"]) == (
        "",
        "false",
        "live",
    )
    assert ours["transactionCheckInterval"] == "30000"
    assert (ours["haListenPort"], ours["haMasterAddress"], ours["primaryAddress"]) == (
        "10912",
        "",
        "",
    )
    assert ours["syncMasterAsInV4"] == "false"
    assert (ours["failover"], ours["failoverLeaseMs"]) == ("", "10000")
    assert {ours[f"failover{name}"] for name in ("CaFile", "CertFile", "KeyFile")} == {""}
    assert (ours["failoverUser"], ours["failoverPasswordFile"]) == ("", "")
    assert (ours["stateSyncInterval"], ours["stateSyncAllInterval"]) == ("3000", "60000")
    assert (ours["memoryTopicEnable"], ours["memoryTopicBytesMax"]) == ("false", "0")


# What can be seen from outside


async def send(broker: Broker, client: LiveClient) -> object:
    answer = await client.send("New", b"x")
    fields = answer.fields or {}
    return answer.code, fields.get("MSG_REGION"), fields.get("TRACE_ON")


async def topics(broker: Broker, client: LiveClient) -> object:
    answer = await client.ask(RequestCode.GET_ALL_TOPIC_CONFIG)
    table = json.loads(answer.body)["topicConfigTable"]
    return {name: (one["writeQueueNums"], one["perm"]) for name, one in table.items()}


async def pull(broker: Broker, client: LiveClient) -> object:
    await client.send("New", b"x")
    await until(lambda: broker.context.store.max_offset("New", 0) == 1)
    return (await client.pull("G", "New", 0)).code


async def wait_for_pull(broker: Broker, client: LiveClient) -> object:
    """Return how long a pull that asks for 50 s is parked."""
    await client.heartbeat("G", "New")
    await client.send("New", b"x")
    clock = broker.context.clock
    pulled = asyncio.ensure_future(client.pull("G", "New", 1, suspend_ms=50_000))
    await until(lambda: broker.context.long_poll.count or pulled.done())
    parked = broker.context.long_poll.deadlines.all()
    wait_ms = parked[0].deadline_ms - clock.monotonic_ms() if parked else 0
    pulled.cancel()
    return "long" if wait_ms > 40_000 else "short" if wait_ms > 3_000 else "at once"


async def online(broker: Broker, client: LiveClient) -> object:
    data = HeartbeatData(
        client_id="c",
        consumer_data_set=[ConsumerData(group_name="G", consume_type="CONSUME_ACTIVELY")],
    )
    await client.ask(RequestCode.HEART_BEAT, body=data.encode())
    return broker.context.consumers.group("G") is not None


async def notices(broker: Broker, client: LiveClient) -> object:
    await client.heartbeat("G", "New")
    second = LiveClient(client.address, "client-2")
    await second.heartbeat("G", "New")
    await second.ask(RequestCode.GET_BROKER_CONFIG)  # what was sent before is here now
    return client.asked.qsize() + second.asked.qsize() > 0


async def reset(broker: Broker, client: LiveClient) -> object:
    await client.heartbeat("G", "New")
    await client.send("New", b"x")
    for queue_id in range(4):
        await client.commit("G", "New", 0, queue_id)
    fields = {"topic": "New", "group": "G", "timestamp": "-1", "isForce": "true"}
    await client.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, fields)
    codes = [client.asked.get_nowait().code for _ in range(client.asked.qsize())]
    return RequestCode.RESET_CONSUMER_CLIENT_OFFSET in codes


async def sql_filter(broker: Broker, client: LiveClient) -> object:
    wanted = {"topic": "New", "expressionType": "SQL92", "subString": "a > 3"}
    body = json.dumps({"clientId": "c", "group": "G", "subscriptionData": wanted}).encode()
    return (await client.ask(RequestCode.CHECK_CLIENT_CONFIG, body=body)).code


async def transfer(broker: Broker, client: LiveClient) -> object:
    """Return how the records of a pull get into the socket; see also `test_pull_transfer.py`."""
    return broker.config.transfer.value


async def expiry(broker: Broker, client: LiveClient) -> object:
    await client.heartbeat("G", "New")
    await asyncio.sleep(
        0.01
    )  # sleep: longer than the millisecond that is set, shorter than the default
    broker._expire_clients()
    return broker.context.consumers.group("G") is not None


async def memory_topic(broker: Broker, client: LiveClient) -> object:
    fields = {"topic": "Mem", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6"}
    fields |= {"defaultTopic": "TBW102", "topicFilterType": "SINGLE_TAG", "order": "false"}
    fields["attributes"] = "+memory.topic=true"
    answer = await client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, fields)
    runtime = await client.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
    return answer.code, json.loads(runtime.body)["table"].get("memoryTopicBytesMax")


async def timed_send(broker: Broker, client: LiveClient) -> object:
    return (await client.send("New", b"x", properties="TIMER_DELAY_SEC\x01100\x02")).code


async def recall(broker: Broker, client: LiveClient) -> object:
    """Return what is said to a handle that is none: nothing else stands in its way."""
    broker.context.topics.create_for_send("New", "TBW102", 1, False)
    answer = await client.ask(RequestCode.RECALL_MESSAGE, {"topic": "New", "recallHandle": "none"})
    return answer.code


async def reply_offset(broker: Broker, client: LiveClient) -> object:
    """Return the offset id of a reply whose requester is gone: None if it is not stored."""
    header = send_header("DefaultCluster_REPLY_TOPIC", properties="REPLY_TO_CLIENT\x01gone\x02")
    answer = await client.ask(RequestCode.SEND_REPLY_MESSAGE_V2, letters(header), b"x")
    return (answer.fields or {}).get("queueOffset")


async def half(broker: Broker, client: LiveClient) -> Command:
    """Send a half message."""
    text = "UNIQ_KEY\x01K1\x02TRAN_MSG\x01true\x02PGROUP\x01PG\x02"
    await client.heartbeat("G", "New")
    now = broker.context.clock.now_ms()
    return await client.send("New", b"x", sys_flag=4, properties=text, born_timestamp=now)


async def half_code(broker: Broker, client: LiveClient) -> object:
    return (await half(broker, client)).code


OUTSIDE = [
    ("rejectTransactionMessage=true", half_code, None, ResponseCode.NO_PERMISSION),
    ("memoryTopicEnable=true", memory_topic, 0, ResponseCode.SUCCESS),
    ("memoryTopicEnable=true\nmemoryTopicBytesMax=77000", memory_topic, 1, "77000"),
    ("brokerName=b9", topics, "b9", (1, 7)),
    ("brokerClusterName=C9", topics, "C9", (16, 7)),
    ("regionId=R9", send, 1, "R9"),
    ("traceOn=false", send, 2, "false"),
    ("autoCreateTopicEnable=false", send, 0, ResponseCode.TOPIC_NOT_EXIST),
    (f"startAcceptSendRequestTimeStamp={FAR_MS}", send, 0, ResponseCode.SYSTEM_ERROR),
    ("autoCreateSubscriptionGroup=false", pull, None, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
    ("brokerPermission=2", pull, None, ResponseCode.NO_PERMISSION),
    ("defaultTopicQueueNums=3", topics, "TBW102", (3, 7)),
    ("clusterTopicEnable=false", topics, "DefaultCluster", (16, 1)),
    ("brokerTopicEnable=false", topics, "broker-a", (1, 1)),
    ("traceTopicEnable=true", topics, "RMQ_SYS_TRACE_TOPIC", (1, 6)),
    ("traceTopicEnable=true\nmsgTraceTopicName=Tr", topics, "Tr", (1, 6)),
    ("reviveQueueNum=3", topics, "rmq_sys_REVIVE_LOG_DefaultCluster", (3, 6)),
    ("timerWheelEnable=false", topics, "rmq_sys_wheel_timer", None),
    ("timerWheelEnable=false", timed_send, None, ResponseCode.SYSTEM_ERROR),
    ("recallMessageEnable=true", recall, None, ResponseCode.ILLEGAL_OPERATION),
    (
        "recallMessageEnable=true\nbrokerPermission=4\nallowRecallWhenBrokerNotWriteable=false",
        *(recall, None, ResponseCode.SERVICE_NOT_AVAILABLE),
    ),
    pytest.param(
        "longPollingEnable=false\nshortPollingTimeMills=9000",
        *(wait_for_pull, None, "short"),
        marks=pytest.mark.feature("F118"),
    ),
    pytest.param(
        "longPollingEnable=false",  # a second
        *(wait_for_pull, None, "at once"),
        marks=pytest.mark.feature("F118"),
    ),
    ("transferMsgByHeap=false", transfer, None, "slices"),
    ("pullTransfer=sendfile", transfer, None, "sendfile"),
    ("enablePropertyFilter=false", sql_filter, None, 1),
    ("storeReplyMessageEnable=false", reply_offset, None, None),
    ("rejectPullConsumerEnable=true", online, None, False),
    ("notifyConsumerIdsChangedEnable=false", notices, None, False),
    ("useServerSideResetOffset=false", reset, None, True),
    ("channelExpiredTimeout=1", expiry, None, False),
]


@pytest.mark.parametrize(("lines", "look", "part", "expected"), OUTSIDE)
def test_setting_makes_a_difference(
    tmp_path: Path, lines: str, look: Look, part: object, expected: object
) -> None:
    def of(found: object) -> object:
        if isinstance(found, dict):
            return found.get(part)
        return found[part] if isinstance(found, tuple) else found  # type: ignore[call-overload]

    (tmp_path / "without").mkdir()

    without = of(seen(tmp_path / "without", look))
    with_setting = of(seen(tmp_path, look, lines))

    assert with_setting == expected
    assert without != expected


def test_address_and_ports_are_taken(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port = probe.getsockname()[1]

    async def look(broker: Broker, client: LiveClient) -> object:
        listening = [(server.host, server.port) for server in broker._servers]
        return broker.address, listening

    given = (f"listenPort={port}", "bindAddress=127.0.0.3", "brokerIP1=127.0.0.2")
    address, listening = seen(tmp_path, look, *given)  # type: ignore[misc]

    assert address == f"127.0.0.2:{port}"
    assert listening == [("127.0.0.3", port), ("127.0.0.3", port - 2)]


def test_limits_of_connections_reach_the_sockets(tmp_path: Path) -> None:
    async def look(broker: Broker, client: LiveClient) -> object:
        return {(s._config.idle_ms, s._config.backlog) for s in broker._servers}

    given = ("serverChannelMaxIdleTimeSeconds=7", "serverSocketBacklog=5")
    assert seen(tmp_path, look, *given) == {(7_000, 5)}


def test_offsets_are_saved_at_the_interval(tmp_path: Path) -> None:
    async def look(broker: Broker, client: LiveClient) -> object:
        await client.heartbeat("G", "New")
        await client.send("New", b"x")
        await client.commit("G", "New", 1)
        file = broker.config.store.root / "config" / "consumerOffset.json"
        await until(lambda: "New@G" in read_state(file).get("offsetTable", {}), seconds=4)
        return True

    assert seen(tmp_path, look, "flushConsumerOffsetInterval=20")


# Transactions


def test_producers_are_asked_and_given_up_as_set(tmp_path: Path) -> None:
    async def look(broker: Broker, client: LiveClient) -> object:
        assert (await half(broker, client)).code == 0
        async with asyncio.timeout(4):  # the defaults are 6 and 30 seconds, and 15 questions
            while (await client.asked.get()).code != RequestCode.CHECK_TRANSACTION_STATE:
                pass
        await until(lambda: "TRANS_CHECK_MAX_TIME_TOPIC" in broker.context.topics, seconds=4)
        return client.asked.empty()

    lines = ("transactionTimeOut=50", "transactionCheckInterval=20", "transactionCheckMax=1")
    assert seen(tmp_path, look, *lines)


@pytest.mark.parametrize(
    "lines", [("transactionOpBatchInterval=20",), ("transactionOpMsgMaxSize=1",)]
)
def test_ends_of_transactions_are_collected_as_set(tmp_path: Path, lines: tuple[str, ...]) -> None:
    async def look(broker: Broker, client: LiveClient) -> object:
        fields = (await half(broker, client)).fields or {}
        end = {
            "producerGroup": "PG",
            "tranStateTableOffset": fields["queueOffset"],
            "commitLogOffset": str(int(fields["msgId"][16:], 16)),
            "commitOrRollback": "12",
            "msgId": "K1",
        }
        await client.channels.oneway(client.address, Command(RequestCode.END_TRANSACTION, end))
        store = broker.context.store
        ended = "RMQ_SYS_TRANS_OP_HALF_TOPIC", 0
        await until(lambda: store.max_offset(*ended) == 1, seconds=2)  # by default 3 seconds
        return True

    assert seen(tmp_path, look, *lines)


# Registration


class Namesrv:
    """Keeps the requests of brokers."""

    def __init__(self) -> None:
        self.told: list[Command] = []
        self.is_silent = False
        self.server = Server(self)

    def on_open(self, connection: Connection) -> None: ...

    def on_close(self, connection: Connection, error: Exception | None) -> None: ...

    def on_commands(self, connection: Connection, requests: list[Command]) -> None:
        self.told += requests
        for request in requests if not self.is_silent else ():
            connection.send(request.answer(fields={"changed": "true"}))


def registrations(root: Path, *lines: str) -> list[Command]:
    """Return what a name server hears of a broker with these lines, up to its registration."""
    namesrv = Namesrv()

    async def main() -> None:
        await namesrv.server.start(LOOPBACK, 0)
        config = from_conf(root, f"namesrvAddr={namesrv.server.address}", *lines)
        try:
            async with Broker(config) as broker:
                await until(lambda: broker.context.registration.registered)
        finally:
            await namesrv.server.stop(100)

    run_live(main)
    return namesrv.told


@pytest.mark.parametrize(
    ("lines", "field", "value"),
    [
        ("brokerId=3", "brokerId", "3"),
        ("brokerName=b9", "brokerName", "b9"),
        ("brokerClusterName=C9", "clusterName", "C9"),
        ("compressedRegister=true", "compressed", "true"),
    ],
)
def test_name_servers_are_told(tmp_path: Path, lines: str, field: str, value: str) -> None:
    told = registrations(tmp_path, lines)

    assert told[0].code == RequestCode.REGISTER_BROKER
    assert (told[0].fields or {})[field] == value
    assert (told[0].body[0] == 0x78) is (field == "compressed")


def test_name_servers_are_asked_first_without_force(tmp_path: Path) -> None:
    told = registrations(tmp_path, "forceRegister=false")

    assert [one.code for one in told[:2]] == [322, 103]


def test_name_servers_are_told_everything_in_parts(tmp_path: Path) -> None:
    told = registrations(tmp_path, "enableSplitRegistration=true", "splitRegistrationSize=5")

    bodies = [json.loads(one.body) for one in told if one.code == 103]
    sizes = [len(one["topicConfigSerializeWrapper"]["topicConfigTable"]) for one in bodies]
    assert sizes[:-1] == [5] * (len(sizes) - 1)
    assert len(sizes) > 2
    (tmp_path / "second").mkdir()
    together = registrations(tmp_path / "second", "splitRegistrationSize=5")
    assert len([one for one in together if one.code == 103]) == 1


def test_a_new_topic_is_told_alone(tmp_path: Path) -> None:
    def codes(root: Path, *lines: str) -> set[int]:
        root.mkdir()
        namesrv = Namesrv()

        async def main() -> None:
            await namesrv.server.start(LOOPBACK, 0)
            config = from_conf(root, f"namesrvAddr={namesrv.server.address}", *lines)
            try:
                async with Broker(config) as broker:
                    await until(lambda: broker.context.registration.registered)
                    first = len(namesrv.told)
                    await LiveClient(broker.address).send("New", b"x")
                    await until(lambda: len(namesrv.told) > first)
                    found.update(one.code for one in namesrv.told[first:])
            finally:
                await namesrv.server.stop(100)

        found: set[int] = set()
        run_live(main)
        return found

    assert codes(tmp_path / "a", "enableSingleTopicRegister=true") == {217}
    assert codes(tmp_path / "b") == {103}


async def filtered_lag(broker: Broker, client: LiveClient) -> object:
    """Return what a broker counts for a group by tag: of 40 messages every fourth is its own."""
    for number in range(40):
        tag = "A" if number % 4 == 0 else "B"
        await client.send("New", b"x", properties=f"TAGS\x01{tag}\x02")
    store = broker.context.store
    await until(lambda: store.max_offset("New", 0) == 40)
    await client.heartbeat("G", "New", expression="A")
    asked = {"consumerGroup": "G", "topicList": "New", "countMatching": "true"}
    answer = await client.ask(RequestCode.GET_CONSUME_STATS, asked)
    stats = ConsumeStats.decode(answer.body)
    one = next(one for queue, one in stats.offset_table.items() if queue.queue_id == 0)
    return one.matching, one.matching_is_estimate


@pytest.mark.parametrize(
    ("line", "counted"),
    [
        ("", (10, False)),
        ("estimateAccumulation=false", (None, None)),
        ("maxConsumeQueueScan=8", (12, True)),
        ("sampleCountThreshold=1", (16, True)),
    ],
)
def test_lag_behind_a_filter_is_counted_or_estimated(
    tmp_path: Path, line: str, counted: tuple[object, object]
) -> None:
    few = "maxTransferCountOnMessageInMemory=2"  # in each read, so that it ends early

    assert seen(tmp_path, filtered_lag, few, line) == counted


def test_a_name_server_that_is_silent_is_given_up_in_time(tmp_path: Path) -> None:
    namesrv = Namesrv()
    namesrv.is_silent = True

    async def main() -> None:
        await namesrv.server.start(LOOPBACK, 0)
        given = f"namesrvAddr={namesrv.server.address}", "registerBrokerTimeoutMills=50"
        try:
            async with Broker(from_conf(tmp_path, *given)) as broker:
                (server,) = broker.context.registration._servers.values()
                await until(lambda: server.failed, seconds=10)
        finally:
            await namesrv.server.stop(100)

    run_live(main)


def test_settings_of_the_rest_reach_their_parts(tmp_path: Path) -> None:
    lines = ("registerNameServerPeriod=20000", "enableShutdownGracefully=true")
    config = from_conf(tmp_path, *lines, "shutdownWaitTimeSeconds=7")

    assert config.register_ms == 20_000
    assert (config.graceful_stop, config.graceful_stop_seconds) == (True, 7)


@pytest.mark.parametrize(
    ("lines", "lease_ms", "late_ms"),
    [((), 10_000, 15_000), (("failoverLeaseMs=3000", "haMaxTimeSlaveNotCatchup=400"), 3_000, 400)],
)
def test_settings_of_failover_reach_the_coordinator_and_its_members(
    tmp_path: Path, lines: tuple[str, ...], lease_ms: int, late_ms: int
) -> None:
    etcd, clock = FakeEtcd(), FakeClock()
    given = "failover=etcd://127.0.0.1:1/shop", "brokerRole=SYNC_MASTER", "haListenPort=0"
    config = from_conf(tmp_path, *given, *lines)

    async def main() -> None:
        async with Broker(config, coordinator=FakeCoordinator(etcd)) as broker:
            failover = broker.context.failover
            await until(lambda: failover.is_primary)
            assert set(etcd._lengths.values()) == {lease_ms}
            assert failover.told().coordinator == "etcd://127.0.0.1:1/shop"

    run_live(main)
    own, other = Member(id="a", address="a:1"), Member(id="b", address="b:1")
    members = SyncSet(own, config, clock, lambda: 100)
    members.settled((own, other))
    assert members.look() is None
    clock.advance(late_ms - 1)
    assert members.look() is None
    clock.advance(1)
    assert members.look() == (own,)


def test_how_a_broker_gets_into_its_coordinator_comes_from_its_file(tmp_path: Path) -> None:
    given = "failover=etcds://127.0.0.1:1", "brokerRole=SYNC_MASTER", "failoverCaFile=ca.pem"
    own = "failoverCertFile=cert.pem", "failoverKeyFile=key.pem"
    user = "failoverUser=shop", "failoverPasswordFile=password"
    config = from_conf(tmp_path, *given, *own, *user)

    assert config.failover_access == ("ca.pem", "cert.pem", "key.pem", "shop", "password")


def test_every_key_of_a_broker_is_looked_at_here() -> None:
    others = "test_pop_settings.py", "replication/test_replication_settings.py"
    files = [Path(__file__), *(Path(__file__).parent / other for other in others)]
    text = "".join(file.read_text() for file in files)

    missing = {key for key in broker_config.KEYS | NET_KEYS.keys() if f"{key}=" not in text}
    assert missing == set()
