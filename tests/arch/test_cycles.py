"""No module imports itself by way of others, not even inside a function."""

import graphlib
from collections.abc import Mapping

import grimp

Imports = Mapping[str, set[str]]


def imports() -> Imports:
    """Return which module imports which, anywhere in its text; types alone do not count."""
    graph = grimp.build_graph("orbitmq", exclude_type_checking_imports=True, cache_dir=None)
    return {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}


def cycles(graph: Imports) -> set[frozenset[str]]:
    """Return the groups of modules that import each other, each group whole."""
    left = {module: set(imported) for module, imported in graph.items()}
    found: set[frozenset[str]] = set()
    while True:
        try:
            list(graphlib.TopologicalSorter(left).static_order())
        except graphlib.CycleError as error:
            group = _reaching_each_other(left, error.args[1][0])
            found.add(group)
            for module in group:
                left[module] -= group
        else:
            return found


def _reaching_each_other(graph: Imports, start: str) -> frozenset[str]:
    backwards: dict[str, set[str]] = {}
    for module, imported in graph.items():
        for one in imported:
            backwards.setdefault(one, set()).add(module)
    return frozenset(_reached(graph, start) & _reached(backwards, start))


def _reached(graph: Imports, start: str) -> set[str]:
    seen, waiting = {start}, [start]
    while waiting:
        for module in graph.get(waiting.pop(), set()) - seen:
            seen.add(module)
            waiting.append(module)
    return seen


def test_no_modules_import_each_other():
    assert cycles(imports()) == set()


def test_cycles_are_found_whole_and_each_once():
    graph = {"a": {"b"}, "b": {"c", "d"}, "c": {"a"}, "d": {"e"}, "e": {"d"}, "f": {"a"}}

    assert cycles(graph) == {frozenset("abc"), frozenset("de")}


def test_modules_in_one_direction_are_no_cycle():
    assert cycles({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == set()
