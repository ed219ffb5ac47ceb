"""Settings that change while a broker runs: which, to what effect, and where they are kept."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from admin_world import AdminWorld
from golden_frames import good_frames
from live_broker import LiveClient, live_broker, run_live
from orbitmq.broker import live_settings
from orbitmq.broker.config import BrokerConfig, Transfer
from orbitmq.broker.live_settings import BROKER_KEYS, FIXED_KEYS, LIVE_KEYS
from orbitmq.errors import StoreError
from orbitmq.setting_keys import LOG_KEYS
from orbitmq.settings import parse_properties
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command

UPDATE = RequestCode.UPDATE_BROKER_CONFIG
GET = RequestCode.GET_BROKER_CONFIG


@pytest.fixture
def world(tmp_path: Path) -> Iterator[AdminWorld]:
    with AdminWorld(tmp_path) as world:
        yield world


def settings_of(answer: Command) -> dict[str, str]:
    return {key: value for _, key, value in parse_properties(answer.body.decode())}


def settings(world: AdminWorld) -> dict[str, str]:
    return settings_of(world.request(GET))


def kept(world: AdminWorld) -> dict[str, str]:
    file = world.config.kept_file
    text = file.read_text() if file.exists() else ""
    return {key: value for _, key, value in parse_properties(text)}


OWN_FIXED = {
    "dispatch",
    "failover",
    "failoverCaFile",
    "failoverCertFile",
    "failoverKeyFile",
    "failoverLeaseMs",
    "failoverPasswordFile",
    "failoverUser",
    "indexFileRollInterval",
    "maxIndexFileNum",
    "memoryTopicBytesMax",
    "memoryTopicEnable",
    "primaryAddress",
    "waitForReaders",
}


def rocketmq_settings() -> dict[str, str]:
    """Return what a RocketMQ 5.3.3 broker said of itself."""
    frames = good_frames("java-json/mqadmin")
    answer = next(f.command for f in frames if f.request_code == 26 and f.command.body)
    return settings_of(answer)


# Which keys


def test_every_key_of_rocketmq_is_live_or_fixed_or_without_effect(world: AdminWorld) -> None:
    theirs = rocketmq_settings().keys()

    assert theirs <= BROKER_KEYS
    state = {"stateSyncInterval", "stateSyncAllInterval"}
    assert LIVE_KEYS - theirs == {*LOG_KEYS, *state, "pullTransfer", "syncMasterAsInV4"}
    assert FIXED_KEYS - theirs == {
        *OWN_FIXED,
        "haMasterAddress",  # told only when it is set
        "readOnlyCommitLogStorePaths",
    }
    assert not LIVE_KEYS & FIXED_KEYS
    assert settings(world).keys() | {"slaveReadEnable"} >= LIVE_KEYS | FIXED_KEYS


@pytest.mark.parametrize("key", sorted(live_settings._REASON_OF))
def test_every_reason_is_about_a_key_that_is_fixed(key: str) -> None:
    assert key in FIXED_KEYS


# Keys that only change behaviour


def test_key_that_means_nothing_here_is_kept_and_said_to_have_no_effect(world: AdminWorld) -> None:
    body = b"accountStatsEnable=false\naclCacheMaxNum=4000\nlongPollingEnable=false\n"

    answer = world.request(UPDATE, body)

    told = "accountStatsEnable, aclCacheMaxNum: kept, without effect here"
    assert (answer.code, answer.remark) == (0, told)
    assert settings(world)["aclCacheMaxNum"] == "4000"
    assert kept(world) == {
        "accountStatsEnable": "false",
        "aclCacheMaxNum": "4000",
        "longPollingEnable": "false",
    }


def test_name_that_nobody_knows_is_refused(world: AdminWorld) -> None:
    answer = world.request(UPDATE, b"longPollingEnable=false\nfooBar=1\nfileReservedTimes=1\n")

    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert answer.remark == (
        "fileReservedTimes (did you mean fileReservedTime?), fooBar: no such setting. "
        "Nothing was changed."
    )
    assert world.config.long_polling
    assert kept(world) == {}


@pytest.mark.parametrize("key", ["kvConfigPath", "orderMessageEnable"])
def test_setting_of_a_name_server_is_no_setting_of_a_broker(world: AdminWorld, key: str) -> None:
    assert world.request(UPDATE, f"{key}=true\n".encode()).code == ResponseCode.INVALID_PARAMETER


# What is fixed at the start


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("brokerName=other", "names are what clients"),
        ("brokerId=3", "names are what clients"),
        ("listenPort=1234", "taken at the start"),
        ("serverChannelMaxIdleTimeSeconds=9", "taken at the start"),
        ("storePathRootDir=/elsewhere", "lie there"),
        ("mappedFileSizeCommitLog=4096", "have this size"),
        ("maxIndexNum=77", "have this size"),
        ("reviveQueueNum=3", "made at its start"),
        ("memoryTopicEnable=true", "get their room at the start"),
        ("memoryTopicBytesMax=1000000", "get their room at the start"),
        ("flushDiskType=SYNC_FLUSH", "the store is opened with it"),
        ("messageDelayLevel=1s", "the store is opened with it"),
    ],
)
def test_what_is_fixed_at_the_start_is_refused_with_the_reason(
    world: AdminWorld, line: str, reason: str
) -> None:
    answer = world.request(UPDATE, f"longPollingEnable=false\n{line}\n".encode())

    assert answer.code == ResponseCode.NO_PERMISSION
    remark = answer.remark or ""
    assert f"{line.split('=', maxsplit=1)[0]}: " in remark
    assert reason in remark
    assert remark.endswith(
        "Set it in the broker's configuration file and start it again. Nothing was changed."
    )
    assert world.config.long_polling
    assert kept(world) == {}


def test_everything_that_was_read_can_be_sent_back(world: AdminWorld) -> None:
    body = world.request(GET).body + b"messageDelayLevel=1s  5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m "
    body += b"9m 10m 20m 30m 60m 120m\ndeleteWhen=4\n"  # other texts, the same values

    answer = world.request(UPDATE, body)

    assert (answer.code, answer.remark) == (0, None)


# Values


@pytest.mark.parametrize(
    "line",
    [
        "brokerPermission=99",
        "shortPollingTimeMills=soon",
        "shortPollingTimeMills=1_000",
        "shortPollingTimeMills=-1",
        "flushConsumerOffsetInterval=0",
        "autoCreateTopicEnable=yes",
        "wakeFlushWhenPutMessage=1",
        "flushIntervalCommitLog=0",
        "fileReservedTime=-1",
        "maxMessageSize=0",
        "maxMessageSize=99999999999999999999",
        "deleteWhen=25",
    ],
)
def test_value_that_cannot_be_changes_nothing(world: AdminWorld, line: str) -> None:
    answer = world.request(UPDATE, f"longPollingEnable=false\n{line}\n".encode())

    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert (answer.remark or "").endswith("Nothing was changed.")
    assert world.config.long_polling
    assert kept(world) == {}


# Effects


def test_template_topics_come_with_their_settings(tmp_path: Path) -> None:
    with AdminWorld(tmp_path, auto_create_topic=False) as world:
        assert "TBW102" not in world.context.topics

        world.request(UPDATE, b"autoCreateTopicEnable=true\ntraceTopicEnable=true\n")

        assert world.context.topics.create_for_send("New", "TBW102", 4) is not None
        assert "RMQ_SYS_TRACE_TOPIC" in world.context.topics


def test_open_store_follows(world: AdminWorld) -> None:
    world.append("T", b"1", b"2", b"3")

    world.request(UPDATE, b"maxTransferCountOnMessageInMemory=2\nfileReservedTime=5\n")

    assert len(world.store.get("T", 0, 0).records) == 2
    assert world.store.config.retention_ms == 5 * 3_600_000
    assert world.store.config.segment_bytes == 256 * 1024  # as it was opened


def test_sends_follow_a_new_size_limit_in_both_ways(tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path, store={"plain_records": 0}) as broker:
            broker.context.store.wait_kernels()
            client = LiveClient(broker.address)
            for _ in range(2):
                assert (await client.send("T", b"x" * 100)).code == 0

            assert (await client.ask(UPDATE, body=b"maxMessageSize=99\n")).code == 0

            assert (await client.send("T", b"x" * 100)).code == ResponseCode.MESSAGE_ILLEGAL
            assert (await client.send("T", b"x" * 99)).code == 0
            assert (await client.ask(UPDATE, body=b"maxMessageSize=100\n")).code == 0
            assert (await client.send("T", b"x" * 100)).code == 0

    run_live(main)


def test_pulls_and_registration_follow(world: AdminWorld) -> None:
    assert world.config.transfer is Transfer.COPY

    body = b"pullTransfer=slices\nenableSplitRegistration=true\nsplitRegistrationSize=9\n"
    answer = world.request(UPDATE, body + b"enableSingleTopicRegister=true\n")

    assert (answer.code, answer.remark) == (0, None)
    assert world.config.transfer is Transfer.SLICES
    assert (world.config.split_register, world.config.split_register_size) == (True, 9)
    assert world.config.single_topic_register
    assert world.request(UPDATE, b"pullTransfer=pigeon\n").code == ResponseCode.INVALID_PARAMETER


def test_lag_follows(world: AdminWorld) -> None:
    body = b"estimateAccumulation=false\nmaxConsumeQueueScan=7\nsampleCountThreshold=8\n"

    answer = world.request(UPDATE, body)

    assert (answer.code, answer.remark) == (0, None)
    assert not world.config.estimate_lag
    assert (world.config.lag_scan_max, world.config.lag_matches_max) == (7, 8)


# Keeping


def test_changes_that_cannot_be_kept_are_not_made(
    world: AdminWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise StoreError("b.conf", "cannot be written", "Look at its rights.")

    monkeypatch.setattr("orbitmq.broker.processors.runtime.keep_settings", fail)

    answer = world.request(UPDATE, b"longPollingEnable=false\n")

    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "cannot be kept" in (answer.remark or "")
    assert world.config.long_polling


def test_two_changes_at_once_are_both_kept(world: AdminWorld) -> None:
    world.handler.on_commands(
        world.tool,  # type: ignore[arg-type]
        [
            Command(UPDATE, {}, b"longPollingEnable=false\n", opaque=1),
            Command(UPDATE, {}, b"traceOn=false\n", opaque=2),
        ],
    )
    world.request(UPDATE, b"deleteWhen=05\n")

    assert kept(world) == {"longPollingEnable": "false", "traceOn": "false", "deleteWhen": "05"}
    assert (world.config.long_polling, world.config.trace_on) == (False, False)


def test_flag_that_wins_at_the_next_start_is_told(tmp_path: Path) -> None:
    with AdminWorld(tmp_path, stronger={"traceOn": "flag"}) as world:
        answer = world.request(UPDATE, b"traceOn=false\n")

    assert (answer.code, answer.remark) == (
        0,
        "traceOn: kept, but at the next start the flag wins",
    )


def test_file_is_beneath_environment_and_flags(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "config" / "orbitmq.properties"
    file.parent.mkdir()
    file.write_text(
        "traceOn=false\nregionId=kept\nlongPollingEnable=false\nautoCreateTopicEnable=false\n"
    )
    monkeypatch.setenv("ORBITMQ_REGION_ID", "of the environment")
    flags = {"storePathRootDir": tmp_path, "brokerIP1": "10.0.0.1", "longPollingEnable": True}

    config = BrokerConfig.load(None, flags)

    assert (config.trace_on, config.region, config.long_polling) == (
        False,
        "of the environment",
        True,
    )
    assert config.kept_file == file
    assert config.stronger == {
        "storePathRootDir": "flag",
        "brokerIP1": "flag",
        "longPollingEnable": "flag",
        "regionId": "environment, ORBITMQ_REGION_ID",
    }
    own = tmp_path / "broker.conf"
    own.write_text("traceOn=true\n")
    with_file = BrokerConfig.load(own, flags)
    assert with_file.kept_file == own
    assert with_file.trace_on
    assert (config.auto_create_topic, with_file.auto_create_topic) == (False, True)


# Through a restart

BROKER = [sys.executable, "-c", "from orbitmq.cli import main; main()", "broker", "run"]


@contextmanager
def broker_process(*options: object) -> Iterator[str]:
    """Run a broker and stop it in order; yield its address."""
    command = [*BROKER, *("--host", "127.0.0.1", "--port", "0", "--output", "json")]
    with subprocess.Popen(
        [*command, *map(str, options)], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())["broker"]
            process.terminate()
            assert process.wait(30) == 0
        finally:
            process.kill()


def ask(address: str, code: int, body: bytes = b"") -> Command:
    async def main() -> Command:
        return await LiveClient(address).ask(code, body=body)

    return run_live(main)


CHANGES = b"autoCreateTopicEnable=false\nfileReservedTime=48\nestimateAccumulation=false\n"


@pytest.mark.parametrize("with_file", [True, False])
def test_changed_settings_survive_a_restart(tmp_path: Path, with_file: bool) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("# ours\nfileReservedTime=24  \nbrokerName=b1\n")
    options = ["--store", tmp_path / "store", *(["-c", conf] if with_file else [])]
    with broker_process(*options) as address:
        assert ask(address, UPDATE, CHANGES).code == 0

    with broker_process(*options) as address:
        after = settings_of(ask(address, GET))

    assert after["autoCreateTopicEnable"] == "false"
    assert after["fileReservedTime"] == "48"
    assert after["estimateAccumulation"] == "false"
    own = tmp_path / "store" / "config" / "orbitmq.properties"
    assert own.exists() is not with_file
    text = conf.read_text()
    assert text.startswith("# ours\nfileReservedTime=48\nbrokerName=b1\n") is with_file
