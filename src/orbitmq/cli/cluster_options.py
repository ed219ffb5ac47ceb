"""What the commands that talk to a cluster share: its address, how to print, whether to only say it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from orbitmq.cli.output import Output

if TYPE_CHECKING:
    from orbitmq.client import Admin

Namesrv = Annotated[
    str,
    typer.Option(
        "--namesrv",
        envvar="ORBITMQ_NAMESRV_ADDR",
        help='Name servers of the cluster, as "a:9876;b:9876".',
    ),
]
NAMESRV = "127.0.0.1:9876"
OutputForm = Annotated[Output, typer.Option(help="How to print.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done; change nothing.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


@contextmanager
def open_admin(namesrv: str) -> "Iterator[Admin]":
    """Give an admin client of the cluster."""
    from orbitmq.client import Admin

    with Admin(namesrv) as admin:
        yield admin


def confirm(question: str, yes: bool) -> None:
    """Ask before something is lost; without a terminal `--yes` has to be said."""
    if not yes and not typer.confirm(question):
        raise typer.Abort
