"""How a read of the log is shared out among tasks."""

from pathlib import Path

import pytest

from orbitmq.files.layout import StoreLayout
from orbitmq.log_read import LogPlan
from orbitmq.spark.source.log_table import usual_split_bytes
from orbitmq.units import GiB, MiB


@pytest.mark.parametrize(
    ("log_bytes", "split_bytes"),
    [(0, 64 * MiB), (1 * GiB, 64 * MiB), (4 * GiB, 128 * MiB), (100 * GiB, 256 * MiB)],
)
def test_a_long_log_has_longer_splits(tmp_path: Path, log_bytes: int, split_bytes: int) -> None:
    plan = LogPlan(StoreLayout(tmp_path), (), 0, log_bytes)

    assert usual_split_bytes(plan) == split_bytes
    assert usual_split_bytes(plan, 0, 2 * GiB) <= 64 * MiB
    assert usual_split_bytes(plan, log_bytes - 4 * GiB) == min(split_bytes, 128 * MiB)
