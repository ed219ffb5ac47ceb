"""State files: what a Java broker writes is read, what we write looks like it and survives damage."""

import errno
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from golden_stores import STORES, unpack
from orbitmq.errors import (
    NoPermissionError,
    NoSpaceError,
    StateFileError,
    StoreIOError,
    WrongFileError,
)
from orbitmq.files.disk import Disk
from orbitmq.files.replace import bak_path
from orbitmq.files.state_file import format_state, parse_state, read_state, write_state
from orbitmq.testing.fake_disk import FaultyDisk

COMPACT = ("transactionMetrics", "timermetrics")  # written on one line


def parse_by_hand(text: str) -> Any:
    """A second, independent reader: one character at a time, bare words become strings."""
    position = 0

    def value() -> Any:
        nonlocal position
        skip()
        start = text[position]
        if start in "{[":
            return table() if start == "{" else array()
        if start == '"':
            return string()
        word = re.compile(r"[-\w.+]+").match(text, position)
        assert word is not None
        position = word.end()
        return {"true": True, "false": False, "null": None}.get(word.group(), word.group())

    def skip() -> None:
        nonlocal position
        while text[position] in " \t\r\n":
            position += 1

    def string() -> str:
        nonlocal position
        result, end = json.decoder.scanstring(text, position + 1)
        position = end
        return str(result)

    def table() -> dict[str, Any]:
        nonlocal position
        result = {}
        position += 1
        skip()
        while text[position] != "}":
            position += text[position] == ","
            key = value()
            skip()
            assert text[position] == ":"
            position += 1
            result[key] = value()
            skip()
        position += 1
        return result

    def array() -> list[Any]:
        nonlocal position
        result = []
        position += 1
        skip()
        while text[position] != "]":
            position += text[position] == ","
            result.append(value())
            skip()
        position += 1
        return result

    return value()


def words(value: Any) -> Any:
    """Turn numbers into text, as `parse_by_hand` leaves them."""
    if isinstance(value, dict):
        return {key: words(item) for key, item in value.items()}
    if isinstance(value, list):
        return [words(item) for item in value]
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def json_files(root: Path) -> list[Path]:
    return [path for path in sorted((root / "config").iterdir()) if path.name != "timercheck"]


@pytest.mark.parametrize("name", STORES)
def test_every_state_file_of_a_real_broker_is_read_as_a_second_reader_reads_it(
    name: str, tmp_path: Path
) -> None:
    files = json_files(unpack(name, tmp_path))
    assert len(files) > 8

    for path in files:
        state = read_state(path)
        assert state
        assert words(state) == parse_by_hand(path.read_text(encoding="utf-8")), path


def test_consumer_offsets_with_unquoted_keys_are_read(tmp_path: Path) -> None:
    path = unpack("mixed", tmp_path) / "config" / "consumerOffset.json"
    assert "{0:295,1:254," in path.read_text(encoding="utf-8")

    offsets = read_state(path)["offsetTable"]

    assert offsets["GoldBB@Gold_cg2"] == {"0": 295, "1": 254, "2": 243, "3": 280}


@pytest.mark.parametrize("name", STORES)
def test_our_text_is_the_brokers_text_but_for_quoted_keys(name: str, tmp_path: Path) -> None:
    for path in json_files(unpack(name, tmp_path)):
        if path.name.removesuffix(".bak") in COMPACT:
            continue
        theirs = path.read_text(encoding="utf-8")

        ours = format_state(read_state(path))

        assert re.sub(r'([{,])"(\d+)":', r"\1\2:", ours) == theirs, path
        json.loads(ours)  # quoted keys: any parser reads it


def test_a_saved_state_is_read_back_and_the_one_before_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "config" / "consumerOffset.json"
    first = {"offsetTable": {"T@g": {0: 1, 1: 2}}}
    second = {"offsetTable": {"订单@g": {0: 5}}, "x": [1, "a", None, True, {"k": []}], "e": {}}

    write_state(Disk(), path, first)
    write_state(Disk(), path, second)

    assert read_state(path)["offsetTable"] == {"订单@g": {"0": 5}}
    assert read_state(bak_path(path)) == {"offsetTable": {"T@g": {"0": 1, "1": 2}}}
    assert "订单" in path.read_text(encoding="utf-8")
    assert sorted(entry.name for entry in path.parent.iterdir()) == [path.name, path.name + ".bak"]


@pytest.mark.parametrize(
    "broken",
    [
        b"{",
        b"[1]",
        b"\x00" * 50,
        b"\xff\xfe{}",
        b'{"a":1} x',
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"9" * 10_000,
        b'"' + b'\\"' * 300_000,
        b"{" + b"\t" * 300_000 + b"1",
        b"null",
    ],
    ids=lambda text: repr(text[:12]),
)
def test_a_broken_file_gives_way_to_its_bak_and_without_one_is_an_error(
    broken: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "topics.json"
    path.write_bytes(broken)

    with pytest.raises(StateFileError, match="not readable as JSON") as caught:
        read_state(path)
    assert caught.value.path == path
    assert "backup" in caught.value.next_step
    bak_path(path).write_bytes(broken)
    with pytest.raises(StateFileError):
        read_state(path)

    bak_path(path).write_text('{"a":1}', encoding="utf-8")
    assert read_state(path) == {"a": 1}
    assert "taken from topics.json.bak" in caplog.text


def test_a_missing_or_empty_file_gives_way_to_its_bak_and_without_one_is_empty(
    tmp_path: Path,
) -> None:
    path = tmp_path / "topics.json"

    assert read_state(path) == {}
    path.touch()
    assert read_state(path) == {}
    bak_path(path).write_text('{"a":1}', encoding="utf-8")
    assert read_state(path) == {"a": 1}
    path.unlink()
    assert read_state(path) == {"a": 1}


def test_saving_over_a_broken_file_does_not_cost_the_good_bak(tmp_path: Path) -> None:
    path = tmp_path / "topics.json"
    bak_path(path).write_text('{"a":1}', encoding="utf-8")
    path.write_text("{", encoding="utf-8")
    disk = FaultyDisk()
    disk.fail("rename", "*.tmp")

    with pytest.raises(StoreIOError, match="rename"):
        write_state(disk, path, {"b": 2})

    assert read_state(path) == {"a": 1}


@pytest.mark.parametrize("operation", ["open", "write_at", "sync_data", "rename", "sync_directory"])
def test_a_full_disk_keeps_a_readable_state(operation: str, tmp_path: Path) -> None:
    path = tmp_path / "topics.json"
    write_state(Disk(), path, {"a": 1})
    disk = FaultyDisk()
    disk.fail(operation, "*", errno.ENOSPC, nth=2 if operation == "open" else 1, written_bytes=3)

    with pytest.raises(NoSpaceError, match="Free space"):
        write_state(disk, path, {"b": 2})

    assert read_state(path) == {"a": 1}


def test_files_that_may_not_be_read_or_are_none_are_typed_errors(tmp_path: Path) -> None:
    disk = FaultyDisk()
    disk.fail("open", "topics.json", errno.EACCES)
    (tmp_path / "dir.json").mkdir()

    with pytest.raises(NoPermissionError, match="Give this user"):
        read_state(tmp_path / "topics.json", disk=disk)
    with pytest.raises(WrongFileError):
        read_state(tmp_path / "dir.json")


def test_digits_inside_texts_stay_as_they_are() -> None:
    text = '{"a":"{0:1,2:3}","b\\"":",7:", 5 : {-1 : [1,2]}}'

    assert parse_state(text) == {"a": "{0:1,2:3}", 'b"': ",7:", "5": {"-1": [1, 2]}}


STATES = st.dictionaries(
    st.text(max_size=8),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.text(max_size=5), inner, max_size=3)
            | st.dictionaries(st.integers(0, 99).map(str), inner, max_size=3)
        ),
        max_leaves=12,
    ),
    max_size=5,
)


@given(STATES)
def test_any_state_survives_writing_and_reading(state: dict[str, Any]) -> None:
    text = format_state(state)

    assert parse_state(text) == state
    assert json.loads(text) == state


@given(st.text(alphabet='{}[],:"\\0123abc \n\t-', max_size=60))
def test_garbage_is_a_value_error_and_nothing_else(text: str) -> None:
    try:
        state = parse_state(text)
    except ValueError:
        return
    assert isinstance(state, dict)
