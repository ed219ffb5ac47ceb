"""Every module can be imported, says what it is for, and exports what it says."""

import ast
import importlib
import pkgutil

import pytest

import orbitmq

MODULES = sorted(
    module.name for module in pkgutil.walk_packages(orbitmq.__path__, prefix="orbitmq.")
)


@pytest.mark.parametrize("name", MODULES)
def test_module_opens_with_what_it_is_for(name):
    module = importlib.import_module(name)

    assert module.__doc__, f"{name} has no docstring"
    first_line = module.__doc__.partition("\n")[0]
    assert first_line.endswith((".", ":")), first_line


@pytest.mark.parametrize("name", MODULES)
def test_names_in_all_exist(name):
    module = importlib.import_module(name)

    missing = [public for public in getattr(module, "__all__", ()) if not hasattr(module, public)]

    assert not missing


@pytest.mark.parametrize("name", MODULES)
def test_public_classes_and_functions_say_what_they_do(name):
    source = importlib.util.find_spec(name).origin
    with open(source, encoding="utf-8") as file:  # noqa: PTH123
        tree = ast.parse(file.read())
    public = [
        node
        for node in tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]

    silent = [node.name for node in public if not ast.get_docstring(node)]

    assert not silent
