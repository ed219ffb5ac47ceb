"""`orbitmq spark doctor` and `orbitmq spark package`: whether Spark can work here, and how to get there."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orbitmq.cli.output import Output, bytes_text, note, print_json, print_table
from orbitmq.cli.spark.options import Conf, Master, require_pyspark, spark_settings
from orbitmq.cli.store import OutputForm

if TYPE_CHECKING:
    from orbitmq.spark.start.doctor import Check


def doctor(master: Master = None, conf: Conf = None, output: OutputForm = Output.TABLE) -> None:
    """Say what Spark finds here, and try a tiny job. Exit code 1 if something is wrong."""
    from orbitmq.spark.start.doctor import examine

    checks = list(examine(master, spark_settings(conf)))
    if output is Output.JSON:
        print_json([_row(check) for check in checks])
    else:
        rows = [(_state(check), check.name, check.found, check.next_step) for check in checks]
        print_table(("", "what", "found", "what to do"), rows)
    if not all(check.ok for check in checks):
        raise typer.Exit(code=1)


def _state(check: "Check") -> str:
    return "ok" if check.ok else "problem"


def _row(check: "Check") -> dict[str, str]:
    return {
        "what": check.name,
        "state": _state(check),
        "found": check.found,
        "next_step": check.next_step,
    }


def package(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The archive, mostly orbitmq.zip.")],
) -> None:
    """Write the archive that `spark-submit --py-files` takes to the executors of a cluster."""
    require_pyspark()
    from orbitmq.spark.start.package import write_package

    note(f"{file}: {bytes_text(write_package(file).stat().st_size)}")
