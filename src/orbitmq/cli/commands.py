"""The commands by name; their modules are imported when one is asked for: a broker needs none of Spark's."""

from importlib import import_module
from typing import Any, Final

import typer
from typer.core import TyperGroup
from typer.main import get_command, get_group

SINGLE: Final = ("up", "doctor", "lab")
"""Modules with one command, a function of the same name."""
GROUPS: Final = ("topic", "group", "message", "broker", "namesrv", "store", "spark")
"""Modules with commands below them."""
NAMES: Final = ("up", "doctor", "demo", "lab", *GROUPS)
"""As help lists them; `demo` is the package's own."""


class Commands(TyperGroup):
    """All commands of `orbitmq`. (Typer's names for the types of its commands are its own.)"""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(NAMES)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        # Of a name that is wrong all are needed: which one was meant?
        for name in (cmd_name,) if cmd_name in NAMES else NAMES:
            if name not in self.commands:
                self.commands[name] = _imported(name)
        return super().get_command(ctx, cmd_name)


def _imported(name: str) -> Any:
    module = import_module(f"orbitmq.cli.{name}")
    if name in SINGLE:
        alone = typer.Typer(add_completion=False)
        alone.command(name)(getattr(module, name))
        command = get_command(alone)
    else:
        command = get_group(module.app)
    command.name = name
    return command
