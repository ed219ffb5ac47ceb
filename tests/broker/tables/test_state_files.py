"""State files: what is written when."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from async_run import run_async, until
from orbitmq.broker.tables.consumer_offsets import ConsumerOffsets
from orbitmq.broker.tables.state_files import StateFiles
from orbitmq.errors import StateFileError, StoreIOError
from orbitmq.files.state_file import read_state
from orbitmq.testing.fake_clock import FakeClock


def offsets_in(path: Path) -> Any:
    return read_state(path / "consumerOffset.json").get("offsetTable")


def test_a_table_is_written_only_when_it_changed(tmp_path: Path) -> None:
    async def main() -> None:
        files, table = StateFiles(tmp_path), ConsumerOffsets(FakeClock())
        files.add("consumerOffset.json", table)
        await files.save()
        assert offsets_in(tmp_path) == {}  # the first time, so that there is a file

        table.commit("G", "T", 0, 5)
        await files.save()
        assert offsets_in(tmp_path) == {"T@G": {"0": 5}}
        written = (tmp_path / "consumerOffset.json").stat().st_mtime_ns
        await files.save()
        assert (tmp_path / "consumerOffset.json").stat().st_mtime_ns == written
        await files.close()

    run_async(main)


def test_what_was_saved_is_there_again(tmp_path: Path) -> None:
    async def main() -> None:
        files, table = StateFiles(tmp_path), ConsumerOffsets(FakeClock())
        files.add("consumerOffset.json", table)
        table.commit("G", "T", 0, 5)
        await files.close()

        again, second = StateFiles(tmp_path), ConsumerOffsets(FakeClock())
        again.add("consumerOffset.json", second)
        assert second.get("G", "T", 0) == 5
        await again.abandon()

    run_async(main)


def test_tables_that_are_saved_at_once_are_written_after_each_change(tmp_path: Path) -> None:
    async def main() -> None:
        files, now, later = StateFiles(tmp_path), *(ConsumerOffsets(FakeClock()) for _ in "ab")
        files.add("consumerOffset.json", now, at_once=True)
        files.add("later.json", later)
        for offset in range(100):
            now.commit("G", "T", 0, offset)
            later.commit("G", "T", 0, offset)
            files.changed()

        await until(lambda: offsets_in(tmp_path) == {"T@G": {"0": 99}})

        assert not (tmp_path / "later.json").exists()
        await files.close()
        assert (tmp_path / "later.json").exists()

    run_async(main)


def test_a_failed_write_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **given: object) -> None:
        raise StoreIOError(tmp_path, "write", OSError(5, "Input/output error"), "Look.")

    async def main() -> None:
        files, table = StateFiles(tmp_path), ConsumerOffsets(FakeClock())
        files.add("consumerOffset.json", table, at_once=True)
        table.commit("G", "T", 0, 5)
        with monkeypatch.context() as broken:
            broken.setattr("orbitmq.broker.tables.state_files.write_state", refuse)
            await files.save()
            files.changed()
            assert files._pending is not None
            await files._pending
            assert files.failure is not None
        await files.save()
        assert files.failure is None
        assert offsets_in(tmp_path) == {"T@G": {"0": 5}}
        await files.close()

    run_async(main)


def test_an_unreadable_file_is_not_passed_over(tmp_path: Path) -> None:
    (tmp_path / "consumerOffset.json").write_text("{")
    with pytest.raises(StateFileError):
        StateFiles(tmp_path).add("consumerOffset.json", ConsumerOffsets(FakeClock()))


def test_who_waits_hears_when_a_change_is_on_disk(tmp_path: Path) -> None:
    async def main() -> None:
        files, table = StateFiles(tmp_path), ConsumerOffsets(FakeClock())
        files.add("consumerOffset.json", table, at_once=True)
        heard: list[int] = []
        for offset in range(1, 20):
            table.commit("G", "T", 0, offset)
            files.when_saved(lambda offset=offset: heard.append(offset))  # type: ignore[misc]
            await asyncio.sleep(0.001)  # sleep: some are told while others still come
            saved = (offsets_in(tmp_path) or {}).get("T@G", {"0": 0})["0"]
            assert all(one <= saved for one in heard)

        await until(lambda: len(heard) == 19)

        assert heard == list(range(1, 20))
        files.when_saved(lambda: heard.append(0))
        assert heard[-1] == 0  # nothing to wait for
        await files.close()

    run_async(main)
