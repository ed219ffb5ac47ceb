"""The command `orbitmq`. Commands ask and print; the library decides.

Exit codes: 0 fine, 1 findings, 2 wrong use, 3 unreachable, 4 corrupt or unreadable.
"""

import logging
import os
import sys
from typing import Annotated

import typer

from orbitmq import __version__
from orbitmq.cli.commands import Commands
from orbitmq.errors import OrbitError

app = typer.Typer(
    name="orbitmq",
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # main() says errors in one line
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"orbitmq {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_print_version, help="Print the version."
        ),
    ] = False,
) -> None:
    """Message queues that RocketMQ clients can use. `orbitmq up` starts one; `orbitmq demo` shows it all."""


@app.command()
def demo(
    messages: Annotated[
        int, typer.Option(min=1_000, help="Messages for the store; the broker gets a fifth.")
    ] = 100_000,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the stores, say where they are.")
    ] = False,
) -> None:
    """A store and a live broker, used, killed and recovered; then its log on Spark.

    Every figure is checked: exit code 1 if one is wrong. Without the extra `spark` the last part is left out.
    """
    from orbitmq.cli.demo.run import run_demo

    if not run_demo(messages, keep=keep):
        raise typer.Exit(code=1)


def main() -> None:
    """Run the command line; an error of ours is one clear line and its exit code."""
    logging.basicConfig(format="orbitmq: %(message)s", level=logging.WARNING)
    try:
        app()
    except OrbitError as error:
        if os.environ.get("ORBITMQ_DEBUG") == "1":
            raise
        typer.echo(f"orbitmq: {error}", err=True)
        sys.exit(error.exit_code)
