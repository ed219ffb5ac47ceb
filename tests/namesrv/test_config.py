"""Settings of a name server."""

from pathlib import Path

import pytest

from golden_frames import good_frames
from orbitmq.errors import ConfigError
from orbitmq.namesrv.config import KNOWN_KEYS, NamesrvConfig
from orbitmq.setting_keys import LOG_KEYS, NAMESRV_KEYS
from orbitmq.settings import parse_properties


def test_rocketmqs_keys_are_understood():
    config = NamesrvConfig.from_settings(
        {
            "listenPort": "9000",
            "bindAddress": "127.0.0.1",
            "kvConfigPath": "/tmp/kv.json",
            "orderMessageEnable": "true",
            "waitSecondsForService": "5",
            "somethingElse": "x",
        }
    )

    assert config == NamesrvConfig(
        host="127.0.0.1",
        port=9000,
        kv_config_path=Path("/tmp/kv.json"),
        order_message_enable=True,
        wait_for_service_ms=5000,
    )


def test_the_key_value_config_has_rocketmqs_place():
    assert NamesrvConfig.from_settings({}).kv_config_path == Path.home() / "namesrv/kvConfig.json"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("listenPort", "x"),
        ("listenPort", "65536"),
        ("listenPort", "-1"),
        ("orderMessageEnable", "yes"),
        ("scanNotActiveBrokerInterval", "0"),
        ("serverChannelMaxIdleTimeSeconds", "0"),
    ],
)
def test_a_value_that_cannot_work_is_named(key, value):
    with pytest.raises(ConfigError, match=key):
        NamesrvConfig.from_settings({key: value})


def test_our_defaults_are_those_of_rocketmq():
    frame = next(
        f for f in good_frames("java-json/mqadmin") if f.request_code == 319 and f.command.body
    )
    theirs = {k: v for _, k, v in parse_properties(frame.command.body.decode())}
    ours = {k: v for k, v in NamesrvConfig().properties().items() if k not in LOG_KEYS}
    set_there = {"bindAddress", "configStorePath", "kvConfigPath", "listenPort"}

    assert {k: v for k, v in ours.items() if k not in set_there} == {
        k: theirs[k] for k in ours if k not in set_there
    }
    assert set(ours) <= theirs.keys()
    assert theirs.keys() == KNOWN_KEYS - LOG_KEYS
    assert theirs.keys() >= NAMESRV_KEYS


def test_changes_are_kept_beside_the_key_value_config_or_in_the_file(tmp_path):
    flags = {"kvConfigPath": tmp_path / "kv.json"}
    kept = tmp_path / "orbitmq.namesrv.properties"
    kept.write_text("orderMessageEnable=true\nserverWorkerThreads=4\n")
    own = tmp_path / "namesrv.conf"
    own.write_text("needWaitForService=true\n")

    without, with_file = NamesrvConfig.load(None, flags), NamesrvConfig.load(own, flags)

    assert (without.order_message_enable, with_file.order_message_enable) == (True, False)
    assert without.properties()["configStorePath"] == str(kept)
    assert without.properties()["serverWorkerThreads"] == "4"
    assert with_file.properties()["configStorePath"] == str(own)
    assert with_file.wait_for_service
    assert NamesrvConfig().kept_file is None
