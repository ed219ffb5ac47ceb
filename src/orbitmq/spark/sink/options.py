"""Options of `df.write` and `df.writeStream` with format("orbitmq"): text in, checked values out.

option             | value               | meaning
namesrv            | host:port;host:port | the cluster that the messages go to
topic              | name                | of all rows; without it the column `topic` says it
group              | name                | the producer group
batchRows          | number              | messages of one request, at most
batchBytes         | number, 1m          | bytes of one request, at most; a larger message goes alone
maxMessageBytes    | number, 4m          | a larger body is refused before anything is sent
timeoutMs          | number              | how long one request may take
retryMs            | number              | how long a broker may be busy or away
stagingPath        | directory           | where rows wait until they are sent; all machines see it
writeId            | name                | makes a batch write repeatable: the same id is sent once
checkpointLocation | directory           | Spark's own; without `stagingPath` a stream's rows wait below it

Names are not case-sensitive. A name that is not in the table is refused.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from orbitmq.client.core.config import parse_addresses
from orbitmq.client.core.name_rules import require_group, require_topic
from orbitmq.errors import ConfigError
from orbitmq.spark.source.options import (
    option_field,
    parse_limit,
    parse_options,
    parse_path,
    parse_size,
    parse_text,
)
from orbitmq.units import MINUTE_MS, SECOND_MS, MiB

GROUP: Final = "orbitmq-sink"
BELOW_CHECKPOINT: Final = "orbitmq-sink"
_NAME: Final = re.compile(r"[\w.-]{1,100}", re.ASCII)


def _write_id(name: str, text: str, _now_ms: int) -> str:
    if not _NAME.fullmatch(text):
        raise ConfigError(name, text, "may have letters, digits and the characters . _ -")
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """The checked options of one write. Immutable; travels to tasks."""

    namesrv: str = option_field("namesrv", parse_text, "")
    topic: str | None = option_field("topic", parse_text)
    group: str = option_field("group", parse_text, GROUP)
    batch_rows: int = option_field("batchRows", parse_limit, 1000)
    batch_bytes: int = option_field("batchBytes", parse_size, 1 * MiB)
    message_bytes_max: int = option_field("maxMessageBytes", parse_size, 4 * MiB)
    timeout_ms: int = option_field("timeoutMs", parse_limit, 3 * SECOND_MS)
    retry_ms: int = option_field("retryMs", parse_limit, 1 * MINUTE_MS)
    staging_path: str = option_field("stagingPath", parse_path, "")
    write_id: str = option_field("writeId", _write_id, "")
    checkpoint: str = option_field("checkpointLocation", parse_path, "")

    @classmethod
    def parse(cls, options: Mapping[str, str], *, stream: bool) -> "WriteOptions":
        """Return the values of the options. ConfigError names the one that cannot work."""
        parsed = parse_options(cls, options)
        if not parsed.namesrv:
            rule = "name the cluster that the messages go to, for example 127.0.0.1:9876"
            raise ConfigError("namesrv", "", rule)
        parse_addresses(parsed.namesrv)
        require_group(parsed.group)
        if parsed.topic is not None:
            require_topic(parsed.topic)
        if parsed.batch_bytes > parsed.message_bytes_max:
            rule = f"must not be more than maxMessageBytes, {parsed.message_bytes_max}"
            raise ConfigError("batchBytes", parsed.batch_bytes, rule)
        parsed._check_staging(stream)
        return parsed

    def _check_staging(self, stream: bool) -> None:
        if stream and self.write_id:
            rule = "a stream is repeatable by its checkpoint; leave this option out"
            raise ConfigError("writeId", self.write_id, rule)
        if stream and not self.staging_path and not self.checkpoint:
            rule = "is needed where the query has no option checkpointLocation"
            raise ConfigError("stagingPath", "", rule)
        if self.write_id and not self.staging_path:
            rule = "is needed with writeId: it keeps what was sent already"
            raise ConfigError("stagingPath", "", rule)
        if "://" in self.staging(stream):
            rule = "must be a directory that all machines have mounted at this path"
            raise ConfigError("stagingPath", self.staging(stream), rule)

    def staging(self, stream: bool) -> str:
        """Return the directory in which rows wait; empty: a temporary one."""
        if self.staging_path or not stream:
            return self.staging_path
        return f"{self.checkpoint}/{BELOW_CHECKPOINT}" if self.checkpoint else ""
