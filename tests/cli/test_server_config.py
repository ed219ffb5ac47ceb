"""`orbitmq broker config` and `orbitmq namesrv config`: settings of running servers."""

import json

import pytest

from cluster_commands import Cluster
from orbitmq.client import Admin


@pytest.mark.parametrize("words", [("broker", "config", "broker-a"), ("namesrv", "config")])
def test_settings_are_listed_for_people_and_programs(
    cluster: Cluster, words: tuple[str, ...]
) -> None:
    found = cluster.json(*words)
    table = cluster.output(*words)

    assert found["server"] in ("broker-a", cluster.namesrv)
    assert found["settings"]["logLevel"] == "info"
    assert table.startswith(found["server"])
    assert "slowRequestMillis" in table


def test_settings_of_a_broker_change_at_once_and_secret_ones_are_not_shown(
    cluster: Cluster,
) -> None:
    with Admin(cluster.namesrv) as admin:
        before = admin.broker_config("broker-a")["shortPollingTimeMills"]
        try:
            told = cluster.command(
                *("broker", "config", "broker-a", "--set", "shortPollingTimeMills=1234"),
                *("--set", "socksProxyConfig=user:pass"),
            )
            assert admin.broker_config("broker-a")["shortPollingTimeMills"] == "1234"
            shown = cluster.json("broker", "config", "broker-a")["settings"]
        finally:
            admin.update_broker_config("broker-a", {"shortPollingTimeMills": before})

    assert (
        "orbitmq: broker-a: changed; socksProxyConfig: kept, without effect here\n" in told.stderr
    )
    assert shown["socksProxyConfig"] == "******"


def test_settings_of_name_servers_change_too(cluster: Cluster) -> None:
    told = cluster.command(
        "namesrv", "config", "--set", "slowRequestMillis=900", "--output", "json"
    )

    assert json.loads(told.stdout)["server"] == cluster.namesrv
    assert cluster.json("namesrv", "config")["settings"]["slowRequestMillis"] == "900"


@pytest.mark.parametrize("words", [("broker", "config", "broker-a"), ("namesrv", "config")])
def test_the_log_of_a_server_in_a_program_is_not_changed_from_outside(
    cluster: Cluster, words: tuple[str, ...]
) -> None:
    result = cluster.command(*words, "--set", "logLevel=debug")

    assert result.exit_code != 0
    assert "the log belongs to the program" in str(result.exception)
    assert cluster.json(*words)["settings"]["logLevel"] == "info"
