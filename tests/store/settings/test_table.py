"""Every setting of a store: its default is RocketMQ's, its key leads to one field, a test sees it at work."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from conf_store import broker_conf
from orbitmq.broker.config import BrokerConfig
from orbitmq.setting_keys import STORE_KEYS
from orbitmq.settings import load_settings
from orbitmq.store.config import _KEYS, StoreConfig

DEFAULTS = {
    "readOnlyCommitLogStorePaths": "",
    "brokerRole": "ASYNC_MASTER",
    "mappedFileSizeCommitLog": "1073741824",
    "mappedFileSizeConsumeQueue": "6000000",
    "mappedFileSizeConsumeQueueExt": "50331648",
    "mapperFileSizeBatchConsumeQueue": "13800000",
    "maxHashSlotNum": "5000000",
    "maxIndexNum": "20000000",
    "maxMessageSize": "4194304",
    "autoMessageVersionOnTopicLen": "true",
    "enabledAppendPropCRC": "false",
    "osPageCacheBusyTimeOutMills": "1000",
    "messageDelayLevel": "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
    "enableLmq": "false",
    "enableMultiDispatch": "false",
    "maxLmqConsumeQueueNum": "20000",
    "enableConsumeQueueExt": "false",
    "messageIndexEnable": "true",
    "messageIndexSafe": "false",
    "mappedFileSizeTimerLog": "104857600",
    "timerPrecisionMs": "1000",
    "timerRollWindowSlot": "172800",
    "timerFlushIntervalMs": "1000",
    "timerMaxDelaySec": "259200",
    "timerCongestNumEachSlot": "2147483647",
    "timerStopEnqueue": "false",
    "timerStopDequeue": "false",
    "warmMapedFileEnable": "false",
    "flushLeastPagesWhenWarmMapedFile": "4096",
    "dataReadAheadEnable": "true",
    "transientStorePoolEnable": "false",
    "transientStorePoolSize": "5",
    "flushDiskType": "ASYNC_FLUSH",
    "flushIntervalCommitLog": "500",
    "flushCommitLogTimed": "true",
    "flushCommitLogLeastPages": "4",
    "flushCommitLogThoroughInterval": "10000",
    "wakeFlushWhenPutMessage": "false",
    "commitIntervalCommitLog": "200",
    "commitCommitLogLeastPages": "4",
    "commitCommitLogThoroughInterval": "200",
    "wakeCommitWhenPutMessage": "true",
    "syncFlushTimeout": "5000",
    "flushIntervalConsumeQueue": "1000",
    "flushConsumeQueueLeastPages": "2",
    "flushConsumeQueueThoroughInterval": "60000",
    "readUnCommitted": "false",
    "checkCRCOnRecover": "true",
    "forceVerifyPropCRC": "false",
    "deleteWhen": "04",
    "fileReservedTime": "72",
    "cleanResourceInterval": "10000",
    "deleteFileBatchMax": "10",
    "deleteCommitLogFilesInterval": "100",
    "deleteConsumeQueueFilesInterval": "100",
    "destroyMapedFileIntervalForcibly": "120000",
    "redeleteHangedFileInterval": "120000",
    "cleanFileForciblyEnable": "true",
    "diskMaxUsedSpaceRatio": "75",
    "diskSpaceCleanForciblyRatio": "85",
    "diskSpaceWarningLevelRatio": "90",
    "replicasPerDiskPartition": "1",
    "logicalDiskSpaceCleanForciblyThreshold": "0.8",
    "accessMessageInMemoryMaxRatio": "40",
    "maxTransferBytesOnMessageInMemory": "262144",
    "maxTransferCountOnMessageInMemory": "32",
    "maxTransferBytesOnMessageInDisk": "65536",
    "maxTransferCountOnMessageInDisk": "8",
    "maxFilterMessageSize": "16000",
    "travelCqFileNumWhenGetMessage": "1",
    "maxMsgsNumBatch": "64",
}
"""What RocketMQ's MessageStoreConfig has for each key, as its own text; paths are below."""

OWN = {
    "dispatch": "live",
    "indexFileRollInterval": "0",
    "maxIndexFileNum": "0",
    "waitForReaders": "off",
}
OTHERS = {
    "readOnlyCommitLogStorePaths": "/old",
    "brokerRole": "SYNC_MASTER",  # a replica needs a brokerId too
    "flushDiskType": "SYNC_FLUSH",
    "messageDelayLevel": "1s 7s",
    "deleteWhen": "02;14",
    "logicalDiskSpaceCleanForciblyThreshold": "0.5",
    "mappedFileSizeCommitLog": "65536",
    "mappedFileSizeConsumeQueue": "4000",
    "mapperFileSizeBatchConsumeQueue": "4600",
    "diskMaxUsedSpaceRatio": "60",
    "timerPrecisionMs": "500",
    "timerCongestNumEachSlot": "7",
    "dispatch": "spark",
    "indexFileRollInterval": "3600000",
    "maxIndexFileNum": "7",
    "waitForReaders": "groups",
}
"""Other values, where a key takes neither any number nor true and false."""

ELSEWHERE = {
    "timerFlushIntervalMs": "tests/broker/delivery/test_timers.py",
    "messageIndexSafe": "tests/store/test_safe_index.py",
    "waitForReaders": "tests/broker/test_wait_for_readers.py",
}
"""Settings that tests of another folder see at work."""

ROOT = Path(__file__).parents[3]


def other_value(key: str, default: str) -> str:
    if key in OTHERS:
        return OTHERS[key]
    return {"true": "false", "false": "true"}.get(default) or str(int(default) * 3)


@pytest.mark.feature("F67")
def test_all_defaults_are_rocketmqs(tmp_path):
    written = broker_conf(tmp_path, {}).properties()

    root = tmp_path / "store"
    paths = {"storePathRootDir": str(root), "storePathCommitLog": str(root / "commitlog")}
    assert written == {**DEFAULTS, **OWN, **paths}
    assert set(DEFAULTS) <= STORE_KEYS


def test_the_path_of_the_log_is_told_as_it_was_given(tmp_path):
    config = broker_conf(tmp_path, {"storePathCommitLog": "/a, /b"})

    assert config.commit_log_paths == (Path("/a"), Path("/b"))
    assert config.properties()["storePathCommitLog"] == "/a,/b"


def test_without_a_path_a_store_lies_where_rocketmqs_would(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))

    config = BrokerConfig.from_settings(load_settings(environment={}))

    assert config.store.root == tmp_path / "store"


@pytest.mark.feature("F67")
@pytest.mark.parametrize("key", [*DEFAULTS, *OWN])
def test_each_key_of_a_broker_conf_changes_its_own_field_and_no_other(tmp_path, key):
    plain = broker_conf(tmp_path, {})
    text = other_value(key, {**DEFAULTS, **OWN}[key])

    changed = broker_conf(tmp_path, {key: text})

    assert changed.properties() == {**plain.properties(), key: text}
    different = [
        field.name
        for field in fields(StoreConfig)
        if getattr(changed, field.name) != getattr(plain, field.name)
    ]
    assert different == [_KEYS[key][0]]


def test_the_environment_wins_over_the_file(tmp_path):
    file = tmp_path / "broker.conf"
    file.write_text("flushIntervalCommitLog=200\n", encoding="utf-8")

    loaded = load_settings(file, environment={"ORBITMQ_FLUSH_INTERVAL_COMMIT_LOG": "300"})

    assert BrokerConfig.from_settings(loaded).store.flush_interval_ms == 300


def test_every_setting_is_seen_at_work_by_a_test():
    texts = [path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_*.py")]
    named = {
        key
        for text in texts
        for keys in re.findall(r"^@wires\(([^)]*)\)", text, re.MULTILINE)
        for key in re.findall(r'"(\w+)"', keys)
    }
    elsewhere = {
        key for key, file in ELSEWHERE.items() if key in (ROOT / file).read_text(encoding="utf-8")
    }

    assert named | elsewhere == set(_KEYS)
