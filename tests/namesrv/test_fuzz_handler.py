"""Changed requests to a name server: each is answered, none meets anything that was not thought of."""

import random

import pytest

from golden_frames import good_frames
from mutations import mutated
from namesrv_world import NamesrvWorld
from orbitmq.wire.command import Command
from orbitmq.wire.frame import FrameDecoder
from rounds import rounds

pytestmark = pytest.mark.fuzz

ROUNDS = rounds(40_000)


def changed(rng: random.Random, command: Command) -> Command:
    """Return the request with one of its fields, its body or its version changed."""
    fields = dict(command.fields or {})
    body = command.body
    if fields and rng.randrange(2):
        name = rng.choice(list(fields))
        fields[name] = mutated(rng, fields[name].encode()).decode("utf-8", "replace")
        if rng.randrange(8) == 0:
            del fields[name]
    elif body:
        body = mutated(rng, body)
        fields.pop("bodyCrc32", None)
    version = rng.choice((0, 36, 121, 317, 400, 479, command.version))
    return Command(command.code, fields or None, body, 7, 0, None, "JAVA", version)


def test_changed_requests(caplog):
    samples: dict[int, list[Command]] = {}
    for frame in good_frames():
        command = frame.command
        is_request = frame.to_server and not command.is_response
        if frame.role == "namesrv" and is_request and len(command.body) < 4000:
            samples.setdefault(command.code, []).append(command)
    assert len(samples) > 20
    rng = random.Random(3)
    world = NamesrvWorld()
    for turn in range(ROUNDS):
        if turn % 100 == 0:
            world.register("broker-a", "Orders", counter=turn)
        code = rng.choice(list(samples))
        world.ask_command(changed(rng, rng.choice(samples[code])))
        world.connection.sent.clear()

    assert [record for record in caplog.records if record.exc_info] == []
    assert world.ask(105, {"topic": "Orders"}).code == 0


def test_changed_frames_leave_the_name_server_as_it_was(caplog):
    samples = [f.raw for f in good_frames("raw/answers") if f.role == "namesrv" and f.to_server]
    rng = random.Random(4)
    world = NamesrvWorld()
    world.register("broker-a", "Orders")
    for _ in range(ROUNDS // 4):
        commands = FrameDecoder().receive(mutated(rng, rng.choice(samples)))
        world.handler.on_commands(world.connection, [c for c in commands if not c.is_response])

    assert [record for record in caplog.records if record.exc_info] == []
    assert "broker-a" in world.routes.brokers
