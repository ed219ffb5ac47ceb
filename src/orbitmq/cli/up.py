"""`orbitmq up`: a name server and a broker on an embedded store, for this machine alone."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orbitmq.cli.broker import Dispatch
from orbitmq.cli.cluster_options import parse_pairs
from orbitmq.cli.output import Output
from orbitmq.cli.serving import LogFile, LogLevel, Serving, log_flags, run_serving, server_log
from orbitmq.errors import UnreachableError

if TYPE_CHECKING:
    from orbitmq.broker.config import BrokerConfig

LOOPBACK = "127.0.0.1"
DEFAULT_STORE = Path("orbitmq-store")

Store = Annotated[
    Path, typer.Option("--store", help="Where the messages are kept; made if it is not there.")
]
NamesrvPort = Annotated[
    int,
    typer.Option(
        "--namesrv-port", min=0, max=65535, help="Of the name server; 0 takes a free one."
    ),
]
BrokerPort = Annotated[
    int,
    typer.Option(
        "--broker-port", min=0, max=65535, help="Of the broker, and this - 2; 0 takes free ones."
    ),
]
OutputForm = Annotated[
    Output, typer.Option("--output", help="json: one line with the addresses once it is ready.")
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="A setting of the broker, by RocketMQ's key."),
]


def up(
    store: Store = DEFAULT_STORE,
    namesrv_port: NamesrvPort = 9876,
    broker_port: BrokerPort = 10911,
    output: OutputForm = Output.TABLE,
    dispatch: Dispatch = None,
    set_: Set = None,
    log_level: LogLevel = None,
    log_file: LogFile = None,
) -> None:
    """Start a name server and a broker on this machine's loopback address; Ctrl-C stops them.

    Any RocketMQ client can talk to them: give it the name server's address. The messages stay in the
    store directory: start again with the same one and they are there. With `--output json` one line
    {"namesrv": ..., "broker": ..., "store": ...} says that it is ready.
    """
    from orbitmq.broker.config import BrokerConfig

    flags: dict[str, object] = {
        "brokerName": "broker-a",
        "brokerIP1": LOOPBACK,
        "bindAddress": LOOPBACK,
        "storePathRootDir": str(store.resolve()),
        "listenPort": str(broker_port),
        "dispatch": dispatch,
        **log_flags(log_level, log_file),
        **parse_pairs(set_, "--set"),
    }
    with server_log() as log:
        config = BrokerConfig.load(None, flags)
        log.use(config.logs, directory=config.store.root / "logs")
        run_serving(log, lambda serving: _serve(serving, config, namesrv_port, store, output))


async def _serve(
    serving: Serving, config: "BrokerConfig", namesrv_port: int, store: Path, output: Output
) -> None:
    from orbitmq.broker.broker import Broker
    from orbitmq.namesrv.config import NamesrvConfig
    from orbitmq.namesrv.server import NameServer
    from orbitmq.settings import FLAG_SOURCE

    kv_path = store.resolve() / "config" / "kvConfig.json"
    names = {"bindAddress": LOOPBACK, "listenPort": namesrv_port, "kvConfigPath": kv_path}
    namesrv = NameServer(NamesrvConfig.load(None, names))
    with _port_hint("--namesrv-port"):
        await namesrv.start()
    try:
        config.namesrv = (namesrv.address,)
        config.stronger["namesrvAddr"] = FLAG_SOURCE
        broker = Broker(config, log=serving.log)
        with _port_hint("--broker-port"):
            await broker.start()
        try:
            _say_ready(serving, namesrv.address, broker.address, store.resolve(), output)
            await serving.stop.wait()
            serving.stopping()
        finally:
            await broker.stop()
    finally:
        await namesrv.stop()


@contextmanager
def _port_hint(option: str) -> Iterator[None]:
    """Name the option that chooses another port."""
    try:
        yield
    except UnreachableError as failure:
        step = f"Say {option} 0 for a free port, or end the program that has it."
        raise UnreachableError(failure.peer, failure.what, step) from failure


def _say_ready(serving: Serving, namesrv: str, broker: str, store: Path, output: Output) -> None:
    option = "" if namesrv.endswith(":9876") else f" --namesrv {namesrv}"
    text = (
        f"name server  {namesrv}\n"
        f"broker       {broker}\n"
        f"store        {store}\n\n"
        "In another terminal:\n"
        f"  orbitmq message send Orders 'hello' --tag TagA{option}\n"
        f"  orbitmq message tail Orders{option}\n"
        f"  orbitmq topic list{option}\n\n"
        "Ctrl-C stops both."
    )
    serving.ready({"namesrv": namesrv, "broker": broker, "store": str(store)}, text, output)
