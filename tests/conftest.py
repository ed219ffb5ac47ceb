"""What every test run has: the plugin that writes down which features were proved."""

from hypothesis import settings

pytest_plugins = ["feature_plugin"]

# A deadline per example measures the machine, not the code.
settings.register_profile("orbitmq", deadline=None)
settings.load_profile("orbitmq")
