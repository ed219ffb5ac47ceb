"""The fixtures for users' tests, in a pytest run of their own."""

import os
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import pytest

PLUGIN = "orbitmq.testing.pytest_plugin"
TESTS = """
    import pytest
    from orbitmq.client import Consumer, Message, Producer

    seen = []


    def test_orders(orbitmq_broker):
        seen.append(orbitmq_broker.store_path)
        with Producer(orbitmq_broker.namesrv, "test") as producer:
            producer.send(Message("Orders", b"hello"))
        with Consumer(orbitmq_broker.namesrv, "g", "Orders", start_from="first") as consumer:
            assert next(iter(consumer)).body == b"hello"


    def test_each_test_has_an_empty_broker(orbitmq_broker):
        assert not seen[0].exists()
        assert orbitmq_broker.store_path != seen[0]


    @pytest.mark.parametrize("number", [0, 1])
    def test_one_broker_for_the_run(orbitmq_session_broker, number):
        with Producer(orbitmq_session_broker.namesrv, "test") as producer:
            assert producer.send(Message("Shared", b"x"), key="k").queue_offset == number
"""


def run_pytest(directory: Path, *options: str) -> subprocess.CompletedProcess[str]:
    temporary = directory / "temporary"
    temporary.mkdir()
    # Only this plugin, by name: whether the environment has its entry point does not matter here.
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "TMPDIR": str(temporary)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", PLUGIN, "-p", "no:cacheprovider"]
    return subprocess.run(
        [*command, "-W", "error", *options],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.feature("X4")
def test_fixtures_give_brokers_to_tests_and_take_them_away(tmp_path):
    (tmp_path / "test_user.py").write_text(textwrap.dedent(TESTS))

    result = run_pytest(tmp_path)

    assert result.returncode == 0, result.stdout + result.stderr
    assert "4 passed" in result.stdout
    assert list((tmp_path / "temporary").glob("orbitmq-*")) == []


def test_the_fixtures_say_what_they_are(tmp_path):
    result = run_pytest(tmp_path, "--fixtures")

    assert "A broker with its name server and an empty store" in result.stdout
    assert "A broker for the whole run" in result.stdout


def test_a_run_that_does_not_use_them_imports_no_more_than_the_plugin():
    program = f"""
import sys, pytest
before = set(sys.modules)
import {PLUGIN}
print(sorted(name for name in set(sys.modules) - before))
"""
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    light = ["orbitmq", "orbitmq.lazy", "orbitmq.testing", "orbitmq.testing.pytest_plugin"]
    assert result.stdout.strip() == str(light)


def test_the_package_names_the_plugin():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]

    assert project["entry-points"]["pytest11"] == {"orbitmq": PLUGIN}
