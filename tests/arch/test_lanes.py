"""Heavy tests in two lanes: which run together, and which begin first."""

from types import SimpleNamespace

import pytest

from lanes import pytest_collection_modifyitems, pytest_xdist_make_scheduler


class Item:
    """Stands for a collected test."""

    def __init__(self, nodeid: str, *marks: str) -> None:
        self.nodeid, self.marks = nodeid, marks

    def get_closest_marker(self, name: str) -> str | None:
        return name if name in self.marks else None


def ordered(items: list[Item], **options: bool) -> list[str]:
    config = SimpleNamespace(getoption=options.get)
    hook = pytest_collection_modifyitems(config, items)
    next(hook)
    items.reverse()  # as another plugin may, which orders them at random
    with pytest.raises(StopIteration):
        hook.send(None)
    return [item.nodeid for item in items]


def collected() -> list[Item]:
    return [
        Item("tests/spark/test_short.py::a"),
        Item("tests/spark/test_long.py::b"),
        Item("tests/spark/test_long.py::c", "slow"),
        Item("tests/compat/test_x.py::d"),
        Item("tests/spark/test_kills.py::e", "crash"),
    ]


def test_java_begins_and_long_files_come_before_short_ones():
    found = ordered(collected(), loadscopereorder=False)

    assert [nodeid[-1] for nodeid in found] == ["d", "e", "c", "b", "a"]


def test_another_run_keeps_its_order():
    assert [nodeid[-1] for nodeid in ordered(collected())] == ["e", "d", "c", "b", "a"]


def test_a_lane_gets_whole_files_and_all_of_java():
    def scheduler(kind: str) -> object:
        values = {"dist": kind, "tx": ["popen", "popen"]}
        config = SimpleNamespace(
            getoption=values.get, getvalue=values.get, option=SimpleNamespace()
        )
        return pytest_xdist_make_scheduler(config, None)

    lanes = scheduler("loadscope")

    java = {
        lanes._split_scope(f"tests/compat/{name}") for name in ("test_a.py::b", "t/test_c.py::d")
    }
    assert len(java) == 1
    assert lanes._split_scope("tests/spark/test_a.py::C::d[@]") == "tests/spark/test_a.py"
    assert scheduler("worksteal") is None
