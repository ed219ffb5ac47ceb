"""The store's configuration: defaults, broker.conf keys, values that cannot work."""

from pathlib import Path

import pytest

from orbitmq.errors import ConfigError
from orbitmq.message import Host
from orbitmq.store.config import FlushMode, Role, StoreConfig, parse_delay_levels
from orbitmq.units import HOUR_MS


@pytest.mark.feature("F67")
def test_keys_of_a_broker_conf_change_what_they_name(tmp_path):
    config = StoreConfig.from_settings(
        tmp_path,
        {
            "flushDiskType": "SYNC_FLUSH",
            "flushIntervalCommitLog": "200",
            "flushCommitLogLeastPages": "2",
            "flushCommitLogThoroughInterval": "3000",
            "brokerRole": "SLAVE",
            "deleteWhen": "02;14",
            "fileReservedTime": "48",
            "messageDelayLevel": "1s 2m 3h 1d",
            "mappedFileSizeConsumeQueue": "1999",
            "enableConsumeQueueExt": "true",
            "storePathCommitLog": "/a,/b",
            "brokerIP1": "10.1.2.3",
            "listenPort": "10921",
            "brokerName": "not the store's business",
            "diskMaxUsedSpaceRatio": "99",
        },
    )

    assert config.flush_mode is FlushMode.SYNC
    assert (config.flush_interval_ms, config.flush_least_pages) == (200, 2)
    assert config.flush_thorough_ms == 3000
    assert config.role is Role.REPLICA
    assert config.delete_hours == (2, 14)
    assert config.retention_ms == 48 * HOUR_MS
    assert config.delay_ms == (0, 1_000, 120_000, 3 * HOUR_MS, 24 * HOUR_MS)
    assert config.cq_file_bytes == 2000
    assert config.enable_cq_ext
    assert config.commit_log_paths == (Path("/a"), Path("/b"))
    assert config.store_host == Host(b"\x0a\x01\x02\x03", 10921)
    assert config.disk_used_max == 95


@pytest.mark.parametrize(
    ("key", "text", "rule"),
    [
        ("flushDiskType", "SOMETIMES", "cannot be understood"),
        ("mappedFileSizeCommitLog", "big", "cannot be understood"),
        ("mappedFileSizeCommitLog", "255", "from 256 to 2147483647"),
        ("mappedFileSizeCommitLog", "2147483648", "from 256 to 2147483647"),
        ("mappedFileSizeConsumeQueue", "0", "multiple of 20"),
        ("mappedFileSizeConsumeQueueExt", "23", "from 24"),
        ("mapperFileSizeBatchConsumeQueue", "0", "multiple of 46"),
        ("maxHashSlotNum", "0", "at least 1"),
        ("maxIndexNum", "1", "at least 2"),
        ("maxMessageSize", "0", "at least 1"),
        ("transientStorePoolSize", "0", "at least 1"),
        ("deleteFileBatchMax", "0", "at least 1"),
        ("messageDelayLevel", "1s 5x", "units s, m, h, d"),
        ("messageDelayLevel", "", "at least one level"),
        ("deleteWhen", "24", "hours from 0 to 23"),
        ("deleteWhen", "-1", "hours from 0 to 23"),
        ("brokerIP1", "localhost", "IP address"),
    ],
)
def test_a_value_that_cannot_work_is_refused_by_its_key_with_the_rule(tmp_path, key, text, rule):
    with pytest.raises(ConfigError) as raised:
        StoreConfig.from_settings(tmp_path, {key: text})

    assert raised.value.exit_code == 2
    assert raised.value.setting == key
    assert text in str(raised.value.value)
    assert rule in raised.value.rule


def test_overrides_win(tmp_path):
    config = StoreConfig.from_settings(tmp_path, {"maxMessageSize": "100"}, message_bytes_max=200)
    assert config.message_bytes_max == 200


def test_delay_levels_start_at_one():
    assert parse_delay_levels("1s 1m") == (0, 1_000, 60_000)
