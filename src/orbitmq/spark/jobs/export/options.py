"""What an export is asked for, checked before Spark starts."""

import importlib.util
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from orbitmq.errors import ConfigError, PipelineError
from orbitmq.spark.jobs.export.values import OTHERS, VARIANT, Fields, read_schema, spark_type
from orbitmq.spark.remote.address import Address, is_remote
from orbitmq.spark.source.options import OFFSET_MAX, BadRecords, parse_time

_PACKAGES: Final = {"delta": "deltalake", "iceberg": "pyiceberg"}
_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)


class Format(StrEnum):
    """What the tables of a lake are."""

    PARQUET = "parquet"
    DELTA = "delta"
    ICEBERG = "iceberg"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions:
    """Which messages go where, in which form. Immutable."""

    to: Path | Address
    format: Format = Format.PARQUET
    topics: tuple[str, ...] = ()  # all, but for those that brokers made for themselves
    since_ms: int | None = None
    from_offset: int | None = None
    bad_records: BadRecords = BadRecords.FAIL
    dry_run: bool = False
    decode: bool = False  # bodies into columns
    schema: Mapping[str, Fields] | None = None  # None: as the messages tell
    catalog: str = ""  # of Iceberg tables at a distance: the URL of a database

    @classmethod
    def of(
        cls,
        to: str | Path,
        *,
        format: str = "parquet",  # noqa: A002  Spark's word for it
        topics: Sequence[str] = (),
        since: str | None = None,
        from_offset: int | None = None,
        bad_records: str = "fail",
        dry_run: bool = False,
        body: str = "binary",
        schema: str | Path | Mapping[str, Fields] | None = None,
        catalog: str | None = None,
    ) -> "ExportOptions":
        """Return the options. ConfigError names the one that cannot work."""
        if since is not None and from_offset is not None:
            raise ConfigError("since", since, "give a time or an offset (from-offset), not both")
        if from_offset is not None and not 0 <= from_offset <= OFFSET_MAX:
            raise ConfigError("from-offset", from_offset, "must be 0 or more")
        place = Address.of(to, "to") if is_remote(to) else lake_directory("to", to)
        decode, fields = _decode(body, schema), _schema(body, schema)
        return cls(
            to=place,
            format=_format(format, fields),
            topics=names_of(topics),
            since_ms=None if since is None else parse_time("since", since, _now_ms()),
            from_offset=from_offset,
            bad_records=fail_or_skip(bad_records),
            dry_run=dry_run,
            decode=decode,
            schema=fields,
            catalog=catalog_of(place, format, catalog),
        )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def catalog_of(place: Path | Address, format_: str, given: str | None) -> str:
    """Return the catalog of a lake; a directory has its own. ConfigError: one is missing, or not needed."""
    needed = isinstance(place, Address) and format_.lower() == Format.ICEBERG
    if given and not needed:
        rule = "is for Iceberg tables at s3://; a lake in a directory has its catalog beside it"
        raise ConfigError("catalog", _without_password(given), rule)
    if needed and not given:
        rule = (
            "Iceberg tables at s3:// need a database for their catalog: --catalog"
            " sqlite:////var/lib/lake.db, or the URL of another one"
        )
        raise ConfigError("catalog", "", rule)
    return given or ""


def _without_password(url: str) -> str:
    return re.sub(r"//[^/@]*@", "//...@", url)


def lake_place(text: str | Path) -> Path | Address:
    """Return where a lake lies that is there already."""
    return Address.of(text, "lake") if is_remote(text) else Path(text).absolute()


def lake_directory(name: str, text: str | Path) -> Path:
    """Return where a lake lies. ConfigError: the option of this name says nothing that can be."""
    if url := _URL.fullmatch(str(text)):
        if url[1].lower() != "file":
            rule = "must be a directory that all machines see, as /lake, or s3://bucket/lake"
            raise ConfigError(name, str(text), rule)
        text = url[2]
    if not str(text).strip():
        raise ConfigError(name, str(text), "names no directory")
    path = Path(text).absolute()
    if path.exists() and not path.is_dir():
        raise ConfigError(name, str(path), "is a file, not a directory")
    return path


def _format(text: str, fields: Mapping[str, Fields] | None) -> Format:
    try:
        found = Format(text.lower())
    except ValueError:
        raise ConfigError("format", text, "must be parquet, delta or iceberg") from None
    package = _PACKAGES.get(found)
    if package is not None and importlib.util.find_spec(package) is None:
        rule = f"the package {package} is missing; pip install 'orbitmq[lake]'"
        raise ConfigError("format", text, rule)
    if found is Format.ICEBERG and VARIANT in (fields or {}).values():
        rule = (
            "pyiceberg writes no columns of this type: use --format parquet or delta, or give the"
            " fields (--body json), or leave the JSON as text in `body` (--body binary)"
        )
        raise ConfigError("body", VARIANT, rule)
    return found


def names_of(names: Sequence[str], option: str = "topic") -> tuple[str, ...]:
    """Return names that may stand in one text, with commas, each once."""
    parts = [part.strip() for text in names for part in text.split(",")]
    found = tuple(dict.fromkeys(part for part in parts if part))
    if names and not found:
        raise ConfigError(option, ",".join(names), f"names no {option}")
    return found


def _decode(body: str, schema: object) -> bool:
    form = body.lower()
    if form not in ("binary", "json", VARIANT):
        raise ConfigError("body", body, "must be binary, json or variant")
    if form == "binary" and schema is not None:
        raise ConfigError("schema", schema, "is for bodies that are decoded: body=json")
    if form == VARIANT and schema is not None:
        rule = 'is for body=json; there "variant" can stand for the fields of a topic'
        raise ConfigError("schema", schema, rule)
    return form != "binary"


def _schema(
    body: str, given: str | Path | Mapping[str, Fields] | None
) -> Mapping[str, Fields] | None:
    if body.lower() == VARIANT:
        return {OTHERS: VARIANT}
    if isinstance(given, str | Path):
        return read_schema(Path(given))
    for fields in (given or {}).values():
        spark_type(fields)
    return given


def fail_or_skip(text: str) -> BadRecords:
    """Return what becomes of a damaged place, where no row can show it."""
    if text.lower() not in ("fail", "skip"):
        raise ConfigError("bad-records", text, "must be fail or skip")
    return BadRecords(text.lower())


def only_by_engine(table: object, why: str) -> PipelineError:
    """Return the error for a table whose files do not tell its rows."""
    return PipelineError(f"{table} {why}", "Read it with the engine that changed it.")
