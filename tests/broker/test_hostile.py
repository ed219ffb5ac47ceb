"""A broker under mutated frames of real clients: it lives on, forgets them, and serves the others.

ORBITMQ_HOSTILE_FRAMES says how many (12 000; `make test-crash` has 100 000).
"""

import asyncio
import os
import random
from contextlib import suppress
from pathlib import Path

import pytest
from msgspec.structs import replace

from async_run import run_async
from golden_frames import good_frames
from orbitmq.broker.config import PLAIN_RECORDS
from orbitmq.net.channels import Channels, parse_address
from orbitmq.units import MiB
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.frame import encode_command
from up_process import Up, up_process

FRAMES = int(os.environ.get("ORBITMQ_HOSTILE_FRAMES", "12000"))
FRAMES_PER_CONNECTION = 100
CONNECTIONS_AT_ONCE = 20
GROWTH_MAX = 64 * MiB
ANSWER_BYTES_LEAST = 50
WRONG_VALUES = (
    *("", "-1", "0", "1", "2147483647", "2147483648", "-2147483649", "9223372036854775807"),
    *(
        "9" * 40,
        "true",
        "TBW102",
        "%RETRY%",
        "../../x",
        "a\x00b",
        "\x01\x02",
        "x" * 40_000,
        "é",
        "*",
    ),
)
CODES = [code.value for code in RequestCode] + [-1, 7, 65536, 2**31 - 1]


@pytest.mark.slow
@pytest.mark.fuzz
def test_many_mutated_frames_harm_nobody(tmp_path: Path) -> None:
    with up_process(tmp_path) as up:
        run_async(lambda: _attack(up), seconds=240)
        assert up.stop() == 0, up.errors.read_text()
        assert "Traceback" not in up.errors.read_text()


async def _attack(up: Up) -> None:
    chance = random.Random(20_261_115)
    commands = [frame.command for frame in good_frames() if frame.to_server]
    channels = Channels()
    await _load_kernels(up, channels)
    rounds = FRAMES // FRAMES_PER_CONNECTION // CONNECTIONS_AT_ONCE
    memory = answer_bytes = 0
    for number in range(rounds):
        counts = await asyncio.gather(
            *(_one(up.broker, chance, commands) for _ in range(CONNECTIONS_AT_ONCE))
        )
        answer_bytes += sum(counts)
        answer = await channels.request(
            up.broker, Command(RequestCode.GET_MAX_OFFSET, {"topic": "T", "queueId": "0"}), 10_000
        )
        assert answer.code == ResponseCode.SUCCESS
        if number == rounds // 2:
            memory = up.memory_bytes()
    growth = up.memory_bytes() - memory
    await channels.close()
    assert answer_bytes > FRAMES * ANSWER_BYTES_LEAST  # most of them were looked into
    assert growth < GROWTH_MAX, f"{growth / MiB:.0f} MiB more in the second half"


async def _load_kernels(up: Up, channels: Channels) -> None:
    """Send so many messages that the broker loads its kernels: their memory is no leak."""
    fields = {"a": "P", "b": "T", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "0"}
    fields |= {"h": "0", "i": "", "j": "0"}
    for _ in range(PLAIN_RECORDS // 1000 + 1):
        sends = (
            channels.request(
                up.broker, Command(RequestCode.SEND_MESSAGE_V2, fields, body=b"m"), 10_000
            )
            for _ in range(1000)
        )
        answers = await asyncio.gather(*sends)
        assert {answer.code for answer in answers} == {ResponseCode.SUCCESS}


async def _one(address: str, chance: random.Random, commands: list[Command]) -> int:
    """Send many wrong requests, then bytes that are none; return how much was answered."""
    reader, writer = await asyncio.open_connection(*parse_address(address))
    reading = asyncio.ensure_future(_drain(reader))
    for _ in range(FRAMES_PER_CONNECTION - 1):
        writer.write(encode_command(_mutated(chance, chance.choice(commands))))
    writer.write(_broken(chance, encode_command(chance.choice(commands))))
    try:
        writer.write_eof()
        return await asyncio.wait_for(reading, 20)
    finally:
        writer.close()


async def _drain(reader: asyncio.StreamReader) -> int:
    count = 0
    with suppress(OSError):
        while data := await reader.read(1 << 16):
            count += len(data)
    return count


def _mutated(chance: random.Random, command: Command) -> Command:
    """Return a request that is a command, but not one that any client would send."""
    fields = dict(command.fields or {})
    for _ in range(chance.choice((0, 1, 1, 2, 4))):
        if fields:
            name = chance.choice(list(fields))
            fields[name] = (
                chance.choice(WRONG_VALUES) if chance.random() < 0.5 else fields[name][1:]
            )
            if chance.random() < 0.2:
                del fields[name]
    body = _broken(chance, command.body) if command.body and chance.random() < 0.5 else command.body
    code = chance.choice(CODES) if chance.random() < 0.1 else command.code
    return replace(command, code=code, fields=fields, body=body)


def _broken(chance: random.Random, frame: bytes) -> bytes:
    raw = bytearray(frame)
    for _ in range(chance.choice((1, 1, 2, 4, 8))):
        raw[chance.randrange(len(raw))] = chance.choice(
            (0, 0xFF, 0x22, 0x7B, chance.randrange(256))
        )
    return bytes(raw[: chance.randrange(1, len(raw) + 1)] if chance.random() < 0.2 else raw)
