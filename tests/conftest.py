"""What every test run has: the plugin that writes down which features were proved, and groups for workers."""

import signal

import pytest
from hypothesis import settings

pytest_plugins = ["feature_plugin"]

# A deadline per example measures the machine, not the code.
settings.register_profile("orbitmq", deadline=None)
settings.load_profile("orbitmq")

# A shell that starts the tests in the background has them ignore Ctrl-C, and so all that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Say which tests one worker runs (`--dist loadgroup`): all that share a Spark session, or a file."""
    for item in items:
        marks = {mark.name for mark in item.iter_markers()}
        shares_session = "spark" in marks and marks.isdisjoint({"crash", "compat"})
        group = "spark session" if shares_session else str(item.path)
        item.add_marker(pytest.mark.xdist_group(group))
