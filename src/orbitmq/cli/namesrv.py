"""`orbitmq namesrv`: run a name server."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orbitmq.cli.output import Output, note, print_ready

if TYPE_CHECKING:
    from orbitmq.namesrv.config import NamesrvConfig

app = typer.Typer(help="Run a name server.", no_args_is_help=True)

Host = Annotated[str | None, typer.Option(help="Address to listen on (bindAddress); default all.")]
Port = Annotated[
    int | None,
    typer.Option(min=0, max=65535, help="Port (listenPort); default 9876, 0 takes a free one."),
]
Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        exists=True,
        dir_okay=False,
        help="namesrv.conf: RocketMQ's keys, or TOML.",
    ),
]
OutputForm = Annotated[Output, typer.Option(help="json: one line with the address when ready.")]


@app.callback()
def namesrv() -> None:
    """Run a name server."""  # makes `run` a word of its own although it is the only command


@app.command()
def run(
    host: Host = None, port: Port = None, config: Config = None, output: OutputForm = Output.TABLE
) -> None:
    """Run a name server until Ctrl-C or SIGTERM. Prints its address once it is ready.

    Settings that are changed while it runs (mqadmin updateNamesrvConfig) are kept in the --config file;
    without one, in orbitmq.namesrv.properties beside its kvConfig.json.
    """
    from orbitmq.namesrv.config import NamesrvConfig
    from orbitmq.net.loop import run_server as run_loop

    flags = {"bindAddress": host, "listenPort": port}
    run_loop(_serve(NamesrvConfig.load(config, flags), output))


async def _serve(config: "NamesrvConfig", output: Output) -> None:
    from orbitmq.namesrv.server import NameServer
    from orbitmq.net.loop import stop_event

    stop = stop_event()
    server = NameServer(config)
    await server.start()
    try:
        print_ready({"namesrv": server.address}, f"name server {server.address}", output)
        await stop.wait()
        note("stopping")
    finally:
        await server.stop()
