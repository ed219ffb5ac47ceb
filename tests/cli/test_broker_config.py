"""`orbitmq broker config`: the settings of a running broker, seen and changed."""

import json

from typer.testing import CliRunner

from orbitmq.cli import app


def broker_config(cluster, *words):
    return CliRunner().invoke(app, ["broker", "config", cluster.broker.address, *words])


def test_settings_are_shown(cluster):
    shown = json.loads(broker_config(cluster, "--output", "json").stdout)

    assert shown["brokerName"] == "broker-a"
    assert shown["diskMaxUsedSpaceRatio"] == "75"


def test_a_setting_is_changed_and_shown(cluster):
    result = broker_config(cluster, "--set", "maxMessageSize=4000000", "--output", "json")

    assert json.loads(result.stdout) == {"maxMessageSize": "4000000"}
    after = json.loads(broker_config(cluster, "--output", "json").stdout)
    broker_config(cluster, "--set", "maxMessageSize=4194304")
    assert after["maxMessageSize"] == "4000000"


def test_what_cannot_change_is_refused(cluster):
    result = broker_config(cluster, "--set", "listenPort=1")

    assert result.exception.exit_code == 1
    assert "listenPort" in str(result.exception)
