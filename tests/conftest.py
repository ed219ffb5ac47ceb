"""What every test run has: which features were proved is written down, heavy tests run in two lanes."""

import gc
import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings

from rounds import rounds

pytest_plugins = ["feature_plugin", "lanes"]

# A deadline per example measures the machine, not the code.
settings.register_profile("orbitmq", deadline=None, max_examples=rounds(160))
settings.load_profile("orbitmq")

# A shell that starts the tests in the background has them ignore Ctrl-C, and so all that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Iterator[None]:
    """Look for no garbage among what collecting makes, then or later: it all stays, and is a lot."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()
