"""`orbitmq spark rebuild`."""

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""
