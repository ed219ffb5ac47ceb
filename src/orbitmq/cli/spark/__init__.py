"""`orbitmq spark`: the log as a table, and jobs over whole stores, on one machine or on a cluster."""

import typer

from orbitmq.cli.spark import (
    audit,
    dispatch,
    doctor,
    export,
    lake,
    load,
    prepare,
    query,
    rebuild,
    replay,
    verify,
)

app = typer.Typer(help="Rebuild, verify, dispatch and query stores on Spark.", no_args_is_help=True)
app.command()(doctor.doctor)
app.command()(doctor.package)
app.command()(prepare.prepare)
app.command()(rebuild.rebuild)
app.command()(verify.verify)
app.command()(dispatch.dispatch)
app.command()(export.export)
app.add_typer(lake.app, name="lake")
app.command()(audit.audit)
app.command()(load.load)
app.command()(query.query)
app.command()(replay.replay)
