"""Code that only tests call is found: what they prove of it, they do not prove of the product."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = """
class Engine:
    def run(self):
        return self.helper()

    def helper(self):
        return 1

    def only_a_test_calls_this(self):
        return 2


def main():
    return Engine().run()


main()
"""


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("unreached", ROOT / "tools" / "unreached.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def tree(tmp_path):
    (tmp_path / "src" / "orbitmq").mkdir(parents=True)
    (tmp_path / "src" / "orbitmq" / "engine.py").write_text(SOURCE)
    return tmp_path


def test_what_nothing_in_the_product_calls_is_named_with_its_place(tool, tree):
    (line,) = tool.unreached(tree, {})

    assert line.startswith("src/orbitmq/engine.py:9: ")
    assert "only_a_test_calls_this" in line


def test_what_is_called_from_outside_is_listed(tool, tree):
    outside = {"users": {"engine.py": {"only_a_test_calls_this"}}}

    assert tool.unreached(tree, outside) == []


def test_the_list_of_callers_names_nothing_that_is_gone(tool):
    places = [
        (place, name)
        for callers in tool.OUTSIDE.values()
        for place, names in callers.items()
        for name in names
    ]

    gone = [(place, name) for place, name in places if not is_defined(place, name)]

    assert gone == []


def is_defined(place, name):
    path = ROOT / "src" / "orbitmq" / place
    files = path.rglob("*.py") if path.is_dir() else [path]
    definitions = (f"def {name}(", f"class {name}:", f"class {name}(")
    return any(d in file.read_text(encoding="utf-8") for file in files for d in definitions)
