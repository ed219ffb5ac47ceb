"""What a broker can be told."""

from pathlib import Path

import pytest

from orbitmq.broker.config import BrokerConfig, local_address
from orbitmq.errors import ConfigError
from orbitmq.message import Host
from orbitmq.store.config import FlushMode, StoreConfig


def config(**given: object) -> BrokerConfig:
    return BrokerConfig(store=StoreConfig(root=Path("s")), host="10.0.0.1", **given)  # type: ignore[arg-type]


def test_settings_have_rocketmqs_names() -> None:
    made = BrokerConfig.from_settings(
        {
            "storePathRootDir": "data",
            "brokerName": "broker-b",
            "brokerClusterName": "C",
            "brokerIP1": "10.1.2.3",
            "listenPort": "20911",
            "namesrvAddr": "a:9876;b:9876",
            "autoCreateTopicEnable": "false",
            "flushDiskType": "SYNC_FLUSH",
            "unknownKey": "x",
        }
    )

    assert (made.name, made.cluster, made.port) == ("broker-b", "C", 20911)
    assert made.namesrv == ("a:9876", "b:9876")
    assert not made.auto_create_topic
    assert made.store.root == Path("data")
    assert made.store.flush_mode is FlushMode.SYNC
    assert made.store_host(20911) == Host(b"\x0a\x01\x02\x03", 20911)
    properties = made.properties()
    assert properties["namesrvAddr"] == "a:9876;b:9876"
    assert properties["autoCreateTopicEnable"] == "false"
    assert properties["flushDiskType"] == "SYNC_FLUSH"
    assert properties["unknownKey"] == "x"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("listenPort", "2"),
        ("listenPort", "70000"),
        ("listenPort", "x"),
        ("brokerIP1", "not an address"),
        ("brokerName", " "),
        ("brokerClusterName", ""),
        ("brokerId", "-1"),
        ("brokerPermission", "9"),
        ("defaultTopicQueueNums", "0"),
        ("flushDiskType", "SOMETIMES"),
    ],
)
def test_a_value_that_cannot_work_is_refused_by_its_name(key: str, value: str) -> None:
    with pytest.raises(ConfigError, match=key):
        BrokerConfig.from_settings({"brokerIP1": "10.0.0.1", key: value})


def test_changed_settings_are_a_config_that_a_running_one_can_become() -> None:
    running = config()
    asked = {"brokerPermission": "4", "fileReservedTime": "1", "someKey": "1"}

    changed = running.changed(asked)
    before = running.permission
    running.take(changed)

    assert before == 6
    assert (running.permission, running.readable, running.writable) == (4, True, False)
    assert running.store.retention_ms == 3_600_000
    assert running.given == asked


def test_the_time_between_registrations_stays_within_reason() -> None:
    assert config(register_ms=1).register_ms == 10_000
    assert config(register_ms=999_999).register_ms == 60_000


def test_this_machine_has_an_address() -> None:
    assert local_address().count(".") == 3
