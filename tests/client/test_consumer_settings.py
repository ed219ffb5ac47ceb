"""Arguments of a consumer."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from orbitmq.client.consumer.config import (
    ConsumerConfig,
    Model,
    StartFrom,
    consumer_settings,
    parse_start,
    parse_topics,
)
from orbitmq.client.consumer.subscription import sql
from orbitmq.errors import ConfigError, InvalidMessageError


def settings(group="demo", topics="Orders", broadcasting=False, start_from="last", **given):
    return consumer_settings(
        "127.0.0.1:9876", group, topics, False, broadcasting, start_from, None, given
    )


@pytest.mark.parametrize(
    ("topics", "expected"),
    [
        pytest.param("Orders", {"Orders": "*"}, id="one"),
        pytest.param(["Orders", "Bills"], {"Orders": "*", "Bills": "*"}, id="several"),
        pytest.param({"Orders": "TagA"}, {"Orders": "TagA"}, id="with tags"),
        pytest.param({"Orders": sql("a > 1")}, {"Orders": sql("a > 1")}, id="SQL92"),
        pytest.param((), {}, id="none"),
    ],
)
def test_topics_have_many_forms(topics, expected):
    assert parse_topics(topics) == expected


@pytest.mark.parametrize(
    ("wish", "expected"),
    [
        pytest.param("first", (StartFrom.FIRST, 0), id="first"),
        pytest.param("latest", (StartFrom.LAST, 0), id="latest"),
        pytest.param(StartFrom.LAST, (StartFrom.LAST, 0), id="the enum"),
        pytest.param(1_700_000_000_000, (StartFrom.TIMESTAMP, 1_700_000_000_000), id="ms"),
        pytest.param(
            datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC),
            (StartFrom.TIMESTAMP, 1_700_000_000_000),
            id="datetime",
        ),
    ],
)
def test_starts_have_many_forms(wish, expected):
    assert parse_start(wish) == expected


def test_an_unknown_start_is_refused():
    with pytest.raises(ConfigError, match="first"):
        parse_start("yesterday")


def test_settings_go_to_the_configuration_that_has_them():
    made = settings(workers=3, request_timeout_ms=99, strategy="CONSISTENT_HASH")

    assert (made.consumer.workers, made.client.request_timeout_ms) == (3, 99)
    assert made.consumer.strategy.name == "CONSISTENT_HASH"


def test_a_misspelt_setting_is_refused_with_a_guess():
    with pytest.raises(ConfigError, match="did you mean workers"):
        settings(worker=3)


def test_each_clustering_consumer_has_its_own_client_id_and_broadcasting_ones_keep_theirs():
    assert settings().client.client_id != settings().client.client_id
    assert settings(broadcasting=True).client.client_id == "127.0.0.1@DEFAULT"
    assert settings(broadcasting=True).consumer.model is Model.BROADCASTING


@pytest.mark.parametrize("group", ["", "a b", "DEFAULT_CONSUMER", "x" * 121])
def test_names_of_groups_that_no_broker_takes_are_refused(group):
    with pytest.raises(InvalidMessageError, match="group"):
        settings(group=group)


@pytest.mark.parametrize(
    "given",
    [
        {"workers": 0},
        {"batch_size": 0},
        {"pull_count": 5000},
        {"suspend_ms": 30_000, "pull_timeout_ms": 30_000},
    ],
    ids=str,
)
def test_values_that_cannot_work_are_refused(given):
    with pytest.raises(ConfigError):
        ConsumerConfig(group="demo", **given)


def test_limits_of_retries():
    assert ConsumerConfig(group="g").reconsume_limit == 16
    assert ConsumerConfig(group="g", orderly=True).reconsume_limit == 2**31 - 1
    assert ConsumerConfig(group="g", reconsume_times_max=0).reconsume_limit == 0


def test_offsets_of_broadcasting_lie_where_java_puts_them():
    assert ConsumerConfig(group="g").offsets_directory == Path.home() / ".rocketmq_offsets"
