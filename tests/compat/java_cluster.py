"""RocketMQ's own name server and broker (5.3.3) as real processes on free loopback ports.

    with java_namesrv(tmp_path) as namesrv, java_broker(tmp_path, namesrv=namesrv.address) as broker:
        ...  # namesrv.address, broker.address, broker.kill(), broker.start(), broker.stop()

`our_cluster` has the same interface for OrbitMQ's. Stores are small, memory is small, and everything
stays below the given directory.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from compat.java_store import OPENED_MODULES
from compat.maven import HERE, classpath
from compat.server_classes import RECORD, RECORDING, archive_options
from compat.server_process import (
    ServerProcess,
    answers,
    await_route,
    create_topic,
    free_port,
    is_registered,
)

JAVA_VERSION: Final = "5.3.3"
NAMESRV_MAIN: Final = "org.apache.rocketmq.namesrv.NamesrvStartup"
BROKER_MAIN: Final = "org.apache.rocketmq.broker.BrokerStartup"
MQADMIN_MAIN: Final = "org.apache.rocketmq.tools.command.MQAdminStartup"

# Producers are asked early what became of their transactions. A Java broker asks, and commits again, as long
# as ends are only collected: that has to be shorter.
QUICK_CHECKS: Final = {
    "transactionTimeOut": "2000",
    "transactionCheckInterval": "1000",
    "transactionOpBatchInterval": "200",
    # A Java broker also counts the times when nobody was there to be asked.
    "transactionCheckMax": "1000",
}
# Small files, and no refusals because the machine is slow or its disk rather full.
SMALL_BROKER: Final = {
    "mappedFileSizeCommitLog": str(64 << 20),
    "mappedFileSizeConsumeQueue": "120000",
    "maxHashSlotNum": "5000",
    "maxIndexNum": "20000",
    "mappedFileSizeTimerLog": str(1 << 20),
    "diskMaxUsedSpaceRatio": "95",
    "osPageCacheBusyTimeOutMills": "10000",
    "brokerFastFailureEnable": "false",
    # It writes the whole wheel, 38 MB, each time: every second, that is a quarter of a core while it idles.
    "timerFlushIntervalMs": "60000",
    **QUICK_CHECKS,
}
FLUSH_TIMERS: Final = {"timerFlushIntervalMs": "1000"}
"""RocketMQ's default, for a broker whose store another one takes over."""


def server_jars() -> str:
    return classpath("servers", JAVA_VERSION)


def java_command(
    main: str,
    *arguments: str,
    home: Path,
    heap: str = "512m",
    options: tuple[str, ...] = (),
    classes: str = "",
) -> list[str]:
    """Return the command line of one of RocketMQ's own programs; its logs go below `home`.

    `classes` is where a program of ours lies that uses RocketMQ's: behind theirs, which are archived.
    """
    if RECORD not in options:
        options = (*archive_options(server_jars(), _recording_broker), *options)
    opened = [f"--add-opens={module}=ALL-UNNAMED" for module in OPENED_MODULES]
    return [
        "java",
        f"-Xmx{heap}",
        "-Xms64m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        *opened,
        f"-Duser.home={home}",
        f"-Drocketmq.home.dir={home}",
        f"-Drmq.logback.configurationFile={HERE / 'servers' / 'rmq.logback.xml'}",
        *options,
        "-cp",
        os.pathsep.join(filter(None, [server_jars(), classes])),
        main,
        *arguments,
    ]


def write_settings(path: Path, settings: Mapping[str, str]) -> Path:
    """Write a configuration file of RocketMQ's form."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return path


@contextmanager
def java_namesrv(
    directory: Path,
    *,
    name: str = "java-namesrv",
    settings: Mapping[str, str] | None = None,
    binary: bool = False,
    options: tuple[str, ...] = (),
) -> Iterator[ServerProcess]:
    """Run a name server; `binary` gives its answers binary headers."""
    root, port = directory / name, free_port()
    given = {
        "listenPort": str(port),
        "bindAddress": "127.0.0.1",
        "kvConfigPath": str(root / "kvConfig.json"),
        "configStorePath": str(root / "namesrv.properties"),
        **(settings or {}),
    }
    config = write_settings(root / "namesrv.conf", given)
    options = (*header_type(binary), *options)
    command = java_command(NAMESRV_MAIN, "-c", str(config), home=root, heap="256m", options=options)
    server = ServerProcess(name, command, port, root, lambda: answers(f"127.0.0.1:{port}"))
    with running(server):
        yield server


@contextmanager
def java_broker(
    directory: Path,
    *,
    namesrv: str,
    name: str = "broker-a",
    settings: Mapping[str, str] | None = None,
    binary: bool = False,
    root: Path | None = None,
    port: int | None = None,
    options: tuple[str, ...] = (),
) -> Iterator[ServerProcess]:
    """Run a broker; `settings` are RocketMQ's; it is registered when the body starts.

    `root` is where it has its store and its logs, `port` where it listens: for a broker that takes the
    place of another.
    """
    root, port = root or directory / f"java-{name}", port or free_port()
    given = {**broker_settings(root, port, namesrv, name), **SMALL_BROKER, **(settings or {})}
    config = write_settings(root / "broker.conf", given)
    options = (*header_type(binary), *options)
    command = java_command(BROKER_MAIN, "-c", str(config), home=root, options=options)
    address = f"127.0.0.1:{port}"
    server = ServerProcess(name, command, port, root, lambda: is_registered(address, namesrv))
    with running(server):
        yield server


@contextmanager
def _recording_broker(directory: Path) -> Iterator[ServerProcess]:
    """Run a broker whose classes can be archived, and give it something to do."""
    with (
        java_namesrv(directory, options=RECORDING) as namesrv,
        java_broker(directory, namesrv=namesrv.address, options=RECORDING) as broker,
    ):
        create_topic(broker.address, "Archived")
        await_route(namesrv.address, "Archived")
        yield broker


def broker_settings(root: Path, port: int, namesrv: str, name: str) -> dict[str, str]:
    """Return what a broker on the loopback address needs to be told."""
    return {
        "brokerClusterName": "DefaultCluster",
        "brokerName": name,
        "brokerId": "0",
        "brokerIP1": "127.0.0.1",
        "brokerIP2": "127.0.0.1",
        "bindAddress": "127.0.0.1",
        "namesrvAddr": namesrv,
        "listenPort": str(port),
        "haListenPort": str(port + 1),
        "storePathRootDir": str(root / "store"),
        "storePathCommitLog": str(root / "store" / "commitlog"),
    }


def header_type(binary: bool) -> tuple[str, ...]:
    """Return the option that makes a Java process write binary headers."""
    return ("-Drocketmq.serialize.type=ROCKETMQ",) if binary else ()


@contextmanager
def running(server: ServerProcess, *, graceful: bool = False) -> Iterator[None]:
    """Start a server and end it however the body ends; a Java broker takes many seconds to stop."""
    server.start()
    try:
        yield
        if graceful:
            server.stop()
    finally:
        server.kill()
