"""What a query is asked for, checked before Spark starts."""

import json
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from orbitmq.errors import ConfigError, Sql92TranslationError
from orbitmq.spark.jobs.export.options import lake_directory
from orbitmq.spark.remote.address import Address, is_remote
from orbitmq.spark.source.options import BadRecords, ReadOptions
from orbitmq.spark.source.sql92_column import spark_sql

_LISTS: Final = ("topics", "keys", "ids", "tags")
_QUERY: Final = re.compile(r"\s*(?:\(|SELECT\b|WITH\b|FROM\b|VALUES\b|TABLE\b)", re.IGNORECASE)
_WRONG: Final = (
    "missing ), unterminated subpattern",
    "unbalanced parenthesis",
    "unterminated character set",
    "nothing to repeat",
    "bad escape (end of pattern)",
)
"""What is wrong in Java's expressions too; all else Java itself is asked about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryOptions:
    """Which messages are wanted, and from where. Immutable."""

    lake: Path | Address | None
    reads: ReadOptions | None  # of the log, or of the cluster; None: the lake alone
    wanted: ReadOptions  # what selects; its path means nothing
    body: str = ""
    sql: str = ""
    catalog: str = ""  # of Iceberg tables at a distance: the URL of a database

    @classmethod
    def of(
        cls,
        *,
        store: str | Path = "",
        namesrv: str = "",
        lake: str | Path = "",
        config: str | Path = "",
        topics: Sequence[str] = (),
        keys: Sequence[str] = (),
        ids: Sequence[str] = (),
        tags: Sequence[str] = (),
        sql92: str = "",
        body: str = "",
        since: str = "",
        until: str = "",
        bad_records: str = "fail",
        sql: str = "",
        catalog: str = "",
    ) -> "QueryOptions":
        """Return the options. ConfigError names the one that cannot work."""
        if store and namesrv:
            rule = "give a store directory or the name servers of a cluster (namesrv), not both"
            raise ConfigError("from", str(store), rule)
        if not (store or namesrv or lake):
            rule = "say where to look: a store directory, or name servers (namesrv), or a lake"
            raise ConfigError("from", "", rule)
        _require_keys(keys)
        lists = dict(zip(_LISTS, (topics, keys, ids, tags), strict=True))
        given = {name: json.dumps(list(values)) for name, values in lists.items() if values}
        texts = {"sql92": sql92, "startTime": since, "endTime": until, "badRecords": bad_records}
        given |= {name: text for name, text in texts.items() if text}
        wanted = ReadOptions.parse(given | {"path": str(store or lake or "/")})
        if wanted.bad_records is BadRecords.KEEP:
            raise ConfigError("bad-records", bad_records, "must be fail or skip")
        if sql92 and lake:
            _require_condition(sql92)
        return cls(
            lake=_lake(lake) if lake else None,
            reads=_reads(wanted, store, namesrv, config),
            wanted=wanted,
            body=_pattern(body),
            sql=_select(sql),
            catalog=catalog,
        )

    def reading(self, **more: str) -> dict[str, str]:
        """Return the options of the source; times are those of the lake's side, to the millisecond."""
        reads = self.reads
        assert reads is not None
        lists = {name: json.dumps(getattr(reads, name)) for name in _LISTS if getattr(reads, name)}
        numbers = {"startTime": reads.start_ms, "endTime": reads.end_ms}
        texts = {
            "path": reads.path,
            "namesrv": reads.namesrv,
            "config": reads.config,
            "sql92": reads.sql92,
            "badRecords": reads.bad_records.value,
        }
        texts |= {name: str(value) for name, value in numbers.items() if value is not None}
        return lists | {name: text for name, text in texts.items() if text} | more


def _lake(text: str | Path) -> Path | Address:
    return Address.of(text, "lake") if is_remote(text) else lake_directory("lake", text)


def _reads(
    wanted: ReadOptions, store: str | Path, namesrv: str, config: str | Path
) -> ReadOptions | None:
    if not store and not namesrv:
        return None
    if is_remote(store):
        path = Address.of(store).text
    else:
        if store and not Path(store).is_dir():
            raise ConfigError("from", str(store), "there is no such directory")
        path = str(Path(store).absolute()) if store else ""
    settings = str(Path(config).absolute()) if config else ""
    return replace(wanted, path=path, namesrv=namesrv, config=settings)


def _require_keys(keys: Sequence[str]) -> None:
    for key in keys:
        if " " in key.strip() or not key.strip():
            raise ConfigError("key", key, "a key has no spaces; several are given one by one")


def _require_condition(expression: str) -> None:
    try:
        spark_sql(expression)
    except Sql92TranslationError as error:
        raise ConfigError("sql92", expression, f"cannot be asked of a lake: {error}") from None


def _pattern(text: str) -> str:
    """Return the expression, unless it can be seen here that Java does not take it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Java's sets in sets are Python's doubtful cases
            re.compile(text)
    except re.error as error:
        if error.msg in _WRONG:
            raise ConfigError("body", text, f"is no regular expression: {error}") from None
    return text


def _select(text: str) -> str:
    found = text.strip().rstrip(";").rstrip()
    if text and not _QUERY.match(found):
        raise ConfigError(
            "sql", text, "must be a query, as SELECT topic, count(*) FROM messages ..."
        )
    return found
