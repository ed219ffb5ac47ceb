"""The linter for tests: each kind of assertion that cannot fail is found, sound tests are left alone."""

import importlib.util
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "lint_tests.py"


@pytest.fixture
def found(monkeypatch, tmp_path):
    """A function that writes test files and returns (file, line, first words) of the findings."""
    spec = importlib.util.spec_from_file_location("lint_tests_tool", TOOL)
    tool = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "lint_tests_tool", tool)
    spec.loader.exec_module(tool)

    def lint(**files: str) -> list[tuple[str, int, str]]:
        for name, text in files.items():
            (tmp_path / f"{name}.py").write_text(textwrap.dedent(text))
        findings = tool.lint([tmp_path])
        return [(one.path.stem, one.line, one.text.partition(":")[0]) for one in findings]

    return lint


TRUE = "this assert is true whatever happens"
BRANCH = "the whole comparison is one branch of if/else"
MESSAGE = "what stands behind the comma is only a message"


@pytest.mark.parametrize(
    ("statement", "kind"),
    [
        pytest.param("assert a, b == c", MESSAGE, id="a comparison as message"),
        pytest.param("assert a, not b", MESSAGE, id="a negation as message"),
        pytest.param("assert a, b and c == d", MESSAGE, id="two conditions as message"),
        pytest.param("assert a, 5", MESSAGE, id="a number as message"),
        pytest.param("assert (a, b)", TRUE, id="a tuple"),
        pytest.param("assert [a == b]", TRUE, id="a list"),
        pytest.param("assert (x == 1 for x in a)", TRUE, id="a generator"),
        pytest.param("assert lambda: a == b", TRUE, id="a function"),
        pytest.param("assert f'{a} is b'", TRUE, id="a text"),
        pytest.param("assert a == b or 1", TRUE, id="or a constant"),
        pytest.param("assert a == b or -1", TRUE, id="or a negative constant"),
        pytest.param("assert a == b if c else -1", BRANCH, id="if/else that takes the comparison"),
    ],
)
def test_an_assert_that_cannot_fail_is_found(found, statement, kind):
    text = f"def test_one(a, b, c, d):\n    assert b\n    {statement}\n"

    assert found(test_a=text) == [("test_a", 3, kind)]


@pytest.mark.parametrize(
    "statement",
    [
        "assert a == (b if c else -1)",
        "assert a, f'only {b}'",
        "assert a, b",
        "assert a, (b, c)",
        "assert a, b.stderr.decode()",
        "assert a == b, 'only ' + c",
        "assert a or b",
        "assert a == ()",
        "assert all(x == 1 for x in a)",
    ],
)
def test_an_assert_that_can_fail_is_left_alone(found, statement):
    assert found(test_a=f"def test_one(a, b, c):\n    {statement}\n") == []


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("with pytest.raises(Exception): a()", "any error passes here"),
        ("with pytest.raises(BaseException, match='x'): a()", "any error passes here"),
        ("with contextlib.suppress(AssertionError): a()", "failures are suppressed here"),
        ("with suppress(ValueError, Exception): a()", "failures are suppressed here"),
        ("try: a()\n    except AssertionError: pass", "a failed assertion is swallowed here"),
        (
            "try: a()\n    except (OSError, AssertionError): a()",
            "a failed assertion is swallowed here",
        ),
        ("try: assert a\n    except Exception: pass", "a failed assertion is swallowed here"),
        ("try: assert a\n    except: pass", "a failed assertion is swallowed here"),
    ],
)
def test_an_error_that_may_be_any_is_found(found, code, kind):
    assert found(test_a=f"def test_one(a):\n    assert a\n    {code}\n") == [("test_a", 3, kind)]


@pytest.mark.parametrize(
    "code",
    [
        "with pytest.raises(OSError): a()",
        "with contextlib.suppress(TimeoutError): a()",
        "try: a()\n    except AssertionError: raise",
        "try: a()\n    except AssertionError as e: errors.append(e)",
        "try: a()\n    except Exception: pass",
        "try: assert a\n    except OSError: pass",
    ],
)
def test_an_error_that_is_named_or_passed_on_is_left_alone(found, code):
    assert found(test_a=f"def test_one(a, errors):\n    assert a\n    {code}\n") == []


def test_a_test_without_any_assertion_is_found_and_one_that_says_why_is_not(found):
    text = """
        def test_one(a):
            a.close()

        # no assert: it is enough that it returns
        @given(a=5)
        def test_two(a):
            a.close()

        async def test_three(a):
            def helper():
                a.close()
            helper()
    """

    kind = "nothing is compared in this test"
    assert found(test_a=text) == [("test_a", 2, kind), ("test_a", 10, kind)]


def test_assertions_in_what_a_test_calls_count_when_it_can_see_them(found):
    helpers = """
        class World:
            def output(self):
                return self.command()

            def command(self):
                assert self.code == 0

        def look(a):
            return a
    """
    tests = """
        from helpers import World, look

        def test_one():
            World().output()

        def test_two():
            look(5)

        def test_three(stopped):
            pass

        def test_four():
            run(main)

        async def main():
            raise AssertionError("no")
    """
    conftest = """
        @pytest.fixture
        def stopped():
            yield
            assert 1 == threads()
    """
    elsewhere = """
        from other import output

        def test_five():
            output()
    """

    found_in = found(helpers=helpers, test_a=tests, conftest=conftest, test_b=elsewhere)

    kind = "nothing is compared in this test"
    assert found_in == [("test_a", 7, kind), ("test_b", 4, kind)]


SLEEP = "sleep as synchronisation"
LOOP = "this loop polls without a deadline"


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        pytest.param("time.sleep(0.1)", [(3, SLEEP)], id="sleep"),
        pytest.param("await asyncio.sleep(x / 2)", [(3, SLEEP)], id="asyncio"),
        pytest.param("await asyncio.sleep(0)", [], id="one turn of the loop"),
        pytest.param("time.sleep(1)  # sleep: whole seconds count", [], id="a reason beside it"),
        pytest.param("# sleep: whole seconds count\n    time.sleep(1)", [], id="a reason above it"),
        pytest.param("time.sleep(1)  # sleep:", [(3, SLEEP)], id="an empty reason"),
        pytest.param("clock.sleep(1)", [], id="a clock that the test owns"),
        pytest.param("for _ in x: time.sleep(1)", [(3, SLEEP)], id="a pace"),
        pytest.param("for _ in x:\n        if x: break\n        time.sleep(1)", [], id="so often"),
        pytest.param("while not x: time.sleep(1)", [(3, LOOP)], id="polling"),
        pytest.param(
            "while True:\n        if x: break\n        sleep(1)", [(3, LOOP)], id="for ever"
        ),
        pytest.param("while not x: await asyncio.sleep(0)", [(3, LOOP)], id="turning for ever"),
        pytest.param("while not x: pass", [(3, LOOP)], id="busy"),
        pytest.param(
            "while not x:\n        assert time.monotonic() < y\n        sleep(1)", [], id="deadline"
        ),
        pytest.param("while x < deadline: sleep(1)", [], id="a name that says so"),
        pytest.param(
            "while not x:  # sleep: killed\n        sleep(1)", [], id="a reason for a loop"
        ),
        pytest.param(
            "async with asyncio.timeout(5):\n        while not x: sleep(1)", [], id="timeout"
        ),
        pytest.param(
            "async with asyncio.timeout(5):\n        sleep(1)", [(4, SLEEP)], id="no loop"
        ),
        pytest.param("while x: x = x.read()", [], id="a loop that does not wait"),
    ],
)
def test_sleeps_and_loops_that_only_hope_are_found(found, code, expected):
    text = f"async def test_one(x):\n    assert x\n    {code}\n"

    assert [one[1:] for one in found(test_a=text)] == expected


def test_the_command_prints_each_place_and_fails(tmp_path):
    good, bad = tmp_path / "test_good.py", tmp_path / "test_bad.py"
    good.write_text("def test_one(a):\n    assert a\n")
    bad.write_text("def test_one(a):\n    assert (a, 1)\n")

    results = [
        subprocess.run([sys.executable, TOOL, path], capture_output=True, text=True, check=False)
        for path in (good, tmp_path)
    ]

    assert [one.returncode for one in results] == [0, 1]
    assert results[0].stdout == ""
    assert results[1].stdout.startswith(f"{bad}:2: this assert is true")
