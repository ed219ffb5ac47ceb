"""`orbitmq broker`: run a broker; look at its settings, its replicas and its services while it runs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orbitmq.cli.broker_text import (
    print_copies,
    print_promotion,
    print_services,
    services_of,
)
from orbitmq.cli.cluster_options import NAMESRV, open_admin, parse_pairs, stop_with
from orbitmq.cli.cluster_options import Namesrv as OfCluster
from orbitmq.cli.cluster_options import OutputForm as ListForm
from orbitmq.cli.output import Output
from orbitmq.cli.serving import LogFile, LogLevel, Serving, log_flags, run_serving, server_log
from orbitmq.cli.settings_text import print_changed, print_settings

if TYPE_CHECKING:
    from orbitmq.broker.config import BrokerConfig

app = typer.Typer(help="Run a broker; its settings while it runs.", no_args_is_help=True)

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
FailoverPlace = Annotated[
    str | None,
    typer.Option(
        "--failover",
        metavar="etcd://HOST:PORT[,HOST:PORT][/PREFIX]",
        help="Let the lease of an etcd decide who is the primary of this broker name (failover).",
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Any other setting, by RocketMQ's key."),
]
BrokerArgument = Annotated[str, typer.Argument(metavar="BROKER", help="Its name, or HOST:PORT.")]
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
    failover: FailoverPlace = None,
    set_: Set = None,
    log_level: LogLevel = None,
    log_file: LogFile = None,
    output: OutputForm = Output.TABLE,
) -> None:
    """Run a broker until Ctrl-C or SIGTERM. Prints its address once it is ready.

    Takes over the store of a RocketMQ broker: its messages, topics, groups and offsets. Settings that
    are changed while it runs (mqadmin updateBrokerConfig) are kept in the --config file; without one, in
    config/orbitmq.properties of the store. Flags and ORBITMQ_ variables win over both.

    The log, with all settings at the start, goes to standard error: text on a terminal, else JSON lines.
    """
    from orbitmq.broker.config import BrokerConfig
    from orbitmq.logs.settings_report import log_settings

    flags: dict[str, object] = {
        "namesrvAddr": namesrv,
        "storePathRootDir": store,
        "brokerIP1": host,
        "bindAddress": host,
        "listenPort": port,
        "brokerName": name,
        "brokerClusterName": cluster,
        "dispatch": dispatch,
        "failover": failover,
        **log_flags(log_level, log_file),
        **parse_pairs(set_, "--set"),
    }
    with server_log() as log:
        loaded = BrokerConfig.load(config, flags)
        log.use(loaded.logs, directory=loaded.store.root / "logs")
        log_settings(loaded)
        run_serving(log, lambda serving: _serve(serving, loaded, output))


@app.command()
def config(
    broker: BrokerArgument,
    set_: Set = None,
    namesrv: OfCluster = NAMESRV,
    output: ListForm = Output.TABLE,
) -> None:
    """Show the settings of a running broker, or change some: --set logLevel=debug.

    A change works at once and is kept for the next start; all of them are made, or none.
    """
    changes = parse_pairs(set_, "--set")
    with open_admin(namesrv) as admin:
        if changes:
            print_changed({broker: admin.update_broker_config(broker, changes)}, output)
        else:
            print_settings({broker: admin.broker_config(broker)}, output)


@app.command()
def replicas(
    broker: Annotated[
        str | None,
        typer.Argument(metavar="[BROKER]", help="Its name, or HOST:PORT; none: all brokers."),
    ] = None,
    namesrv: OfCluster = NAMESRV,
    output: ListForm = Output.TABLE,
) -> None:
    """List logs and their copies: how far each one is, what it lacks, whether it is in sync.

    RocketMQ's brokers tell the same. Of HOST:PORT only what that broker itself knows: a primary its
    connections, a replica how far it is.
    """
    with open_admin(namesrv) as admin:
        print_copies(admin.replicas(broker), output)


@app.command()
def promote(
    address: Annotated[str, typer.Argument(metavar="HOST:PORT", help="Of the replica.")],
    force: Annotated[
        bool, typer.Option("--force", help="Whatever it lacks: that is lost.")
    ] = False,
    namesrv: OfCluster = NAMESRV,
    output: ListForm = Output.TABLE,
) -> None:
    """Make a replica the primary, because its primary is gone. It takes messages when this returns.

    Refused while its primary is alive, if it has not heard of it since its start, lacks more than
    haMaxGapNotInSync, or another replica has more. The former primary becomes a replica when it comes back;
    what only it has goes to the quarantine of its store.
    """
    with open_admin(namesrv) as admin:
        print_promotion(admin.promote(address, force=force), output)


@app.command()
def services(
    broker: BrokerArgument, namesrv: OfCluster = NAMESRV, output: ListForm = Output.TABLE
) -> None:
    """List what works in a broker beside requests (flush, dispatch, replication, ...) and whether it does."""
    with open_admin(namesrv) as admin:
        states = services_of(admin.broker_runtime(broker))
    if not states:
        stop_with(f"{broker}: it does not tell its services; RocketMQ's brokers do not")
    print_services(broker, states, output)


async def _serve(serving: Serving, config: "BrokerConfig", output: Output) -> None:
    import asyncio

    from orbitmq.broker.broker import Broker

    served = Broker(config, log=serving.log)
    served.on_failure = serving.stop.set
    root = str(config.store.root)
    serving.starting(f"opening the store {root}")
    stopping = asyncio.ensure_future(serving.stop.wait())
    starting = asyncio.ensure_future(served.start())
    # A long recovery can be given up too.
    await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
    try:
        if stopping.done():
            serving.stopping("stopping once the store is open")
        await starting
        if not stopping.done():
            value = {"broker": served.address, "name": config.name, "store": root}
            serving.ready(value, f"broker {config.name} {served.address} store {root}", output)
            await stopping
            serving.stopping()
    finally:
        stopping.cancel()
        await served.stop()
    if served.failure is not None:
        raise served.failure
