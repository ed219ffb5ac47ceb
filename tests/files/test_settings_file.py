"""Changed settings in their owner's configuration file."""

from pathlib import Path

import pytest

from orbitmq.errors import StateFileError
from orbitmq.files.settings_file import changed_text, keep_settings
from orbitmq.settings import load_settings

CONF = """\
# The broker of the warehouse.
brokerName = a
  longPollingEnable : true
! not used
fileReservedTime=1
namesrvAddr=h1:9876;\\
    h2:9876
fileReservedTime=2"""


def test_only_the_lines_of_the_changed_keys_change() -> None:
    changes = {"namesrvAddr": "h3:9876", "fileReservedTime": "48", "deleteWhen": "04"}

    assert changed_text(Path("b.conf"), CONF, changes) == (
        "# The broker of the warehouse.\nbrokerName = a\n  longPollingEnable : true\n! not used\n"
        "fileReservedTime=1\nnamesrvAddr=h3:9876\nfileReservedTime=48\ndeleteWhen=04\n"
    )


@pytest.mark.parametrize("value", ["a\\b", " x", "a=b:c#d", "ä€", "a\tb", "x\\", "#a", ""])
def test_any_value_is_read_back_as_it_was_written(tmp_path: Path, value: str) -> None:
    for name in ("b.conf", "b.toml"):
        file = tmp_path / name
        keep_settings(file, {"metricsLabel": value, "fileReservedTime": "1"})

        assert dict(load_settings(file, environment={})) == {
            "metricsLabel": value,
            "fileReservedTime": "1",
        }


def test_toml_keeps_its_comments_and_tables() -> None:
    text = '# mine\n[broker]\nbrokerName = "a" # short\n[store]\nfileReservedTime = 1  # hours\n'

    new = changed_text(Path("b.toml"), text, {"fileReservedTime": "48", "deleteWhen": "04"})

    assert new == (
        '# mine\n[broker]\nbrokerName = "a" # short\n[store]\n'
        'fileReservedTime = "48"  # hours\ndeleteWhen = "04"\n'
    )


def test_what_cannot_be_changed_line_by_line_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "b.toml"
    text = 'storePathCommitLog = [\n  "a",\n  "b",\n]\n'
    file.write_text(text)

    with pytest.raises(StateFileError, match="storePathCommitLog line by line"):
        keep_settings(file, {"storePathCommitLog": "c"})

    assert file.read_text() == text


def test_latin_1_and_the_rights_of_the_file_survive(tmp_path: Path) -> None:
    file = tmp_path / "b.conf"
    file.write_bytes("# für uns\nbrokerName=a\n".encode("latin-1"))
    file.chmod(0o640)
    (tmp_path / "link.conf").symlink_to(file)

    keep_settings(tmp_path / "link.conf", {"brokerName": "b"})

    assert file.read_text("latin-1") == "# für uns\nbrokerName=b\n"
    assert file.stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "link.conf").is_symlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b.conf", "link.conf"]


def test_new_file_begins_with_its_title(tmp_path: Path) -> None:
    file = tmp_path / "config" / "b.conf"

    keep_settings(file, {"deleteWhen": "05"}, title="# Changed while it ran.\n")

    assert file.read_text() == "# Changed while it ran.\ndeleteWhen=05\n"
