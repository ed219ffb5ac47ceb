"""`orbitmq broker`: run a broker, look at the settings of a running one and change them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orbitmq.cli.cluster_options import parse_pairs
from orbitmq.cli.output import Output, note, print_json, print_ready, print_table

if TYPE_CHECKING:
    from orbitmq.broker.config import BrokerConfig

app = typer.Typer(help="Run a broker; see and change its settings.", no_args_is_help=True)

Config = Annotated[
    Path | None,
    typer.Option(
        "--config", "-c", exists=True, dir_okay=False, help="broker.conf: RocketMQ's keys, or TOML."
    ),
]
Namesrv = Annotated[
    str | None, typer.Option(help='Name servers to register at (namesrvAddr), as "a:9876;b:9876".')
]
Store = Annotated[
    Path | None, typer.Option(help="Store directory (storePathRootDir); default ~/store.")
]
Host = Annotated[
    str | None,
    typer.Option(help="Address to listen on and to tell clients (brokerIP1, bindAddress)."),
]
Port = Annotated[
    int | None,
    typer.Option(min=0, max=65535, help="Port (listenPort); default 10911, 0 takes a free one."),
]
Name = Annotated[str | None, typer.Option(help="Name of the broker (brokerName).")]
Cluster = Annotated[str | None, typer.Option(help="Name of the cluster (brokerClusterName).")]
Dispatch = Annotated[
    str | None,
    typer.Option(
        help="Who makes queues and index: live (the broker, default) or spark "
        "(`orbitmq spark dispatch`)."
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Any other setting, by RocketMQ's key."),
]
OutputForm = Annotated[Output, typer.Option(help="json: one line with the address when ready.")]


@app.command()
def run(
    config: Config = None,
    namesrv: Namesrv = None,
    store: Store = None,
    host: Host = None,
    port: Port = None,
    name: Name = None,
    cluster: Cluster = None,
    dispatch: Dispatch = None,
    set_: Set = None,
    output: OutputForm = Output.TABLE,
) -> None:
    """Run a broker until Ctrl-C or SIGTERM. Prints its address once it is ready.

    Takes over the store of a RocketMQ broker: its messages, topics, groups and offsets. Settings that
    are changed while it runs (mqadmin updateBrokerConfig) are kept in the --config file; without one, in
    config/orbitmq.properties of the store. Flags and ORBITMQ_ variables win over both.
    """
    from orbitmq.broker.config import BrokerConfig
    from orbitmq.net.loop import run_server as run_loop

    flags: dict[str, object] = {
        "namesrvAddr": namesrv,
        "storePathRootDir": store,
        "brokerIP1": host,
        "bindAddress": host,
        "listenPort": port,
        "brokerName": name,
        "brokerClusterName": cluster,
        "dispatch": dispatch,
        **parse_pairs(set_, "--set"),
    }
    run_loop(_serve(BrokerConfig.load(config, flags), output))


@app.command("config")
def show_config(
    address: Annotated[str, typer.Argument(metavar="HOST:PORT", help="Address of the broker.")],
    set_: Set = None,
    output: Annotated[Output, typer.Option(help="How to print.")] = Output.TABLE,
) -> None:
    """Show the settings of a running broker; with --set change them first (mqadmin updateBrokerConfig).

    The broker keeps what was changed for its next start, and refuses what cannot change while it runs.
    """
    from orbitmq.client import Admin

    changes = parse_pairs(set_, "--set")
    with Admin(address) as admin:  # a broker that is named by its address needs no name server
        if changes:
            admin.update_broker_config(address, changes)
        settings = admin.broker_config(address)
    shown = {name: settings.get(name, "") for name in changes} or settings
    if output is Output.JSON:
        print_json(shown)
    else:
        print_table(("setting", "value"), sorted(shown.items()), title=address)


async def _serve(config: "BrokerConfig", output: Output) -> None:
    import asyncio

    from orbitmq.broker.broker import Broker
    from orbitmq.net.loop import stop_event

    served = Broker(config)
    stopping = asyncio.ensure_future(stop_event().wait())
    starting = asyncio.ensure_future(served.start())
    # A long recovery can be given up too.
    await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
    try:
        if not starting.done():
            note("stopping once the store is open")
        await starting
        root = str(config.store.root)
        value = {"broker": served.address, "name": config.name, "store": root}
        print_ready(value, f"broker {config.name} {served.address} store {root}", output)
        await stopping
        note("stopping")
    finally:
        stopping.cancel()
        await served.stop()
