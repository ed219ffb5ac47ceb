"""Frames of sends, drawn by Hypothesis: most are ordinary, all others odd in one way."""

import json
import struct
from collections.abc import Sequence
from typing import TypeVar

from hypothesis import strategies as st

from message_replay import send_command
from orbitmq.format.client_batch import ClientMessage, encode_client_batch
from orbitmq.wire.command import Command, Encoding
from orbitmq.wire.frame import encode_command
from orbitmq.wire.headers.send import LETTERS

NAMES = {letter: name for name, letter in LETTERS.items()}
NEW = "New"
KEY = "UNIQ_KEY\x01K1\x02"
NOW_MS = 1_700_000_000_000  # of the clock that brokers in tests have
SOON_MS = NOW_MS + 12_345

frame = encode_command


def batch(*bodies: bytes, properties: bytes = b"KEYS\x01k\x02") -> bytes:
    return encode_client_batch(
        ClientMessage(body, properties, flag) for flag, body in enumerate(bodies)
    )


T = TypeVar("T")
ACTED_ON = ["WAIT", "UNIQ_KEY", "DELAY", "TIMER_DELIVER_MS", "INNER_NUM", "POP_CK", "TRAN_MSG"]
SET = ["MSG_REGION", "TRACE_ON", "CLUSTER"]
PLAIN_PIECES = ["", "KEYS\x01a b\x02", "TAGS\x01T\x02", "A_B\x01C_D\x02", "WAIT\x01true\x02"]
PLAIN_PIECES += ["XWAIT\x01no\x02", "DELAYED\x011\x02", "N\x01" + "x" * 600 + "\x02"]
TIMES = [
    "TIMER_DELAY_MS\x015000\x02",
    "TIMER_DELAY_SEC\x017\x02",
    f"TIMER_DELIVER_MS\x01{SOON_MS}\x02",
]
STRANGE_TIMES = ["TIMER_DELAY_MS\x01000005000\x02", "TIMER_DELAY_SEC\x01999999999999999\x02"]
STRANGE_TIMES += ["TIMER_DELAY_MS\x01-5\x02", "TIMER_DELAY_MS\x01+5\x02", "TIMER_DELAY_MS\x010\x02"]
STRANGE_TIMES += [
    "TIMER_DELAY_SEC\x017x\x02",
    "TIMER_DELAY_MS\x01\x02",
    f"TIMER_DELIVER_MS\x01{NOW_MS}\x02",
]
STRANGE_TIMES += ["TIMER_DELAY_MS\x012\x02REAL_TOPIC\x01X\x02", f"TIMER_DELAY_MS\x01{10**15}\x02"]
STRANGE_TIMES += ["TIMER_DELAY_SEC\x013\x02REAL_QID\x013\x02", "TIMER_OUT_MS\x013\x02" + TIMES[0]]
STRANGE_TIMES += [
    TIMES[0] * 2,
    TIMES[0] + TIMES[1],
    TIMES[0] + "TIMER_DEL_UNIQKEY\x01Orders+K2\x02",
]
STRANGE_TIMES += [TIMES[1] + "DELAY\x013\x02", TIMES[1] + "INNER_NUM\x013\x02", "TIMER_X\x013\x02"]
STRANGE_TIMES += [TIMES[1] + "N\x01%s\x02" % ("x" * (32_767 - size)) for size in range(90, 300, 7)]
ODD_PIECES = ["\x02", "\x01\x02", "A\x02", "A\x01", "X", "\x00", "\ud800\x01?\x02", "A\x01\x01\x02"]
NAMES_DRAWN = ["KEYS", "TAGS", "A", "Ü", "", "XDELAY", "WAITS", *SET, *ACTED_ON]
VALUES = ["1", "true", "a b", "ABC123", "", "Käse", '"', "a\x01b", "false"]
BODIES = [b"hello", b"", b"x" * 300, bytes(range(256))]
OWN = [b"KEYS\x01k\x02", b"", b"TAGS\x01T", b"A\x01\x00", b"A\x01\xff", b"A\x01a\x02A\x01\x02"]
WORDS = [
    "7",
    "-1",
    "2147483648",
    "08",
    "+7",
    " 7",
    "1_0",
    "٣",
    "",
    "x",
    "true",
    "TRUE",
    "false",
    "1",
]


class Choices:
    """Drawn bytes, used up choice by choice: zeros are the plainest send."""

    def __init__(self, drawn: bytes) -> None:
        self._left = int.from_bytes(drawn)

    def of(self, choices: Sequence[T]) -> T:
        self._left, number = divmod(self._left, len(choices))
        return choices[number]

    def up_to(self, limit: int) -> int:
        return self.of(range(limit + 1))


def send_of(drawn: bytes) -> bytes:
    """Return the frame of a send, ordinary in most cases."""
    choices = Choices(drawn)
    is_batch = choices.of([False, False, True])
    command = send_command(
        choices.of(["Orders"] * 8 + ["Paid"] * 7 + [NEW]),
        drawn_batch(choices) if is_batch else choices.of(BODIES[:1] * 6 + BODIES),
        queue_id=choices.of([0, 1, 2, 3] * 5 + [4]),
        properties=KEY
        + choices.of(PLAIN_PIECES[:3])
        + choices.of(["", "", "", "", *TIMES])
        + choices.of(PLAIN_PIECES[3:]),
        code=choices.of([310, 310, 320]),
        flag=choices.of([0, 0, 0, 2]),
        m="true" if is_batch else "false",
        f=choices.of(["0", "0", "1", "256"]),
        h=choices.of(["0", "7"]),
        j=choices.of(["0", "3"]),
    )
    command.opaque = choices.of([7, 8, 9, 0, 1 << 20, 1 << 30, 2**31 - 1, -5])
    fields = command.fields or {}
    odd = choices.of(
        [""] * 12 + ["properties"] * 3 + ["time"] * 2 + ["field"] * 2 + ["form", "flags"]
    )
    if odd == "properties":
        fields["i"] = odd_properties(choices)
    elif odd == "time":
        fields["i"] = KEY + choices.of(STRANGE_TIMES) + choices.of(PLAIN_PIECES)
    elif odd == "field":
        change_field(fields, choices)
    elif odd == "flags":
        fields["f"] = choices.of(["2", "4", "8", "16", "64", "128", "192", "-1"])
    if choices.of([False, False, True]):
        command.code = 10
        command.fields = {NAMES.get(letter, letter): text for letter, text in fields.items()}
    return written(command, choices, odd=odd == "form")


def drawn_batch(choices: Choices) -> bytes:
    messages = [
        ClientMessage(choices.of(BODIES), choices.of(OWN), choices.of([0, 1, -1, 2**31 - 1]))
        for _ in range(1 + choices.up_to(2))
    ]
    return encode_client_batch(messages)[: choices.of([None, None, None, None, -1])]


def odd_properties(choices: Choices) -> str:
    pieces = [
        choices.of([f"{choices.of(NAMES_DRAWN)}\x01{choices.of(VALUES)}\x02", *ODD_PIECES[:3]])
        for _ in range(1 + choices.up_to(2))
    ]
    return choices.of([KEY, KEY, KEY, ""]) + "".join(pieces) + choices.of(["", "", *ODD_PIECES])


def change_field(fields: dict[str, str], choices: Choices) -> None:
    letter, text = choices.of("acdeghijklmnz"), choices.of([None, None, None, *WORDS])
    if text is None:
        fields.pop(letter, None)
    elif (letter, text) != ("e", "-1"):  # a queue that the broker chooses would be chance
        fields[letter] = text


def written(command: Command, choices: Choices, *, odd: bool) -> bytes:
    """Return the frame as clients of several languages write it."""
    members = {
        "code": command.code,
        "extFields": command.fields,
        "flag": command.flag,
        "language": "GO",
        "opaque": command.opaque,
        "version": 317,
    }
    separators = (",", ":")
    if odd:
        form = choices.of(["binary", "blanks", "fields first", "one more"])
        if form == "binary":
            command.encoding = Encoding.BINARY
            return frame(command)
        if form == "blanks":
            separators = (", ", ": ")
        elif form == "fields first":
            members = dict(sorted(members.items(), key=lambda item: item[0] != "extFields"))
        else:
            members["more"] = choices.of([1, "text", None])
    text = json.dumps(members, separators=separators).encode()
    return struct.pack(">ii", 4 + len(text) + len(command.body), len(text)) + text + command.body


sends = st.builds(send_of, st.binary(min_size=16, max_size=16))
