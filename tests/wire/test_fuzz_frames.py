"""Changed frames of real clients into the decoder: commands or an error, and nothing else.

The seed is fixed: a failure comes again.
"""

import random

import pytest

from golden_frames import decode_command, good_frames, names
from mutations import mutated
from orbitmq.errors import FieldError
from orbitmq.wire.bodies import dialect
from orbitmq.wire.command import Encoding
from orbitmq.wire.frame import FrameDecoder, encode_command
from rounds import rounds
from wire_registry import ANSWER_BODIES, REQUEST_BODIES, REQUEST_HEADERS

pytestmark = pytest.mark.fuzz

FRAMES = rounds(200_000)
BODIES = rounds(20_000)


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


def test_changed_typed_bodies():
    samples = []
    for frame in good_frames():
        command = frame.command
        bodies = ANSWER_BODIES if command.is_response else REQUEST_BODIES
        kind = bodies.get(frame.request_code)
        if kind is not None and command.body[:1] == b"{" and len(command.body) < 1500:
            samples.append((kind, command.body))
    rng = random.Random(9)
    refused = 0
    for _ in range(BODIES):
        kind, raw = samples[rng.randrange(len(samples))]
        try:
            body = kind.decode(mutated(rng, raw))
        except FieldError:
            refused += 1
        else:
            assert kind.decode(body.encode()) == body

    assert BODIES / 10 < refused < BODIES


def test_changed_typed_headers():
    samples = [
        (REQUEST_HEADERS[frame.command.code], frame.command.fields)
        for frame in good_frames()
        if frame.command.code in REQUEST_HEADERS and frame.command.fields
        if not frame.command.is_response
    ]
    rng = random.Random(10)
    refused = 0
    for _ in range(BODIES):
        kind, fields = samples[rng.randrange(len(samples))]
        changed = dict(fields)
        name = rng.choice(list(changed))
        text = mutated(rng, changed.pop(name).encode()).decode("utf-8", "replace")
        if rng.randrange(4):
            changed[name] = text
        try:
            assert kind.read(kind.read(changed).write()) == kind.read(changed)
        except FieldError:
            refused += 1

    assert BODIES / 20 < refused < BODIES
