"""The lists of planted faults: read, compared with the code, and narrowed to the tests that notice."""

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


class WrongListError(Exception):
    """A list does not fit the code: what is wrong, and where."""


@dataclass(frozen=True)
class Mutant:
    """One planted fault."""

    area: str
    name: str
    file: str
    find: str
    put: str
    tests: tuple[str, ...]

    def apply(self, source: str) -> str:
        found = source.count(self.find)
        if found != 1:
            raise WrongListError(
                f"{self}: the text to replace stands {found} times in {self.file}, not once."
                " Name another place in tests/mutants, or take the entry out."
            )
        return source.replace(self.find, self.put)

    def __str__(self) -> str:
        return f"{self.area}: {self.name}"


def read_list(path: Path) -> list[Mutant]:
    return _parse(path, path.read_text(encoding="utf-8"))


def _parse(path: Path, text: str) -> list[Mutant]:
    return [
        Mutant(path.stem, **{**entry, "tests": tuple(entry["tests"])})  # a wrong key raises here
        for entry in tomllib.loads(text)["mutant"]
    ]


def check(mutants: Sequence[Mutant], root: Path) -> None:
    """Raise `WrongListError` for the first entry that does not fit the code."""
    for name, count in Counter(map(str, mutants)).items():
        if count > 1:
            raise WrongListError(f"{name} is listed {count} times")
    for mutant in mutants:
        if not (root / mutant.file).is_file():
            raise WrongListError(f"{mutant}: there is no {mutant.file}")
        source = (root / mutant.file).read_text(encoding="utf-8")
        try:
            same = ast.dump(ast.parse(mutant.apply(source))) == ast.dump(ast.parse(source))
        except SyntaxError as error:
            raise WrongListError(f"{mutant}: with it {mutant.file} is no Python: {error}") from None
        if same:
            raise WrongListError(f"{mutant}: it changes nothing")
        missing = [test for test in mutant.tests if not _is_there(root, test)]
        if missing or not mutant.tests:
            raise WrongListError(f"{mutant}: no such test: {', '.join(missing) or 'none is named'}")


def _is_there(root: Path, test: str) -> bool:
    """Tell whether there is such a file, and in it a function of the name."""
    path, _, name = test.partition("::")
    if not name:
        return (root / path).exists()
    function = re.escape(name.partition("[")[0])
    source = (root / path).read_text(encoding="utf-8") if (root / path).is_file() else ""
    return re.search(rf"^(?:async )?def {function}\(", source, re.MULTILINE) is not None


def is_part(test: str, of: str) -> bool:
    """Tell whether a test is of a folder, a file or a function, or is that one."""
    return test == of or test.startswith((f"{of}/", f"{of}::", f"{of}["))


def narrow(path: Path, mutant: Mutant, test: str) -> None:
    """Name one test in the entry of a fault, and leave every other line of the list as it is."""
    text = path.read_text(encoding="utf-8")
    before = _parse(path, text)
    place = next(n for n, other in enumerate(before) if str(other) == str(mutant))
    starts = [found.start() for found in re.finditer(r"^\[\[mutant\]\]$", text, re.MULTILINE)]
    head, entry = text[: starts[place]], text[starts[place] :]
    line = re.compile(r"^tests = \[.*\]$", re.MULTILINE)
    text = head + line.sub(lambda _: f'tests = ["{test}"]', entry, count=1)
    changed = [(a, b) for a, b in zip(before, _parse(path, text), strict=True) if a != b]
    if [(str(old), new.tests) for old, new in changed] != [(str(mutant), (test,))]:
        raise WrongListError(f"{mutant}: its tests do not stand in one line of {path.name}")
    path.write_text(text, encoding="utf-8")
