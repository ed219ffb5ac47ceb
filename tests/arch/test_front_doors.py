"""What a newcomer types: each package exports its names, and asking for one loads no more than it needs."""

import importlib
import pkgutil
import subprocess
import sys

import grimp
import pytest

import orbitmq
from orbitmq.lazy import lazy_exports

PACKAGES = [
    "orbitmq",
    *(
        module.name
        for module in pkgutil.walk_packages(orbitmq.__path__, prefix="orbitmq.")
        if module.ispkg
    ),
]
LAZY = ["orbitmq.broker", "orbitmq.namesrv", "orbitmq.spark", "orbitmq.store", "orbitmq.testing"]
HEAVY = "numba", "numpy", "pyspark", "pyarrow", "asyncio", "msgspec", "rich", "orbitmq.client"


@pytest.mark.parametrize("name", PACKAGES)
def test_every_exported_name_can_be_imported(name):
    package = importlib.import_module(name)

    names = {}
    for public in getattr(package, "__all__", ()):
        exec(f"from {name} import {public} as it", names)  # as a user writes it
        assert names["it"] is getattr(package, public)


@pytest.mark.parametrize("name", LAZY)
def test_a_front_door_says_what_it_has_and_nothing_else(name):
    package = importlib.import_module(name)

    assert package.__all__ == sorted(package.__all__)
    with pytest.raises(AttributeError, match=f"module '{name}' has no attribute 'nothing'"):
        package.nothing  # noqa: B018


@pytest.mark.parametrize("name", ["orbitmq", *LAZY])
def test_a_front_door_itself_is_light(name):
    code = f"import {name}, sys; print([m for m in {HEAVY!r} if m in sys.modules])"

    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    assert result.stdout.strip() == "[]"


def test_one_name_does_not_load_the_others():
    code = (
        "from orbitmq.testing import FakeClock; import sys; print('orbitmq.broker' in sys.modules)"
    )

    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    assert result.stdout.strip() == "False"


def test_a_name_is_looked_up_once(monkeypatch):
    package = importlib.import_module("orbitmq.lazy")
    find = lazy_exports("orbitmq.lazy", {"deque": "collections", "words": "collections:Counter"})

    import collections

    assert find("deque") is collections.deque
    assert find("words") is collections.Counter
    assert package.deque is collections.deque
    monkeypatch.delattr(package, "deque")
    monkeypatch.delattr(package, "words")


def test_inside_the_product_nobody_goes_through_a_lazy_door():
    # The import contracts see which module is imported; a name that is looked up later they do not see.
    graph = grimp.build_graph("orbitmq")

    users = {name: graph.find_modules_that_directly_import(name) for name in LAZY}

    assert {name: found for name, found in users.items() if found} == {}
