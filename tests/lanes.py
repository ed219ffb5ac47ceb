"""Two lanes of heavy tests, both busy until the end (`-n 2 --dist loadscope --no-loadscope-reorder`).

All tests with Java's brokers and clients are one group, for they share them, and those have deadlines; it
begins first. Of the others each file is a group, for what a module's fixtures start is shared too. A lane
that is through takes the next group; the long ones come first, so that the lanes end together.
"""

from collections.abc import Iterator
from typing import Any

import pytest

JAVA = "tests/compat/"
LONG = ("slow", "crash")


def group_of(nodeid: str) -> str:
    """Return the name of what runs in one lane."""
    return JAVA if nodeid.startswith(JAVA) else nodeid.partition("::")[0]


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Have files and Java's tests shared out instead of modules and classes."""
    from xdist.scheduler import LoadScopeScheduling

    class Lanes(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

    return Lanes(config, log) if config.getoption("dist") == "loadscope" else None


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Iterator[None]:
    """Order the groups, after others have ordered the tests."""
    result = yield
    if not config.getoption("loadscopereorder", True):
        long = {group_of(one.nodeid) for one in items if any(map(one.get_closest_marker, LONG))}
        groups = {item: group_of(item.nodeid) for item in items}
        items.sort(key=lambda item: (groups[item] != JAVA, groups[item] not in long))
    return result
