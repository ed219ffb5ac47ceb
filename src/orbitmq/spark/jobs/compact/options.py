"""What a compaction is asked for."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from orbitmq.errors import ConfigError
from orbitmq.spark.jobs.export.lake_rows import MESSAGES
from orbitmq.spark.jobs.export.options import names_of
from orbitmq.units import MiB

TARGET_BYTES: Final = 128 * MiB
"""Of a file; smaller than half of it is small."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactOptions:
    """Which files are rewritten, and in which order of rows. Immutable."""

    topics: tuple[str, ...] = ()  # all
    cluster_by: tuple[str, ...] = ()  # columns; none: rows stay in the order of the log
    target_bytes: int = TARGET_BYTES
    exclusive: bool = False  # nobody reads directories of Parquet files meanwhile
    dry_run: bool = False

    @classmethod
    def of(
        cls,
        *,
        topics: Sequence[str] = (),
        cluster_by: Sequence[str] = (),
        target_bytes: int = TARGET_BYTES,
        exclusive: bool = False,
        dry_run: bool = False,
    ) -> "CompactOptions":
        """Return the options. ConfigError names the one that cannot work."""
        if target_bytes < 1:
            raise ConfigError("target-bytes", target_bytes, "must be 1 or more")
        columns = names_of(cluster_by, "column")
        for column in columns:
            _require_order(column)
        return cls(
            topics=names_of(topics),
            cluster_by=columns,
            target_bytes=target_bytes,
            exclusive=exclusive,
            dry_run=dry_run,
        )


def _require_order(column: str) -> None:
    """Raise ConfigError for a column whose values have no order."""
    ordered = [one.name for one in MESSAGES if _has_order(one.type)]
    if column not in ordered:
        raise ConfigError("cluster-by", column, f"must be of {', '.join(ordered)}")


def _has_order(kind: pa.DataType) -> bool:
    simple = kind.value_type if pa.types.is_list(kind) else kind
    return not (pa.types.is_nested(simple) or pa.types.is_binary(simple))
