"""A log record as a line: its fields, and what never gets into one."""

import json
import logging
import sys
from typing import Any

import pytest

from orbitmq.logs.lines import JsonLines
from orbitmq.logs.secrets import is_secret
from orbitmq.logs.text_lines import text_formatter
from orbitmq.setting_keys import KNOWN_KEYS

BODY = "the body of a message"


def record(
    text: str, *arguments: object, name: str = "orbitmq.broker.x", **fields: Any
) -> logging.LogRecord:
    made = logging.LogRecord(name, logging.WARNING, "x.py", 1, text, arguments, None)
    made.created = 1_700_000_000.1234
    made.__dict__.update(fields)
    return made


def failed() -> logging.LogRecord:
    made = record("it failed")
    body = BODY  # a local variable of the frame that fails
    try:
        int(f"of {len(body)} bytes")
    except ValueError:
        made.exc_info = sys.exc_info()
    return made


def test_json_has_time_level_component_event_and_fields_in_this_order() -> None:
    line = JsonLines().format(record("%d of %s", 3, "T", topic="Größe\n", count=2))

    assert line == (
        '{"time":"2023-11-14T22:13:20.123Z","level":"warning","component":"broker.x",'
        '"event":"3 of T","topic":"Gr\\u00f6\\u00dfe\\n","count":2}'
    )


def test_loggers_of_libraries_keep_their_whole_name() -> None:
    assert json.loads(JsonLines().format(record("x", name="asyncio")))["component"] == "asyncio"


def test_text_is_one_line_whatever_peers_say() -> None:
    topic = "T\nfake line \x1b[31m\x9b"

    line = text_formatter(colors=False).format(
        record("refused\r\n%s", topic, topic=topic, empty="")
    )

    assert line.partition(" warning ")[2] == (
        "broker.x         refused\\r\\nT\\nfake line \\x1b[31m\\x9b "
        "empty='' topic='T\\\\nfake line \\\\x1b[31m\\\\x9b'"
    )


@pytest.mark.parametrize("formatter", [JsonLines(), text_formatter(colors=False)])
def test_a_traceback_has_no_values_of_variables(formatter: logging.Formatter) -> None:
    text = formatter.format(failed())

    assert "ValueError: invalid literal" in text
    assert "Traceback" in text
    assert BODY not in text


@pytest.mark.parametrize("formatter", [JsonLines(), text_formatter(colors=True)])
def test_secret_fields_are_masked_at_any_depth(formatter: logging.Formatter) -> None:
    fields = {"secretKey": "hidden1", "settings": {"password": "hidden2", "logLevel": "info"}}

    text = formatter.format(record("x", **fields))

    assert "hidden" not in text
    assert text.count("******") == 2
    assert "info" in text


def test_names_of_settings_that_are_secret() -> None:
    assert {name for name in KNOWN_KEYS if is_secret(name)} == {
        "failoverPasswordFile",
        "initAuthenticationUser",
        "innerClientAuthenticationCredentials",
        "metricsGrpcExporterHeader",
        "socksProxyConfig",
    }


@pytest.mark.parametrize("name", ["secretKey", "accessKey", "access_key", "dbPassword", "Token"])
def test_names_that_sound_secret_are(name: str) -> None:
    assert is_secret(name)
