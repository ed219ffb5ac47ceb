"""Settings of a log: defaults, other values, values that cannot be."""

from pathlib import Path

import pytest

from orbitmq.broker.config import BrokerConfig
from orbitmq.errors import ConfigError
from orbitmq.logs.config import LogConfig
from orbitmq.namesrv.config import NamesrvConfig
from orbitmq.setting_keys import LOG_KEYS

DEFAULTS = {
    "logLevel": "info",
    "logFile": "",
    "logFileBytes": str(128 << 20),
    "logFileCount": "10",
    "slowRequestMillis": "500",
}
OTHERS = {
    "logLevel": "DEBUG",
    "logFile": "/var/log/x.log",
    "logFileBytes": "0",
    "logFileCount": "1",
    "slowRequestMillis": "0",
}


@pytest.mark.parametrize("config", [BrokerConfig, NamesrvConfig])
def test_both_servers_have_them_with_the_same_defaults(
    config: type[BrokerConfig] | type[NamesrvConfig],
) -> None:
    default, other = config.from_settings({}), config.from_settings(OTHERS)

    assert {key: default.properties()[key] for key in LOG_KEYS} == DEFAULTS
    assert other.logs == LogConfig(
        level="debug", file=Path("/var/log/x.log"), file_bytes=0, file_count=1, slow_request_ms=0
    )
    assert default.changed(OTHERS).logs == other.logs


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("logLevel", ""),
        ("logLevel", "trace"),
        ("logFileBytes", "-1"),
        ("logFileBytes", "1M"),
        ("logFileCount", "0"),
        ("slowRequestMillis", "-1"),
    ],
)
def test_value_that_cannot_be_is_named(key: str, value: str) -> None:
    with pytest.raises(ConfigError, match=key):
        LogConfig.from_settings({key: value})
