"""What a client can be told."""

import pytest

from orbitmq.client.core.config import (
    ClientConfig,
    config_of,
    local_ip,
    new_instance_name,
    parse_addresses,
)
from orbitmq.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("127.0.0.1:9876", ("127.0.0.1:9876",)),
        ("a:1;b:2", ("a:1", "b:2")),
        ("a:1, b:2 ;; a:1", ("a:1", "b:2")),
        (["a:1", "b"], ("a:1", "b:9876")),
        ("localhost", ("localhost:9876",)),
        ("http://a:1/", ("a:1",)),
        ("[::1]:5", ("[::1]:5",)),
        ("[::1]", ("[::1]:9876",)),
    ],
)
def test_addresses_of_name_servers(text, addresses):
    assert parse_addresses(text) == addresses


@pytest.mark.parametrize("text", ["", " ; ", "a:b", "a:0", "a:70000", ":1", []])
def test_what_is_no_address_is_refused_with_an_example(text):
    with pytest.raises(ConfigError, match="for example 127"):
        parse_addresses(text)


def test_a_named_config_has_a_client_id_of_its_own():
    first, second = ClientConfig().named(), ClientConfig().named()

    assert first.client_id != second.client_id
    assert first.client_id.startswith("127.0.0.1@")
    assert first.named() == first


def test_client_id_has_ip_instance_and_unit():
    config = ClientConfig(client_ip="10.1.2.3", instance_name="one", unit_name="u")

    assert config.client_id == "10.1.2.3@one@u"


def test_instance_names_differ_even_at_the_same_moment():
    assert len({new_instance_name() for _ in range(1000)}) == 1000


@pytest.mark.parametrize(
    "setting",
    [
        {"send_timeout_ms": 0},
        {"retries": -1},
        {"pending_sends_max": 0},
        {"access_key": "a"},
        {"secret_key": "a"},
    ],
)
def test_values_that_cannot_work_are_refused(setting):
    with pytest.raises(ConfigError):
        ClientConfig(**setting)


def test_single_settings_win_over_the_config():
    config = config_of("a:1", ClientConfig(retries=5, send_timeout_ms=7), {"retries": 1})

    assert (config.namesrv, config.retries, config.send_timeout_ms) == (("a:1",), 1, 7)


def test_an_unknown_setting_is_refused_with_the_closest_name():
    with pytest.raises(ConfigError, match="did you mean send_timeout_ms"):
        config_of(None, None, {"sendtimeout_ms": 5})


def test_secrets_are_not_shown():
    assert "hidden" not in repr(ClientConfig(access_key="a", secret_key="hidden"))


def test_the_local_address_is_one_of_this_machine():
    assert local_ip("127.0.0.1:9876") == "127.0.0.1"
    assert local_ip("no.such.host.invalid:1") == "127.0.0.1"
