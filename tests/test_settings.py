"""Settings from files, environment and flags."""

import errno
from pathlib import Path

import pytest

from golden_stores import GOLDEN, STORES
from golden_stores import settings as golden_settings
from orbitmq.errors import ConfigError
from orbitmq.settings import load_settings, parse_properties, read_settings
from orbitmq.store.config import StoreConfig


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("name", STORES)
def test_a_real_broker_conf_is_read_without_a_warning(name: str) -> None:
    settings = load_settings(GOLDEN / f"{name}.conf", environment={})

    assert dict(settings) == golden_settings(name)
    assert settings.warnings == []


def test_flag_wins_over_environment_over_file_over_default(tmp_path: Path) -> None:
    file = write(tmp_path / "broker.conf", "fileReservedTime=1\ndeleteWhen=02\nmaxIndexNum=7\n")
    environment = {"ORBITMQ_FILE_RESERVED_TIME": "2", "ORBITMQ_DELETE_WHEN": "03", "HOME": "/"}

    settings = load_settings(
        file, environment=environment, flags={"fileReservedTime": 3, "x": None}
    )

    assert dict(settings) == {"fileReservedTime": "3", "deleteWhen": "03", "maxIndexNum": "7"}
    assert settings.source("fileReservedTime") == "flag"
    assert settings.source("deleteWhen") == "environment, ORBITMQ_DELETE_WHEN"
    assert settings.source("maxIndexNum") == "broker.conf, line 3"
    assert settings.source("flushDiskType") == "default"


@pytest.mark.feature("F67")
def test_flush_keys_of_a_broker_conf_reach_the_store_and_wrong_names_are_warned_about(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = write(
        tmp_path / "broker.conf",
        "flushDiskType=SYNC_FLUSH\nflushIntervalCommitLog=250\nflushCommitLogLeastPages = 8\n"
        "flushCommitLogThoroughInterval: 7000\nsyncFlushTimeout 1234\nflushIntervalConsumeQueue=50\n"
        "flushCommitLogLeastPoints=9\n",
    )

    settings = load_settings(file, environment={})
    config = StoreConfig.from_settings(tmp_path, settings)

    assert config.sync_flush
    assert config.flush_interval_ms == 250
    assert config.flush_least_pages == 8
    assert config.flush_thorough_ms == 7000
    assert config.sync_flush_timeout_ms == 1234
    assert config.queue_flush_interval_ms == 50
    expected = (
        "broker.conf, line 7: unknown setting flushCommitLogLeastPoints; "
        "did you mean flushCommitLogLeastPages?"
    )
    assert settings.warnings == [expected]
    assert expected in caplog.text


def test_a_name_like_no_other_is_warned_about_without_a_guess(tmp_path: Path) -> None:
    settings = load_settings(write(tmp_path / "b.conf", "zzz=1\n"), environment={})

    assert settings.warnings == ["b.conf, line 1: unknown setting zzz; it has no effect"]


def test_a_wrong_case_is_recognised(tmp_path: Path) -> None:
    settings = load_settings(
        write(tmp_path / "b.conf", "FLUSHDISKTYPE=SYNC_FLUSH\n"), environment={}
    )

    assert settings.warnings[0].endswith("did you mean flushDiskType?")


def test_environment_takes_any_spelling_and_ignores_what_is_no_setting() -> None:
    environment = {
        "ORBITMQ_BROKER_IP1": "192.0.2.1",
        "ORBITMQ_maxHashSlotNum": "5",
        "ORBITMQ_FLUSH_DISK_TYP": "SYNC_FLUSH",
        "ORBITMQ_TEST_ROUNDS": "3",
    }

    settings = load_settings(environment=environment)

    assert settings["brokerIP1"] == "192.0.2.1"
    assert settings["maxHashSlotNum"] == "5"
    assert settings.warnings == [
        "environment, ORBITMQ_FLUSH_DISK_TYP: unknown setting flushDiskTyp; did you mean flushDiskType?"
    ]


def test_toml_tables_only_group(tmp_path: Path) -> None:
    text = (
        'flushDiskType = "SYNC_FLUSH"\n[store]\nmappedFileSizeCommitLog = 65536\n'
        'enableLmq = true\nstorePathCommitLog = ["/a", "/b"]\nlogicalDiskSpaceCleanForciblyThreshold = 0.5\n'
    )

    settings = load_settings(write(tmp_path / "orbitmq.toml", text), environment={})

    assert dict(settings) == {
        "flushDiskType": "SYNC_FLUSH",
        "mappedFileSizeCommitLog": "65536",
        "enableLmq": "true",
        "storePathCommitLog": "/a,/b",
        "logicalDiskSpaceCleanForciblyThreshold": "0.5",
    }


@pytest.mark.parametrize("text", ["= 1", "a = [1, 2]", "a = 1979-05-27", "[x]\n[x.y]\na = 1"])
def test_toml_that_cannot_be_settings_is_a_config_error(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError):
        load_settings(write(tmp_path / "orbitmq.toml", text), environment={})


def test_a_missing_file_is_a_config_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file") as caught:
        read_settings(tmp_path / "none.conf")

    assert str(tmp_path / "none.conf") in str(caught.value)
    assert caught.value.exit_code == 2
    assert isinstance(caught.value.__cause__, OSError)
    assert caught.value.__cause__.errno == errno.ENOENT


def test_properties_are_read_as_java_reads_them() -> None:
    text = (
        "# comment\n! too\n\n  a = 1  \nb:2\nc 3\nd\\=e=4\\t5\nf=one \\\n   two\n"
        "g=\\u8ba2\\\\x\nh\ni==j\nk=v\\\\\\\n  w\nlast=x\\"
    )

    found = list(parse_properties(text))

    assert found == [
        (4, "a", "1"),
        (5, "b", "2"),
        (6, "c", "3"),
        (7, "d=e", "4\t5"),
        (8, "f", "one two"),
        (10, "g", "订\\x"),
        (11, "h", ""),
        (12, "i", "=j"),
        (13, "k", "v\\w"),
        (15, "last", "x"),
    ]


def test_a_latin_1_file_is_read_too(tmp_path: Path) -> None:
    (tmp_path / "b.conf").write_bytes("brokerName=caf\xe9\n".encode("latin-1"))

    assert load_settings(tmp_path / "b.conf", environment={})["brokerName"] == "café"
