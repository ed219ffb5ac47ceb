"""What all commands of `orbitmq spark` share: where Spark runs, and how they print."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orbitmq.cli.output import Output
from orbitmq.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Root = Annotated[Path, typer.Argument(metavar="DIR", help="Store directory (storePathRootDir).")]
Config = Annotated[
    Path | None,
    typer.Option(
        exists=True, dir_okay=False, help="broker.conf with the sizes that are not in the files."
    ),
]
Master = Annotated[
    str | None,
    typer.Option(help="Where Spark runs: local[*] (default), spark://host:port, yarn, k8s://..."),
]
Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="NAME=VALUE", help="A Spark setting; may be given many times."),
]
OutputForm = Annotated[Output, typer.Option(help="How to print.")]


def open_session(master: str | None, conf: list[str] | None) -> "SparkSession":
    """Start Spark as the options say."""
    from orbitmq.spark.session import make_session

    pairs = [text.partition("=") for text in conf or ()]
    for name, sign, _ in pairs:
        if not sign or not name:
            raise ConfigError("--conf", name, "must be NAME=VALUE")
    return make_session(master=master, conf={name: value for name, _, value in pairs})
