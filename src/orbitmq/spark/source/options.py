"""Options of `spark.read.format("orbitmq")` and `readStream`: text in, checked values out.

Names are not case-sensitive, as everywhere in Spark. A name that is not in the table is refused.

option              | value                                | meaning
path                | directory                            | the store (what `load(...)` gives)
namesrv             | host:port;host:port                  | read through the brokers instead of the files
config              | path of a broker.conf                | sizes and paths that the files do not tell
topics              | a,b                                  | only these topics
tags                | a,b                                  | only these tags
keys                | a,b                                  | messages with one of these keys
ids                 | a,b                                  | messages with one of these ids, of either kind
sql92               | a > 3 AND b = 'x'                    | messages whose properties match the expression
startTime           | time                                 | stored then or later
endTime             | time                                 | stored before
startOffset         | number                               | log offset of the record, this or higher
endOffset           | number                               | log offset of the record, below this
queueId             | number                               | only this queue of each topic
startQueueOffset    | number                               | queue offset, this or higher
endQueueOffset      | number                               | queue offset, below this
includeBody         | true, false                          | false: `body` is null and no body is read
bodyAs              | binary, text, json                   | text, json: `body` is a string; one that cannot
                    |                                      |   be is null, and `error` says why
decompress          | true, false                          | false: `body` as stored; sys_flag tells how
badRecords          | fail, skip, keep                     | what to do where the log holds no valid record
checkCrc            | true, false                          | compare bodies with their checksums; without this
                    |                                      |   option they are where `body` is read
splitBytes          | number, 64m to 256m by what is read  | about how much of a segment a task reads
rowPerKey           | true, false                          | a row for each key, in a column `key`
pushdown            | true, false                          | false: leave all filters to Spark
reader              | auto, rows                           | rows: not by columns, though it could be
metricsPath         | directory                            | tasks write there what they read (`metrics`)
without             | JSON                                 | what is held elsewhere and left out (`held`)
startingOffsets     | earliest, latest, timestamp:<time>,  | where a new stream starts
                    |   JSON {topic: {broker: {queue: n}}} |
maxRowsPerTrigger   | number                               | limit of one batch of a stream
maxBytesPerTrigger  | number, 64m                          | the same by bytes of the log
group               | name                                 | consumer group whose offsets a stream commits

A time is epoch milliseconds, `now`, `now-90s`, `now-15m`, `now-1h`, `now-7d`, or ISO (2026-11-15T20:31,
in UTC unless it names a zone). Lists are separated by commas; blanks around their parts do not count. A text
with a comma can be given in a list of JSON: ["a,b"].
"""

import difflib
import re
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import Field, dataclass, field, fields
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import msgspec

from orbitmq.errors import ConfigError, FormatError, Sql92SyntaxError
from orbitmq.format.message_id import decode_offset_id
from orbitmq.settings import read_settings
from orbitmq.spark.shared_paths import absolute_settings, absolute_text
from orbitmq.spark.source.held import Held
from orbitmq.units import HOUR_MS, MINUTE_MS, SECOND_MS, GiB, KiB, MiB

T = TypeVar("T")

OFFSET_MAX: Final = 2**63 - 1
_NUMBER_BYTES_MAX: Final = 19  # digits of OFFSET_MAX
_SIZE: Final = re.compile(r"(\d{1,19})\s*([kmg]?)b?", re.IGNORECASE)
_SIZE_UNITS: Final = {"": 1, "k": KiB, "m": MiB, "g": GiB}
_BEFORE_NOW: Final = re.compile(r"now(?:-(\d{1,9})([smhd]))?")
_TIME_UNITS: Final = {"s": SECOND_MS, "m": MINUTE_MS, "h": HOUR_MS, "d": 24 * HOUR_MS}
TIME_RULE: Final = (
    "write a time as epoch milliseconds, now, now-90s, now-15m, now-1h, now-7d or 2026-11-15T20:31"
)


class BadRecords(StrEnum):
    """What a read does where the log holds no valid record."""

    FAIL = "fail"
    SKIP = "skip"
    KEEP = "keep"


class BodyAs(StrEnum):
    """What the column `body` holds: bytes, any text, text that is JSON, or a variant made of JSON."""

    BINARY = "binary"
    TEXT = "text"
    JSON = "json"
    VARIANT = "variant"


def _text(_name: str, text: str, _now_ms: int) -> str:
    return text


def _path(_name: str, text: str, _now_ms: int) -> str:
    return absolute_text(text)


def _list(name: str, text: str, _now_ms: int) -> tuple[str, ...]:
    parts = _json_list(text)
    if parts is None:
        parts = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not parts:
        raise ConfigError(name, text, "names nothing; leave the option out to select everything")
    return parts


def _json_list(text: str) -> tuple[str, ...] | None:
    if not text.startswith("["):
        return None
    with suppress(msgspec.MsgspecError):
        return tuple(dict.fromkeys(msgspec.json.decode(text, type=list[str])))
    return None


def _sql92(name: str, text: str, _now_ms: int) -> str:
    from orbitmq.sql92.grammar import parse  # the parser is loaded when an expression is there

    try:
        parse(text)
    except Sql92SyntaxError as error:
        raise ConfigError(name, text, str(error)) from None
    return text


def _flag(name: str, text: str, _now_ms: int) -> bool:
    if text.lower() not in ("true", "false"):
        raise ConfigError(name, text, "must be true or false")
    return text.lower() == "true"


def _number(name: str, text: str, _now_ms: int) -> int:
    plain = text.isascii() and text.isdecimal() and len(text) <= _NUMBER_BYTES_MAX
    if not plain or int(text) > OFFSET_MAX:
        raise ConfigError(name, text, "must be a whole number, 0 or more")
    return int(text)


def _limit(name: str, text: str, now_ms: int) -> int:
    number = _number(name, text, now_ms)
    if not number:
        raise ConfigError(name, text, "must be 1 or more")
    return number


def _size(name: str, text: str, _now_ms: int) -> int:
    match = _SIZE.fullmatch(text)
    size = int(match[1]) * _SIZE_UNITS[match[2].lower()] if match else 0
    if not 0 < size <= OFFSET_MAX:
        raise ConfigError(name, text, "must be a number of bytes, as 67108864 or 64m")
    return size


def _held(name: str, text: str, _now_ms: int) -> Held:
    try:
        return Held.from_text(text)
    except ValueError as error:
        raise ConfigError(name, text, f"is not what orbitmq.spark.query makes ({error})") from None


def _reader(name: str, text: str, _now_ms: int) -> str:
    if text.lower() not in ("auto", "rows"):
        raise ConfigError(name, text, "must be auto or rows")
    return text.lower()


def _bad_records(name: str, text: str, _now_ms: int) -> BadRecords:
    try:
        return BadRecords(text.lower())
    except ValueError:
        raise ConfigError(name, text, "must be fail, skip or keep") from None


def _body_as(name: str, text: str, _now_ms: int) -> BodyAs:
    try:
        return BodyAs(text.lower())
    except ValueError:
        raise ConfigError(name, text, "must be binary, text, json or variant") from None


def _time(name: str, text: str, now_ms: int) -> int:
    if text.isascii() and text.isdecimal() and len(text) <= _NUMBER_BYTES_MAX:
        return min(int(text), OFFSET_MAX)
    if before := _BEFORE_NOW.fullmatch(text):
        return now_ms - (int(before[1]) * _TIME_UNITS[before[2]] if before[1] else 0)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(name, text, TIME_RULE) from None
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return round(aware.timestamp() * 1000)


parse_time: Final = _time
"""(option, text, now_ms) -> epoch milliseconds; also for the time in `timestamp:<time>`."""


def _option(name: str, parse: Callable[[str, str, int], Any], default: Any = None) -> Any:
    """Return a field with the option that it comes from: its name, and (name, text, now_ms) -> value."""
    return field(default=default, metadata={"name": name, "parse": parse})


# What the options of a write (`orbitmq.spark.sink`) are made of too.
option_field: Final = _option
parse_text: Final = _text
parse_path: Final = _path
parse_limit: Final = _limit
parse_size: Final = _size


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """The checked options of one read. Immutable; travels to tasks."""

    path: str = _option("path", _path, "")
    namesrv: str = _option("namesrv", _text, "")
    config: str = _option("config", _path, "")
    topics: tuple[str, ...] = _option("topics", _list, ())
    tags: tuple[str, ...] = _option("tags", _list, ())
    keys: tuple[str, ...] = _option("keys", _list, ())
    ids: tuple[str, ...] = _option("ids", _list, ())
    sql92: str = _option("sql92", _sql92, "")
    start_ms: int | None = _option("startTime", _time)
    end_ms: int | None = _option("endTime", _time)
    start_offset: int | None = _option("startOffset", _number)
    end_offset: int | None = _option("endOffset", _number)
    queue_id: int | None = _option("queueId", _number)
    start_queue_offset: int | None = _option("startQueueOffset", _number)
    end_queue_offset: int | None = _option("endQueueOffset", _number)
    include_body: bool = _option("includeBody", _flag, True)
    body_as: BodyAs = _option("bodyAs", _body_as, BodyAs.BINARY)  # noqa: RUF009
    decompress: bool = _option("decompress", _flag, True)
    bad_records: BadRecords = _option("badRecords", _bad_records, BadRecords.FAIL)  # noqa: RUF009
    check_crc: bool | None = _option("checkCrc", _flag)  # None: where bodies are read
    split_bytes: int | None = _option("splitBytes", _size)  # None: by the length of what is read
    row_per_key: bool = _option("rowPerKey", _flag, False)
    pushdown: bool = _option("pushdown", _flag, True)
    reader: str = _option("reader", _reader, "auto")
    metrics_path: str = _option("metricsPath", _path, "")
    without: Held | None = _option("without", _held)  # noqa: RUF009
    starting_offsets: str = _option("startingOffsets", _text, "earliest")
    max_rows_per_trigger: int | None = _option("maxRowsPerTrigger", _limit)
    max_bytes_per_trigger: int | None = _option("maxBytesPerTrigger", _size)
    group: str = _option("group", _text, "")

    @classmethod
    def parse(cls, options: Mapping[str, str], *, now_ms: int | None = None) -> "ReadOptions":
        """Return the values of the options. ConfigError names the one that cannot work."""
        parsed = parse_options(cls, options, now_ms)
        parsed._check_together()
        return parsed

    def _check_together(self) -> None:
        if bool(self.path) == bool(self.namesrv):
            rule = "give a store directory (load(path)) or the option namesrv, one of them"
            raise ConfigError("path", self.path, rule)
        if self.reads_text and not self.decompress:
            rule = "packed bodies are no text; leave decompress=false out"
            raise ConfigError("bodyAs", self.body_as.value, rule)
        for name, start, end in (
            ("endTime", self.start_ms, self.end_ms),
            ("endOffset", self.start_offset, self.end_offset),
            ("endQueueOffset", self.start_queue_offset, self.end_queue_offset),
        ):
            if start is not None and end is not None and end < start:
                raise ConfigError(name, end, f"lies before the start, {start}")

    @property
    def store_path(self) -> Path:
        """The store directory."""
        return Path(self.path)

    @property
    def reads_text(self) -> bool:
        """Whether bodies are to be text: those that are not have no `body`, and words in `error`."""
        return self.body_as is not BodyAs.BINARY

    @property
    def index_words(self) -> set[str]:
        """What an index is asked for: ids in both cases of letters, or else keys."""
        return {form for word in self.ids for form in (word, word.upper())} or set(self.keys)

    @property
    def named_offsets(self) -> set[int]:
        """The log offsets that ids name; a producer's id, which may be any text, names none."""
        named = set()
        for message_id in self.ids:
            with suppress(FormatError):
                named.add(decode_offset_id(message_id)[1])
        return named

    @property
    def settings(self) -> Mapping[str, str] | None:
        """The broker's settings, if a file with them was named."""
        return absolute_settings(read_settings(Path(self.config))) if self.config else None


OPTION_NAMES: Final = tuple(option.metadata["name"] for option in fields(ReadOptions))


def parse_options(kind: type[T], options: Mapping[str, str], now_ms: int | None = None) -> T:
    """Return options of a kind whose fields were made by `option_field`; ConfigError: one cannot work."""
    now = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    known = {one.metadata["name"].lower(): one for one in fields(cast(Any, kind))}
    given: dict[str, Any] = {}
    for name, text in options.items():
        option = known.get(name.lower())
        if option is None:
            raise ConfigError(name, text, _unknown_rule(name, known))
        parse = option.metadata["parse"]
        given[option.name] = parse(option.metadata["name"], text.strip(), now)
    return kind(**given)


def _unknown_rule(name: str, known: Mapping[str, Field[Any]]) -> str:
    near = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.6)
    if near:
        return f"unknown option; did you mean {known[near[0]].metadata['name']}?"
    names = ", ".join(option.metadata["name"] for option in known.values())
    return f"unknown option; there are {names}"
