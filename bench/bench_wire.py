"""The wire codec alone, in memory: what one command costs before anything is done with it.

    python bench/bench_wire.py [--rounds 20000]

Stands for: a send of 1 KiB by a Java client as it was recorded, sixteen in one read and one alone, and its
answer; the typed headers and bodies of the frequent conversations. Every result is compared.
"""

import argparse
import time
from collections.abc import Callable

from harness import Line, machine, table
from orbitmq.wire.bodies.heartbeat import HeartbeatData
from orbitmq.wire.bodies.route import BrokerData, QueueData, TopicRoute
from orbitmq.wire.bodies.topic_config import Registration, TopicConfig, TopicTable
from orbitmq.wire.command import Command, Encoding
from orbitmq.wire.frame import FrameDecoder, encode_command
from orbitmq.wire.headers.pull import PullHeader

TIMES = 5
FRAMES_IN_ONE_READ = 16
TOPICS = 10_000
SEND_CODE = 310


def recorded(name: str, code: int, having: bytes = b"") -> Command:
    """Return the first recorded request of this code whose body has this text."""
    from golden_frames import good_frames  # harness knows where that is

    found = (frame.command for frame in good_frames(name))
    return next(c for c in found if c.code == code and not c.is_response and having in c.body)


def microseconds(work: Callable[[], object], rounds: int) -> float:
    """Return the processor time of one call, the best of a few runs: the others met something else."""
    best = float("inf")
    for _ in range(TIMES):
        start = time.process_time()
        for _ in range(rounds):
            work()
        best = min(best, time.process_time() - start)
    return best / rounds * 1e6


def send_frame(encoding: Encoding) -> bytes:
    """Return a recorded send with a body of 1 KiB."""
    name = "java-json/producer" if encoding is Encoding.JSON else "java-binary/producer"
    command = recorded(name, SEND_CODE)
    command.body = bytes(1024)
    return encode_command(command)


def bench_sends(rounds: int) -> list[Line]:
    lines = []
    for encoding in Encoding:
        raw = send_frame(encoding)
        decoder = FrameDecoder()
        many = raw * FRAMES_IN_ONE_READ
        (one,) = decoder.receive(raw)
        assert decoder.receive(many) == [one] * FRAMES_IN_ONE_READ
        assert len(one.body) == 1024

        name = f"decode a send, {encoding.name.lower()} header"
        goal = 2.5 if encoding is Encoding.JSON else None
        cost = microseconds(lambda d=decoder, m=many: d.receive(m), max(1, rounds // 16))
        lines.append(_line(f"{name}, 16 in one read", cost / FRAMES_IN_ONE_READ, goal))
        cost = microseconds(lambda d=decoder, r=raw: d.receive(r), rounds)
        lines.append(_line(f"{name}, alone", cost))
    return lines


def bench_answers(rounds: int) -> list[Line]:
    fields = {
        "msgId": "7F00000200002C2F0000000000000F1C",
        "queueId": "3",
        "queueOffset": "123456",
        "transactionId": "0A4D00057DFA30946E094C3260390000",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
    }
    lines = []
    for encoding in Encoding:
        request = Command(SEND_CODE, opaque=7, encoding=encoding)
        answer = request.answer(fields=fields)
        assert FrameDecoder().receive(encode_command(answer)) == [answer]
        cost = microseconds(lambda r=request: encode_command(r.answer(fields=fields)), rounds)
        goal = 1.5 if encoding is Encoding.JSON else None
        lines.append(
            _line(f"make and encode an answer, {encoding.name.lower()} header", cost, goal)
        )
    return lines


def bench_typed(rounds: int) -> list[Line]:
    pull = recorded("java-json/push-consumer", 11)
    assert PullHeader.read(pull.fields).queue_id >= 0
    beat = recorded("java-json/push-consumer", 34, b'"consumerDataSet":[{').body
    assert HeartbeatData.decode(beat).consumer_data_set
    route = TopicRoute(
        broker_datas=[
            BrokerData(broker_name=f"b{i}", cluster="c", broker_addrs={0: "a:1"}) for i in range(3)
        ],
        queue_datas=[
            QueueData(broker_name=f"b{i}", read_queue_nums=8, write_queue_nums=8, perm=6)
            for i in range(3)
        ],
    )
    text = route.encode(quote_keys=True)
    assert TopicRoute.decode(text) == route
    return [
        _line("read a pull header", microseconds(lambda: PullHeader.read(pull.fields), rounds)),
        _line("decode a heartbeat", microseconds(lambda: HeartbeatData.decode(beat), rounds)),
        _line("encode a route of 3 brokers", microseconds(route.encode, rounds)),
        _line("decode a route of 3 brokers", microseconds(lambda: TopicRoute.decode(text), rounds)),
    ]


def bench_registration(topics: int, rounds: int) -> list[Line]:
    configs = {f"Topic{i:05d}": TopicConfig(topic_name=f"Topic{i:05d}") for i in range(topics)}
    told = Registration(topic_config_serialize_wrapper=TopicTable(topic_config_table=configs))
    text = told.encode()
    assert Registration.decode(text) == told
    return [
        _line(f"encode a registration of {topics} topics", microseconds(told.encode, rounds)),
        _line(
            f"decode a registration of {topics} topics",
            microseconds(lambda: Registration.decode(text), rounds),
        ),
    ]


def _line(what: str, cost: float, goal: float | None = None) -> Line:
    return Line(what, cost, unit="us", goal=goal, more_is_better=False, goal_unit="us")


def run(rounds: int, topics: int) -> list[Line]:
    return [
        *bench_sends(rounds),
        *bench_answers(rounds),
        *bench_typed(rounds),
        *bench_registration(topics, max(1, rounds // 4000)),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=20_000)
    parser.add_argument("--topics", type=int, default=TOPICS)
    chosen = parser.parse_args()
    print(machine())
    print(table(run(chosen.rounds, chosen.topics)))


if __name__ == "__main__":
    main()
