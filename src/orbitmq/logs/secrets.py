"""What must not stand in a log: the values of settings and fields whose name says that they are secret."""

import re
from collections.abc import Mapping
from typing import Any, Final

MASK: Final = "******"

_SECRET: Final = re.compile(
    r"secret|access_?key|private_?key|password|passwd|token|credential"
    # RocketMQ's: a user with its password, headers with tokens, a proxy with its password.
    r"|initAuthenticationUser|ExporterHeader|socksProxyConfig",
    re.IGNORECASE,
)


def is_secret(name: str) -> bool:
    """Tell whether the value of a setting or field with this name is to be hidden."""
    return _SECRET.search(name) is not None


def masked(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values with secret ones hidden, at any depth. An empty one hides nothing."""
    return {name: _shown(name, value) for name, value in values.items()}


def _shown(name: str, value: Any) -> Any:
    if is_secret(name):
        return MASK if value else value
    return masked(value) if isinstance(value, Mapping) else value
