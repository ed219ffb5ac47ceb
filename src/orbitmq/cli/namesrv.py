"""`orbitmq namesrv`: run a name server."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orbitmq.cli.output import Output
from orbitmq.cli.serving import LogFile, LogLevel, Serving, log_flags, run_serving, server_log

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
    host: Host = None,
    port: Port = None,
    config: Config = None,
    log_level: LogLevel = None,
    log_file: LogFile = None,
    output: OutputForm = Output.TABLE,
) -> None:
    """Run a name server until Ctrl-C or SIGTERM. Prints its address once it is ready.

    Settings that are changed while it runs (mqadmin updateNamesrvConfig) are kept in the --config file;
    without one, in orbitmq.namesrv.properties beside its kvConfig.json.

    The log, with all settings at the start, goes to standard error: text on a terminal, else JSON lines.
    """
    from orbitmq.logs.settings_report import log_settings
    from orbitmq.namesrv.config import NamesrvConfig

    flags = {"bindAddress": host, "listenPort": port, **log_flags(log_level, log_file)}
    with server_log() as log:
        loaded = NamesrvConfig.load(config, flags)
        assert loaded.kv_config_path is not None  # `load` gives it its default
        log.use(loaded.logs, directory=loaded.kv_config_path.parent / "logs")
        log_settings(loaded)
        run_serving(log, lambda serving: _serve(serving, loaded, output))


async def _serve(serving: Serving, config: "NamesrvConfig", output: Output) -> None:
    from orbitmq.namesrv.server import NameServer

    server = NameServer(config, log=serving.log)
    await server.start()
    try:
        serving.ready({"namesrv": server.address}, f"name server {server.address}", output)
        await serving.stop.wait()
        serving.stopping()
    finally:
        await server.stop()
