"""`orbitmq spark`: the log as a table, and jobs over whole stores, on one machine or on a cluster."""

import typer

from orbitmq.cli import (
    spark_dispatch,
    spark_doctor,
    spark_prepare,
    spark_rebuild,
    spark_verify,
)

app = typer.Typer(help="Rebuild, verify, dispatch and query stores on Spark.", no_args_is_help=True)
for _part in (spark_doctor, spark_prepare, spark_rebuild, spark_verify, spark_dispatch):
    _part.register(app)
