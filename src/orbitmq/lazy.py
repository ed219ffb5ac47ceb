"""Front doors that cost nothing: a package exports names whose modules are imported when somebody asks.

The broker's package can be imported without the store's kernels, that of Spark without pyspark.
"""

from __future__ import annotations

import sys
from importlib import import_module

TYPE_CHECKING = False  # as `typing` has it, which takes ten times as long to import as this
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any


def lazy_exports(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a package's `__getattr__` for these names; each is in "module" or "module:other_name"."""

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, _, there = homes[name].partition(":")
        value = getattr(import_module(module), there or name)
        setattr(sys.modules[package], name, value)  # the next time it is simply there
        return value

    return find
