"""Finds tests that cannot fail, and tests that hope instead of waiting: file:line and why; exit code 1.

tools/lint_tests.py [PATH ...]        files and directories, by default tests/

finding                                        | what is meant
an assert that is always true                  | assert (a, b); assert a == b if c else -1; assert a == b or 1
a message that should be part of the condition | assert a, b == c
any error will do                              | pytest.raises(Exception)
a failure that is swallowed                    | except AssertionError: pass
no assertion                                   | a test in which nothing is compared, nor in what it calls
sleep as synchronisation                       | time.sleep(0.1), and then everything is expected to be done
polling without a deadline                     | while not done: sleep

Where it has to be, a comment on the line or on the one above it says why: `# sleep: the server counts whole
seconds` for the last two, `# no assert: it is enough that it returns` for a test without assertion.
"""

import argparse
import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parents[1]

AnyFunction = ast.FunctionDef | ast.AsyncFunctionDef
SLEEP_REASON = re.compile(r"#.*\bsleep: *\S")
NO_ASSERT_REASON = re.compile(r"#.*\bno assert: *\S")
ASSERTING_NAME = re.compile(r"assert_|expect|fnmatch_lines")
CLOCKS = {"monotonic", "monotonic_ns", "perf_counter", "time", "time_ns", "process_time"}
DEADLINE_NAME = re.compile(r"deadline|^end|until|limit|patience")
LOOKS = (ast.Raise, ast.Return, ast.Break)
ANY_ERROR = {"Exception", "BaseException"}


@dataclass(frozen=True, order=True)
class Finding:
    """One place, and what is wrong there in one sentence."""

    path: Path
    line: int
    text: str

    def __str__(self) -> str:
        shown = self.path.relative_to(ROOT) if self.path.is_relative_to(ROOT) else self.path
        return f"{shown}:{self.line}: {self.text}"


@dataclass(eq=False)
class Module:
    """A parsed file of the tests."""

    path: Path
    source: str
    tree: ast.Module = field(init=False)

    def __post_init__(self) -> None:
        self.tree = ast.parse(self.source, str(self.path))

    @cached_property
    def functions(self) -> dict[str, list[AnyFunction]]:
        """Every function and method, by its bare name."""
        found: dict[str, list[AnyFunction]] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, AnyFunction):
                found.setdefault(node.name, []).append(node)
        return found

    @cached_property
    def imports(self) -> set[str]:
        """The last parts of the names of the modules from which something is imported."""
        nodes = list(ast.walk(self.tree))
        froms = {n.module for n in nodes if isinstance(n, ast.ImportFrom) and n.module}
        plain = {a.name for n in nodes if isinstance(n, ast.Import) for a in n.names}
        return {name.rpartition(".")[2] for name in froms | plain}

    @cached_property
    def _lines(self) -> list[str]:
        return self.source.splitlines()

    def has_reason(self, node: ast.stmt | ast.expr, reason: re.Pattern[str]) -> bool:
        """Tell whether a comment beside or above the first line of a node gives a reason."""
        decorators = getattr(node, "decorator_list", [])
        first = min([node.lineno, *(one.lineno for one in decorators)])
        above = self._lines[max(first - 2, 0)]
        beside = self._lines[node.lineno - 1 : node.end_lineno if _is_small(node) else node.lineno]
        lines = [*beside, *([above] if above.lstrip().startswith("#") else [])]
        return any(reason.search(line) for line in lines)


def _is_small(node: ast.stmt | ast.expr) -> bool:
    return not hasattr(node, "body")


def name_of(node: ast.expr) -> str:
    """Return the last part of a dotted name, also of what is called."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Call(func=func):
            return name_of(func)
    return ""


def calls_in(node: ast.AST) -> Iterator[ast.Call]:
    return (inner for inner in ast.walk(node) if isinstance(inner, ast.Call))


# --- assertions that hold whatever happens ---


def is_condition(node: ast.expr) -> bool:
    """Tell whether an expression looks like something that somebody wanted to have checked."""
    match node:
        case ast.Compare() | ast.UnaryOp(op=ast.Not()):
            return True
        case ast.BoolOp(values=values):
            return any(map(is_condition, values))
        case ast.Constant(value=value):
            return not isinstance(value, str)
    return False


def always_true(node: ast.expr) -> bool:
    match node:
        case ast.Constant(value=value):
            return bool(value)
        case ast.Tuple(elts=items) | ast.List(elts=items) | ast.Set(elts=items):
            return bool(items)
        case ast.Dict(keys=keys):
            return bool(keys)
        case ast.Lambda() | ast.GeneratorExp() | ast.JoinedStr():
            return True
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return always_true(operand)
        case ast.BoolOp(op=ast.Or(), values=values):
            return any(map(always_true, values))
    return False


def assert_findings(node: ast.Assert) -> Iterator[str]:
    if always_true(node.test):
        yield "this assert is true whatever happens: compare something"
    if isinstance(node.test, ast.IfExp):
        yield "the whole comparison is one branch of if/else: put parentheses around the expected value"
    if node.msg is not None and is_condition(node.msg):
        yield "what stands behind the comma is only a message: join the conditions with `and`"


def error_findings(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Call(args=[error, *_]) if (
            name_of(node) == "raises" and name_of(error) in ANY_ERROR
        ):
            yield "any error passes here: name the one that is meant"
        case ast.Call(args=errors) if name_of(node) == "suppress":
            if {name_of(error) for error in errors} & {"AssertionError", *ANY_ERROR}:
                yield "failures are suppressed here: name the error that may come"
        case ast.Try(body=body, handlers=handlers):
            holds = any(isinstance(n, ast.Assert) for part in body for n in ast.walk(part))
            if any(_swallows(handler, holds) for handler in handlers):
                yield "a failed assertion is swallowed here: name the error that may come, or let it through"


def _swallows(handler: ast.ExceptHandler, holds_assert: bool) -> bool:
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    names = {name_of(kind) if kind is not None else "BaseException" for kind in kinds}
    catches = "AssertionError" in names or (holds_assert and bool(names & ANY_ERROR))
    return catches and not any(
        isinstance(inner, ast.Raise | ast.Assert) or name_of_call(inner) in ("fail", "append")
        for part in handler.body
        for inner in ast.walk(part)
    )


def name_of_call(node: ast.AST) -> str:
    return name_of(node) if isinstance(node, ast.Call) else ""


# --- tests without any assertion ---


class Helpers:
    """Knows which functions of the tests assert something, themselves or in what they call."""

    def __init__(self, modules: list[Module]) -> None:
        self._modules = modules
        self._known: dict[tuple[Module, str], bool] = {}

    def asserts(self, module: Module, function: AnyFunction) -> bool:
        if any(_asserts_itself(node) for node in ast.walk(function)):
            return True
        names = {name_of(call) for call in calls_in(function)}
        names |= {argument.arg for argument in function.args.args}  # fixtures
        names |= {name_of(arg) for call in calls_in(function) for arg in call.args}
        return any(self._named(module, name) for name in names - {"", function.name})

    def _named(self, module: Module, name: str) -> bool:
        key = module, name
        if key not in self._known:
            self._known[key] = False  # until it is known; functions may call each other
            self._known[key] = any(
                self.asserts(other, function)
                for other in self._visible(module)
                for function in other.functions.get(name, ())
            )
        return self._known[key]

    def _visible(self, module: Module) -> Iterator[Module]:
        for other in self._modules:
            stem = other.path.stem
            above = stem == "conftest" and other.path.parent in module.path.parents
            if other is module or above or stem in module.imports:
                yield other


def _asserts_itself(node: ast.AST) -> bool:
    match node:
        case ast.Assert():
            return True
        case ast.Raise(exc=ast.expr() as error):
            return name_of(error) == "AssertionError"
        case ast.Call(keywords=keywords):
            name = name_of(node)
            if name in ("raises", "warns", "fail") or ASSERTING_NAME.match(name):
                return True
            return any(
                k.arg == "check" and isinstance(k.value, ast.Constant) and k.value.value is True
                for k in keywords
            )
    return False


def tests_without_assertion(module: Module, helpers: Helpers) -> Iterator[Finding]:
    functions = [one for group in module.functions.values() for one in group]
    for test in (one for one in functions if one.name.startswith("test_")):
        if not module.has_reason(test, NO_ASSERT_REASON) and not helpers.asserts(module, test):
            text = "nothing is compared in this test: assert what its name says"
            yield Finding(module.path, test.lineno, text)


# --- sleeps and loops ---


def is_sleep(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="time" | "asyncio"), attr="sleep")):
            return True
        case ast.Call(func=ast.Name(id="sleep")):
            return True
    return False


def has_deadline(loop: ast.While) -> bool:
    for node in ast.walk(loop):
        if isinstance(node, ast.Call) and name_of(node) in CLOCKS:
            return True
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            if any(DEADLINE_NAME.search(name_of(side)) for side in sides):
                return True
    return False


class Waits(ast.NodeVisitor):
    """Finds sleeps that nothing is checked around, and loops that may never end."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.findings: list[Finding] = []
        self._in_poll = False  # in a loop that looks at something
        self._in_timeout = False

    def _add(self, node: ast.stmt | ast.expr, text: str) -> None:
        if not self.module.has_reason(node, SLEEP_REASON):
            self.findings.append(Finding(self.module.path, node.lineno, text))

    def _visit_inside(self, node: ast.AST, *, poll: bool, timeout: bool) -> None:
        before = self._in_poll, self._in_timeout
        self._in_poll, self._in_timeout = poll, timeout
        self.generic_visit(node)
        self._in_poll, self._in_timeout = before

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._visit_inside(node, poll=False, timeout=False)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._visit_inside(node, poll=False, timeout=False)

    def visit_AsyncWith(self, node: ast.AsyncWith) -> None:
        limited = any(name_of(item.context_expr) == "timeout" for item in node.items)
        self._visit_inside(node, poll=self._in_poll, timeout=self._in_timeout or limited)

    def visit_For(self, node: ast.For) -> None:
        looks = any(isinstance(inner, LOOKS) for inner in ast.walk(node))
        self._visit_inside(node, poll=self._in_poll or looks, timeout=self._in_timeout)

    def visit_While(self, node: ast.While) -> None:
        waits = any(is_sleep(inner) for inner in ast.walk(node))
        waits = waits or all(isinstance(part, ast.Pass) for part in node.body)
        if waits and not self._in_timeout and not has_deadline(node):
            text = "this loop polls without a deadline: wait with `until`, or compare the time"
            self._add(node, text)
        self._visit_inside(node, poll=True, timeout=self._in_timeout)

    def visit_Call(self, node: ast.Call) -> None:
        zero = bool(node.args) and isinstance(node.args[0], ast.Constant) and not node.args[0].value
        if is_sleep(node) and not zero and not self._in_poll:
            text = "sleep as synchronisation: wait for what has to happen, with a deadline"
            self._add(node, text)
        self.generic_visit(node)


# --- all together ---


def findings_of(module: Module, helpers: Helpers) -> Iterator[Finding]:
    for node in ast.walk(module.tree):
        texts = list(error_findings(node))
        if isinstance(node, ast.Assert):
            texts += assert_findings(node)
        for text in texts:
            assert isinstance(node, ast.stmt | ast.expr)
            yield Finding(module.path, node.lineno, text)
    yield from tests_without_assertion(module, helpers)
    waits = Waits(module)
    waits.visit(module.tree)
    yield from waits.findings


def lint(paths: list[Path]) -> list[Finding]:
    files = [f for path in paths for f in ([path] if path.is_file() else path.rglob("*.py"))]
    modules = [Module(file, file.read_text(encoding="utf-8")) for file in sorted(set(files))]
    helpers = Helpers(modules)
    return sorted(finding for module in modules for finding in findings_of(module, helpers))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Find tests that cannot fail.")
    parser.add_argument("paths", nargs="*", type=Path, default=[ROOT / "tests"])
    found = lint([path.resolve() for path in parser.parse_args(arguments).paths])
    for finding in found:
        print(finding)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
