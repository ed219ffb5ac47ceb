"""Where a coordinator is: etcd://host:port[,host:port ...][/prefix], with TLS etcds://."""

from typing import Final, NamedTuple

from orbitmq.errors import ConfigError, UnreachableError
from orbitmq.net.channels import parse_address

KEY: Final = "failover"
DEFAULT_PREFIX: Final = "/orbitmq"
DEFAULT_PORT: Final = 2379


class Place(NamedTuple):
    """One coordinator: its servers, and below which key it keeps what is ours."""

    servers: tuple[str, ...]
    prefix: str
    tls: bool


def parse_place(text: str) -> Place:
    """Return what a setting says. ConfigError: it says no such place."""
    scheme, separator, rest = text.partition("://")
    if not separator or scheme not in ("etcd", "etcds"):
        raise ConfigError(KEY, text, "must be etcd://HOST:PORT[,HOST:PORT ...][/PREFIX]")
    hosts, _, prefix = rest.partition("/")
    servers = tuple(_with_port(host.strip()) for host in hosts.split(",") if host.strip())
    try:
        for server in servers:
            parse_address(server)
    except UnreachableError as cause:
        raise ConfigError(KEY, text, str(cause)) from cause
    if not servers:
        raise ConfigError(KEY, text, "names no server: etcd://HOST:PORT")
    path = prefix.strip("/")
    return Place(servers, f"/{path}" if path else DEFAULT_PREFIX, scheme == "etcds")


def _with_port(host: str) -> str:
    has_port = host.rpartition("]")[2].count(":") == 1
    return host if has_port else f"{host}:{DEFAULT_PORT}"
