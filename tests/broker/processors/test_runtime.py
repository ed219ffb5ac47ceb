"""A broker's settings and runtime figures for tools."""

import json
import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from admin_world import AdminWorld
from orbitmq.broker.config import BrokerConfig
from orbitmq.store.config import Role
from orbitmq.testing.builders import make_request
from orbitmq.units import HOUR_MS, MINUTE_MS
from orbitmq.wire.codes import RequestCode

UPDATE = RequestCode.UPDATE_BROKER_CONFIG


@pytest.fixture
def world(tmp_path: Path) -> Iterator[AdminWorld]:
    with AdminWorld(tmp_path) as world:
        yield world


def settings(world: AdminWorld) -> dict[str, str]:
    body = world.request(RequestCode.GET_BROKER_CONFIG).body.decode()
    return dict(line.split("=", 1) for line in body.splitlines())


def figures(world: AdminWorld) -> dict[str, str]:
    table: dict[str, str] = json.loads(world.request(RequestCode.GET_BROKER_RUNTIME_INFO).body)[
        "table"
    ]
    return table


def test_changed_setting_is_in_effect_at_once(world: AdminWorld) -> None:
    before = world.request(RequestCode.GET_BROKER_CONFIG).fields or {}

    answer = world.request(UPDATE, b"autoCreateTopicEnable=false\nlongPollingEnable=false\n")

    assert (answer.code, answer.remark) == (0, None)
    assert world.context.config.auto_create_topic is False
    assert world.context.topics.create_for_send("New", "TBW102", 4) is None
    assert settings(world)["longPollingEnable"] == "false"
    after = world.request(RequestCode.GET_BROKER_CONFIG).fields or {}
    assert json.loads(after["version"])["counter"] == json.loads(before["version"])["counter"] + 1


def test_changed_permission_is_registered_anew(
    world: AdminWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[bool] = []
    monkeypatch.setattr(world.context.registration, "register_now", lambda: told.append(True))
    version = world.context.topics.version

    assert world.request(UPDATE, b"brokerPermission=4\n").code == 0

    assert told == [True]
    assert world.context.topics.version != version
    assert not world.context.config.writable


def test_told_settings_would_make_the_same_config(world: AdminWorld) -> None:
    told = settings(world)

    again = BrokerConfig.from_settings(told)

    for name in ("name", "cluster", "host", "port", "permission", "client_expiry_ms", "namesrv"):
        assert getattr(again, name) == getattr(world.context.config, name), name
    assert again.store.segment_bytes == world.context.config.store.segment_bytes
    assert again.store.retention_ms == world.context.config.store.retention_ms


def test_figures_tell_what_was_stored_and_read(world: AdminWorld) -> None:
    world.topic("T")
    world.append("T", b"a", b"b")
    world.store.get("T", 0, 0)
    world.context.statistics.on_put("T", 2, 10)
    world.context.statistics.on_get("T", "G", 2, 10)
    world.clock.advance(25 * HOUR_MS + 3 * MINUTE_MS)

    told = figures(world)

    assert told["msgPutTotalTodayNow"] == told["msgGetTotalTodayNow"] == "2"
    assert told["putMessageTimesTotal"] == "2"
    assert told["commitLogMaxOffset"] == str(world.store.max_log_offset)
    assert told["earliestMessageTimeStamp"] == str(world.store.earliest_time())
    assert told["runtime"] == "[ 1 days, 1 hours, 3 minutes, 0 seconds ]"
    assert told["brokerVersionDesc"] == "V5_3_3"
    assert 0 <= float(told["commitLogDiskRatio"]) <= 1


def test_times_of_appends_are_those_that_were_measured(world: AdminWorld) -> None:
    timing = world.store._counters.append_time
    for ms in [0.2] * 980 + [7] * 10 + [30] * 9 + [12_000]:
        timing.add(round(ms * 1_000_000))

    told = figures(world)

    assert told["putMessageDistributeTime"] == (
        "[<=0ms]:980 [0~10ms]:10 [10~50ms]:9 [50~100ms]:0 [100~200ms]:0 [200~500ms]:0 "
        "[500ms~1s]:0 [1~2s]:0 [2~3s]:0 [3~4s]:0 [4~5s]:0 [5~10s]:0 [10s~]:1 "
    )
    assert (told["putLatency99"], told["putLatency999"]) == ("10.00", "50.00")
    assert told["putMessageEntireTimeMax"] == "12000"


def test_append_that_hangs_is_seen(world: AdminWorld) -> None:
    assert figures(world)["pageCacheLockTimeMills"] == "0"
    world.store._log.appender._lock_since_ms = world.clock.now_ms()
    world.clock.advance(1_234)

    assert figures(world)["pageCacheLockTimeMills"] == "1234"
    world.store._log.appender._lock_since_ms = 0


def test_free_buffers_of_the_pool_are_counted(tmp_path: Path) -> None:
    pool = {"transient_pool": True, "transient_pool_size": 3}
    with AdminWorld(tmp_path, store=pool) as world:
        before = figures(world)["remainTransientStoreBufferNumbs"]
        world.store.append_nowait(make_request(0))

        assert before == "3"
        assert figures(world)["remainTransientStoreBufferNumbs"] == "2"


def test_replica_is_not_active(tmp_path: Path) -> None:
    with AdminWorld(tmp_path, store={"role": Role.REPLICA}, broker_id=1) as world:
        assert figures(world)["brokerActive"] == "false"


def test_rates_appear_when_there_are_enough_samples(world: AdminWorld) -> None:
    world.topic("T")
    assert figures(world)["putTps"] == "  "
    for _ in range(62):
        world.clock.advance(1_000)
        world.append("T", b"x")
        world.context.statistics.tick(world.store.statistics())

    told = figures(world)

    ten, sixty, ten_minutes = told["putTps"].split(" ")
    assert (float(ten), float(sixty), ten_minutes) == (1.0, 1.0, "")
    assert told["getTotalTps"] == "0.0 0.0 0.0"
    assert told["getTransferredTps"] == "0.0 0.0 "


def test_empty_broker_has_figures_without_nonsense(world: AdminWorld) -> None:
    told = figures(world)

    assert told["earliestMessageTimeStamp"] == "-1"
    assert (told["commitLogMinOffset"], told["commitLogMaxOffset"]) == ("-1", "0")
    assert (told["putLatency99"], told["brokerActive"]) == ("0.00", "true")
    assert told["putMessageTimesTotal"] == "1"  # RocketMQ's: others divide by it
    for name, value in told.items():
        if name.endswith(("Tps", "Time", "Desc", "runtime")) or "Capacity" in name:
            continue
        if name.startswith("service_"):  # words, no figures; this store has no threads
            assert value.startswith("not started")
            continue
        first = value.split(",")[0].split(" ")[0]
        assert first == "true" or math.isfinite(float(first)), (name, value)


def test_delay_levels_in_use_are_told(world: AdminWorld) -> None:
    world.append("SCHEDULE_TOPIC_XXXX", b"x", queue_id=2)

    assert figures(world)["scheduleMessageOffset_3"] == "0,1"


def test_expired_segments_are_deleted_on_request(
    world: AdminWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []
    monkeypatch.setattr(world.store, "delete_expired_now", lambda: asked.append(True))

    assert world.request(RequestCode.DELETE_EXPIRED_COMMITLOG).code == 0
    assert asked == [True]


@pytest.mark.feature("F121")
def test_mapped_files_and_bytes_are_told(world: AdminWorld) -> None:
    before = figures(world)
    world.topic("T")
    world.append("T", b"x")

    told, counted = figures(world), world.store.statistics()

    assert (before["mappedFiles"], before["mappedBytes"]) == ("0", "0")
    assert told["mappedFiles"] == str(counted.mapped_files) != "0"
    assert told["mappedBytes"] == str(counted.mapped_bytes) != "0"
