"""What the light drivers share: frames with a place for a number, connections, options and figures."""

import argparse
import json
import socket
import struct
from collections.abc import Mapping, Sequence

import numpy as np

BODY_BYTES = 1024
FIRST_OPAQUE = 1_000_000_000  # ten digits, so that every frame has the same length
SILENCE_S = 30


def frame(code: int, fields: dict[str, str], body: bytes) -> tuple[bytes, bytes]:
    """Return what stands before and behind the opaque of a request."""
    header = {
        "code": code,
        "extFields": fields,
        "flag": 0,
        "language": "JAVA",
        "opaque": FIRST_OPAQUE,
        "serializeTypeCurrentRPC": "JSON",
        "version": 479,
    }
    text = json.dumps(header, separators=(",", ":")).encode()
    whole = struct.pack(">II", 4 + len(text) + len(body), len(text)) + text + body
    before, _, behind = whole.rpartition(str(FIRST_OPAQUE).encode())  # an id may look the same
    return before, behind


def connect(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    sock = socket.create_connection((host, int(port)))
    # The kernel's own limit of a wait: a Python timeout would cost a poll for each call.
    wait = struct.pack("ll", SILENCE_S, 0)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, wait)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def options(text: str, what: str) -> argparse.Namespace:
    """Return what a driver was told that keeps so many of something in flight."""
    parser = argparse.ArgumentParser(description=text)
    parser.add_argument("what", choices=(what,))
    parser.add_argument("address")
    parser.add_argument("topic")
    parser.add_argument("--depth", type=int, default=16)
    parser.add_argument("--connections", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--warm", type=float, default=1)
    return parser.parse_args()


def figures(
    begun: Sequence[float],
    done: Mapping[int, float],
    counted_from: float,
    until: float,
    errors: int,
) -> dict[str, float]:
    """Return rate and latencies of what was done in that time; `begun` and `done` are when, by number."""
    latencies = [
        (end - begun[number]) * 1000 for number, end in done.items() if counted_from <= end < until
    ]
    p50, p99, p999 = np.percentile(latencies, [50, 99, 99.9])
    return {
        "rate": len(latencies) / (until - counted_from),
        "messages": len(begun),
        "p50_ms": float(p50),
        "p99_ms": float(p99),
        "p999_ms": float(p999),
        "errors": errors,
    }
