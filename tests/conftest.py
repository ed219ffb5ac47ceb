"""What every test run has: the plugin that writes down which features were proved."""

import signal

from hypothesis import settings

pytest_plugins = ["feature_plugin"]

# A deadline per example measures the machine, not the code.
settings.register_profile("orbitmq", deadline=None)
settings.load_profile("orbitmq")

# A shell that starts the tests in the background has them ignore Ctrl-C, and so all that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
