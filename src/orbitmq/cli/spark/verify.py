"""`orbitmq spark verify`."""

from typing import Annotated

import typer

from orbitmq.cli.output import Output, print_json
from orbitmq.cli.spark.options import Conf, Master, require_pyspark, spark_context
from orbitmq.cli.store import Config, OutputForm

AnyRoot = Annotated[
    str, typer.Argument(metavar="DIR", help="Store directory, or s3://bucket/prefix of a copy.")
]


def verify(
    root: AnyRoot,
    config: Config = None,
    master: Master = None,
    conf: Conf = None,
    output: OutputForm = Output.TABLE,
) -> None:
    """List what is wrong with a store: file, position, cause, what to run. Changes nothing.

    The findings of `orbitmq store check`, found by tasks side by side. Exit code 1 for findings, 4 for a
    store that cannot be read. A store at s3:// is fetched to a temporary directory first.
    """
    require_pyspark()
    from orbitmq.cli.spark.progress import shown_progress
    from orbitmq.cli.store_text import check_value, print_check
    from orbitmq.files.layout import guess_layout
    from orbitmq.settings import load_settings
    from orbitmq.spark.remote.names import store_names

    settings = load_settings(config)
    with store_names(root, settings) as names:  # what is no store shows before Spark starts
        guess_layout(names.root, names.settings)
    with spark_context(master, conf) as spark, shown_progress(spark) as progress:
        from orbitmq.spark.jobs.verify.job import verify as verify_store

        report = verify_store(spark, root, settings, progress)
    if output is Output.JSON:
        print_json(check_value(report))
    else:
        print_check(root, report)
    if report.findings:
        raise typer.Exit(code=1)
