"""`orbitmq spark rebuild` with a real Spark: files equal to those of a Java broker, byte for byte."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from command import run
from golden_stores import STORES, rows, settings, unpack
from orbitmq.spark.jobs.rebuild.job import RebuildOptions, rebuild
from orbitmq.store.config import StoreConfig
from orbitmq.store.store import MessageStore
from orbitmq.store.verify.check import check_store
from spark.rebuild_world import (
    SMALL_SETTINGS,
    copy_of,
    files_below,
    leftovers,
    made_files,
    offline_files,
    write_our_store,
)

pytestmark = pytest.mark.spark


@pytest.mark.feature("P5")
@pytest.mark.parametrize("name", STORES)
def test_rebuilt_files_equal_those_of_the_java_broker(
    name: str, spark: SparkSession, tmp_path: Path
) -> None:
    root = unpack(name, tmp_path)
    # Java keeps units of expired records, and filter bitmaps that no log holds: there ours decide.
    if name in ("cleaned", "ext"):
        expected = offline_files(root, settings(name), tmp_path / "offline")
    else:
        expected = made_files(root)

    report = rebuild(spark, root, settings(name), RebuildOptions(split_bytes=100_003))

    assert made_files(root) == expected
    assert report.records == len(rows(name, "record"))
    assert not leftovers(root)
    assert check_store(root, settings(name)).findings == ()
    config = StoreConfig.from_settings(root, settings(name))
    with MessageStore.open(config, background=False) as store:
        assert not store.recovery_report.adopted


@pytest.mark.feature("P5", "P15")
def test_a_store_of_ours_gets_the_files_of_live_dispatch(
    spark: SparkSession, tmp_path: Path
) -> None:
    root = write_our_store(tmp_path / "store", count=2_000).root
    before = made_files(root)

    report = rebuild(spark, root, SMALL_SETTINGS, RebuildOptions(split_bytes=200_003))

    assert made_files(root) == before
    assert report.index_files > 10
    assert report.shuffle_bytes < 64 * report.records
    assert not leftovers(root)


@pytest.mark.feature("P16")
def test_what_cannot_be_is_said_in_one_sentence_before_spark_starts(tmp_path: Path) -> None:
    root = unpack("timer", tmp_path)
    before = files_below(root)
    cases = (
        ((tmp_path / "nowhere",), "is no message store"),
        ((root, "--topics", "T", "--only", "index"), "--topics"),
        ((root, "--topics", " , "), "names no topic"),
    )

    for arguments, words in cases:
        done = run("spark", "rebuild", *arguments)
        assert done.returncode != 0
        assert words in done.stderr
        assert len(done.stderr.splitlines()) == 1

    assert files_below(root) == before


@pytest.mark.feature("P5", "P16")
def test_the_command_prints_its_result_and_how_far_it_is(tmp_path: Path) -> None:
    root = unpack("timer", tmp_path)
    expected = made_files(root)
    other = tmp_path / "other"
    conf = Path(__file__).parents[1] / "golden" / "timer.conf"

    done = run(
        *("spark", "rebuild", root, "--to", other, "--config", conf),
        *("--master", "local[2]", "--conf", "spark.driver.memory=512m", "--output", "json"),
    )

    assert done.returncode == 0, done.stderr
    assert '"records":350' in done.stdout
    assert len(done.stdout.splitlines()) == 1
    assert '"stage":"build"' in done.stderr
    assert made_files(other) == expected
    assert not leftovers(other)


@pytest.mark.compat
@pytest.mark.feature("P5", "X2.ours-to-java")
def test_the_java_store_opens_what_spark_rebuilt(spark: SparkSession, tmp_path: Path) -> None:
    from compat.java_store import read_store, why_not
    from compat.our_store import (
        Written,
        append_every_kind,
        require_consistent,
        require_everything_written,
        small_config,
        write_topics,
    )
    from crash.checker import broker_settings

    if why_not() is not None:
        pytest.skip(str(why_not()))
    config, written = small_config(tmp_path / "store"), Written()
    write_topics(config.root)
    with MessageStore.open(config) as store:
        append_every_kind(store, config, 600, 5, written)
        store.wait_dispatched(timeout=30)
    root = copy_of(config.root, tmp_path / "copy")

    rebuild(spark, root, SMALL_SETTINGS, RebuildOptions(split_bytes=100_003))

    view = read_store(root, broker_settings(config), shutdown=False)
    require_everything_written(view, written)
    require_consistent(view)
