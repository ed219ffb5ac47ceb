"""The doctor as a user runs it, and the commands that it advises."""

import json
import shlex
from dataclasses import dataclass
from typing import Any

from typer.testing import CliRunner, Result

from orbitmq.cli import app

Found = dict[str, Any]


@dataclass
class Doctor:
    """Runs `orbitmq doctor`; `namesrv` is what advice for a directory is run with."""

    namesrv: str = ""

    def run(self, *arguments: object) -> Result:
        words = ["doctor", *map(str, arguments), "--output", "json"]
        return CliRunner().invoke(app, words)

    def look(self, *arguments: object, code: int = 1) -> list[Found]:
        """Return what it finds; the exit code must be this one."""
        result = self.run(*arguments)
        assert result.exit_code == code, result.output + repr(result.exception)
        return json.loads(result.stdout)["findings"]

    def one(self, what: str, *arguments: object, code: int = 1) -> Found:
        """Return the only finding whose text has these words."""
        found = self.look(*arguments, code=code)
        (one,) = [finding for finding in found if what in finding["what"]]
        return one

    def fine(self, *arguments: object) -> list[str]:
        """Return what was looked at; nothing may be found."""
        result = self.run(*arguments)
        assert result.exit_code == 0, result.output + repr(result.exception)
        value = json.loads(result.stdout)
        assert value["findings"] == []
        return list(value["looked_at"])

    def follow(self, finding: Found, code: int = 0) -> str:
        """Run what a finding advises; it must work. Code 1: it shows the same from nearer."""
        program, *words = shlex.split(finding["command"])
        assert program == "orbitmq"
        runner = CliRunner(env={"ORBITMQ_NAMESRV_ADDR": self.namesrv or None, "COLUMNS": "200"})
        result = runner.invoke(app, words)
        assert result.exit_code == code, result.output + repr(result.exception)
        return str(result.stdout)
