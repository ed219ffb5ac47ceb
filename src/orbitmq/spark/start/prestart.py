"""The processes that Python workers are forked from, started before Spark asks for them.

The one for tasks loads the kernels while the JVM starts. When Spark then starts `daemon`, that small
process hands over what Spark gave it (streams, environment, module path) and only waits. If nobody takes
it, it does the work itself, as without this module.
"""

import json
import os
import select
import socket
import subprocess
import sys
from pathlib import Path
from typing import Final

from orbitmq.spark.start.cache_files import private_directory
from orbitmq.spark.start.workers import load_kernels, serve_tasks

VARIABLE: Final = "ORBITMQ_PRESTARTED_DAEMON"
"""Names the socket to `daemon`, by way of the JVM's environment."""
POOL_VARIABLE: Final = "ORBITMQ_COLUMN_POOL"
"""Names the socket of the pool to the JVM's reader."""
HASH_SEED: Final = "PYTHONHASHSEED"
_TAKEN: Final = b"1"
_STREAMS: Final = (0, 1, 2)
_SOCKET_PATH_MAX: Final = 100  # Linux takes 107, other systems fewer

_started: list[subprocess.Popen[bytes]] = []
"""Kept as long as the driver lives: the process ends with its input, unless it was handed another."""


def prestart_daemon() -> dict[str, str]:
    """Start the process; return what the JVM must have in its environment."""
    path = str(private_directory("orbitmq-daemon-") / "socket")
    # The seed that Spark gives its workers: equal strings must have equal hashes in all of them.
    environment = {**os.environ, HASH_SEED: os.environ.get(HASH_SEED, "0")}
    command = [sys.executable, "-m", __name__, path]
    # In a group of its own: Ctrl-C is for the driver, which cancels the job.
    _started.append(
        subprocess.Popen(command, stdin=subprocess.PIPE, env=environment, process_group=0)
    )
    return {VARIABLE: path}


def prestart_pool() -> dict[str, str]:
    """Start the pool behind the reader of columns; return what the JVM must have in its environment.

    A JVM that does not find it starts one itself. It ends with the driver, and takes its directory along.
    """
    path = str(private_directory("orbitmq-pool-") / "s")
    if len(os.fsencode(path)) > _SOCKET_PATH_MAX:
        return {}  # a JVM has its own directory for such files
    command = [sys.executable, "-m", "orbitmq.spark.columns.pool", path]
    quiet = subprocess.DEVNULL
    _started.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=quiet, process_group=0))
    return {POOL_VARIABLE: path}


def handed_over() -> bool:
    """Let the process that was prestarted go on in place of this one; True when it has ended."""
    path = os.environ.pop(VARIABLE, None)
    if path is None:
        return False
    given = {"env": dict(os.environ), "cwd": str(Path.cwd()), "path": sys.path, "argv": sys.argv}
    try:
        with socket.socket(socket.AF_UNIX) as link:
            link.connect(path)
            socket.send_fds(link, [_TAKEN], _STREAMS)
            link.sendall(json.dumps(given).encode() + b"\n")
            if link.recv(1) != _TAKEN:
                return False
            link.recv(1)  # only its end; until then Spark takes this process for its daemon
    except OSError:
        return False
    return True


def main(path: str) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(1)
        load_kernels()
        import pyspark.daemon  # noqa: F401  (what it imports takes a while too)

        ready, _, _ = select.select([listener, sys.stdin], [], [])
        if listener not in ready:
            return  # the driver is gone
        link, _ = listener.accept()
        Path(path).unlink(missing_ok=True)
    _become(link)
    serve_tasks()
    link.close()


def _become(link: socket.socket) -> None:
    """Become the process at the other end, as far as Spark can see."""
    _, streams, _, _ = socket.recv_fds(link, len(_TAKEN), len(_STREAMS))
    with link.makefile("rb") as lines:
        given = json.loads(lines.readline())
    for stream_fd, stream in zip(streams, _STREAMS, strict=True):
        os.dup2(stream_fd, stream)
        os.close(stream_fd)
    os.environ.clear()
    os.environ.update(given["env"])
    os.chdir(given["cwd"])
    sys.path[:], sys.argv[:] = given["path"], given["argv"]
    link.sendall(_TAKEN)


if __name__ == "__main__":
    main(sys.argv[1])
