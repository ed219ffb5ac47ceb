"""Changed frames of real clients into the decoder: commands or an error, and nothing else.

The seed is fixed: a failure comes again.
"""

import random

import pytest

from golden_frames import good_frames, names
from orbitmq.errors import FieldError
from orbitmq.wire.bodies import dialect
from orbitmq.wire.command import Encoding, decode_command, encode_command
from orbitmq.wire.frame import FrameDecoder

pytestmark = pytest.mark.fuzz

FRAMES = 200_000
BODIES = 20_000
WILD_BYTES = (0, 1, 2, 0x0A, 0x22, 0x2C, 0x3A, 0x5B, 0x5C, 0x7B, 0x7D, 0x7F, 0x80, 0xC3, 0xFF)


def mutated(rng: random.Random, raw: bytes) -> bytes:
    """Return the bytes with one to three random changes."""
    data = bytearray(raw)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(6):
            case 0:
                data[at : at + 1] = bytes([rng.choice(WILD_BYTES)])
            case 1 if at < len(data):
                data[at] ^= 1 << rng.randrange(8)
            case 2:
                data[at : at + 4] = rng.choice((-1, 0, 1, 255, 65536, 2**31 - 1)).to_bytes(
                    4, "big", signed=True
                )
            case 3:
                del data[at : at + rng.randrange(9)]
            case 4:
                data[at:at] = rng.randbytes(rng.randrange(9))
            case _:
                data[at:at] = data[at : at + rng.randrange(20)]
    return bytes(data)


def fitted(raw: bytes) -> bytes:
    """Return the frame with a length word that fits, so that its header is looked at."""
    return (len(raw) - 4).to_bytes(4, "big") + raw[4:]


def test_changed_frames():
    samples = [frame.raw for frame in good_frames() if len(frame.raw) < 1500]
    rng = random.Random(7)
    survived = refused = 0
    for turn in range(FRAMES):
        raw = mutated(rng, samples[rng.randrange(len(samples))])
        decoder = FrameDecoder()
        commands = decoder.receive(fitted(raw) if turn % 4 and len(raw) > 4 else raw)
        refused += decoder.error is not None
        if commands and turn % 16 == 0:
            survived += 1
            command = commands[0]
            if command.encoding is Encoding.BINARY:
                command.fields = command.fields or None  # a binary header cannot tell them apart
            assert decode_command(encode_command(command)) == command

    assert refused > FRAMES / 20
    assert survived > FRAMES / 100


def test_changed_bodies():
    samples = [
        frame.command.body
        for name in names()
        for frame in good_frames(name)
        if frame.command.body[:1] in (b"{", b"[") and len(frame.command.body) < 1500
    ]
    rng = random.Random(8)
    refused = 0
    for _ in range(BODIES):
        raw = mutated(rng, samples[rng.randrange(len(samples))])
        try:
            value = dialect.loads(raw)
        except FieldError:
            refused += 1
        else:
            assert dialect.loads(dialect.dumps(value)) == dialect.without_nulls(value)

    assert BODIES / 10 < refused < BODIES
