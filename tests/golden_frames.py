"""The conversations recorded in tests/golden/wire, of real clients, brokers and name servers."""

import base64
import gzip
import json
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from orbitmq.errors import RemoteProtocolError
from orbitmq.wire.command import Command
from orbitmq.wire.frame import FrameDecoder

WIRE = Path(__file__).parent / "golden" / "wire"


def decode_command(raw: bytes) -> Command:
    """Return the command that a connection reads from a whole frame. RemoteProtocolError: it reads none."""
    decoder = FrameDecoder()
    commands = decoder.receive(raw)
    if decoder.error is not None:
        raise decoder.error
    if len(commands) != 1 or decoder.waiting_bytes:
        raise RemoteProtocolError(f"{len(commands)} frames and {decoder.waiting_bytes} bytes")
    return commands[0]


@dataclass
class Frame:
    """One recorded frame; `raw` includes the length word."""

    name: str
    line: int
    raw: bytes
    conn: int
    role: str  # who is the server: namesrv, broker, ha
    peer: str  # who is the client: client, broker, slave
    to_server: bool
    request_code: int | None  # of an answer: what was asked; None: the request was not recorded
    decode_error: str | None = None
    time_ms: float = 0.0
    notes: list[str] = field(
        default_factory=list
    )  # what the program said it did, since the last frame

    @property
    def command(self) -> Command:
        """A command of its own for each who asks: tests change it, and frames are kept for all of them."""
        return decode_command(self.raw)

    def __repr__(self) -> str:
        return f"<{self.name}:{self.line}>"


def names() -> list[str]:
    """Return the names of all recordings, as `java-json/producer`."""
    found = (path.relative_to(WIRE).as_posix() for path in WIRE.glob("*/*.jsonl.gz"))
    return sorted(name.removesuffix(".jsonl.gz") for name in found)


@cache
def frames(name: str) -> list[Frame]:
    """Return the frames of a recording, in order. Those that no program could decode are among them."""
    found: list[Frame] = []
    notes: list[str] = []
    text = gzip.decompress((WIRE / f"{name}.jsonl.gz").read_bytes()).decode("utf-8")
    for line, row in enumerate(map(json.loads, text.splitlines()), start=1):
        if row["kind"] == "note":
            notes.append(row["text"])
        elif row["kind"] == "frame" and row["raw"] is not None:
            found.append(_frame(name, line, row, notes))
            notes = []
    return found


def good_frames(*only: str) -> list[Frame]:
    """Return the frames that hold a command, of these recordings or of all."""
    return [
        frame for name in only or names() for frame in frames(name) if frame.decode_error is None
    ]


def exchanges(name: str, role: str | None = None) -> list[tuple[Frame, Frame]]:
    """Return requests to a server with their answers, in the order of the answers."""
    asked: dict[tuple[int, int], Frame] = {}
    pairs = []
    for frame in good_frames(name):
        if role is not None and frame.role != role:
            continue
        key = (frame.conn, frame.command.opaque)
        if frame.to_server and not frame.command.is_response:
            asked[key] = frame
        elif not frame.to_server and frame.command.is_response and key in asked:
            pairs.append((asked.pop(key), frame))
    return pairs


def _frame(name: str, line: int, row: dict, notes: list[str]) -> Frame:
    return Frame(
        name=name,
        line=line,
        raw=base64.b64decode(row["raw"]),
        conn=row["conn"],
        role=row["role"],
        peer=row["peer"],
        to_server=row["dir"] == "c2s",
        request_code=row.get("request_code"),
        decode_error=row.get("decode_error"),
        time_ms=row["t"],
        notes=notes,
    )
