"""`orbitmq namesrv`: run a name server; look at its settings and change them while it runs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orbitmq.cli.cluster_options import NAMESRV, Namesrv, open_admin, parse_pairs
from orbitmq.cli.cluster_options import OutputForm as ListForm
from orbitmq.cli.output import Output
from orbitmq.cli.serving import LogFile, LogLevel, Serving, log_flags, run_serving, server_log
from orbitmq.cli.settings_text import print_changed, print_settings

if TYPE_CHECKING:
    from orbitmq.namesrv.config import NamesrvConfig

app = typer.Typer(help="Run a name server; its settings while it runs.", no_args_is_help=True)

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
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="A setting and its new value."),
]
OutputForm = Annotated[Output, typer.Option(help="json: one line with the address when ready.")]


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


@app.command()
def config(set_: Set = None, namesrv: Namesrv = NAMESRV, output: ListForm = Output.TABLE) -> None:
    """Show the settings of running name servers, or change some: --set logLevel=debug.

    A change works at once and is kept for the next start; all of them are made, or none.
    """
    changes = parse_pairs(set_, "--set")
    with open_admin(namesrv) as admin:
        if changes:
            print_changed(admin.update_namesrv_config(changes), output)
        else:
            print_settings(admin.namesrv_config(), output)


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
