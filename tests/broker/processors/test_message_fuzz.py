"""Mutated requests of real clients about messages: each is answered, and none is a surprise to the broker."""

import logging
import random
from pathlib import Path

import pytest
from msgspec.structs import replace

from golden_frames import good_frames
from message_replay import SENDS, MessageWorld
from orbitmq.units import MiB
from orbitmq.wire.command import Command

ROUNDS = 3_000
CODES = (*SENDS, 11, 361, 36, 12, 33)
TEXTS = (
    "",
    "0",
    "-1",
    "99999999999",
    "9223372036854775807",
    "-9223372036854775808",
    "1e5",
    "true",
    "\x00",
    "é",
    "a" * 300,
    "%RETRY%x",
    "%DLQ%x",
    "SCHEDULE_TOPIC_XXXX",
    "UNIQ_KEY\x01\x02",
    "DELAY\x01-9999999999999\x02UNIQ_KEY\x01a\x02",
    "TIMER_DELAY_MS\x01x\x02",
    "INNER_NUM\x013\x02",
    "REAL_TOPIC\x01..\x02DELAY\x011\x02",
    "a/b",
    "||",
    "GwBasicJ",
)


def mutated(chance: random.Random, command: Command, opaque: int) -> Command:
    fields, body = dict(command.fields or {}), command.body
    for _ in range(chance.randrange(3)):
        name = chance.choice(list(fields) or [""])
        if chance.random() < 0.3:
            fields.pop(name, None)
        else:
            fields[name] = chance.choice(TEXTS)
    if chance.random() < 0.2:
        body = body[: chance.randrange(len(body) + 1)]
    elif chance.random() < 0.1:
        body = chance.randbytes(chance.randrange(60))
    return replace(command, fields=fields, body=body, flag=0, opaque=opaque)


@pytest.mark.fuzz
def test_every_mutated_request_is_answered(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "orbitmq")
    chance = random.Random(5)
    requests = [
        frame.command
        for frame in good_frames()
        if frame.role == "broker" and frame.to_server and frame.command.code in CODES
    ]
    answered = set()
    with MessageWorld(tmp_path, store={"segment_bytes": 4 * MiB}) as world:
        client = world.connect()
        for number in range(ROUNDS):
            request = mutated(chance, chance.choice(requests), number)
            answered |= {answer.opaque for answer in world.tell(client, request)}
            if number % 50 == 0:
                world.later(chance.choice((0, 1_000, 20_000)))
        world.context.long_poll.stop()
        answered |= {answer.opaque for answer in client.take()}
    assert answered == set(range(ROUNDS))
    assert [record for record in caplog.records if record.exc_info] == []
