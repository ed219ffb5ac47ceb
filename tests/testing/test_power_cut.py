"""The disk that loses power: what was synced is always there, and all else may be, in every mixture."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from orbitmq.testing.power_cut import (
    BYTES_ONLY,
    EVERYTHING,
    NAMES_ONLY,
    NOTHING,
    SECTOR_BYTES,
    PowerCutDisk,
    Survival,
    power_cut,
)
from orbitmq.units import PAGE_BYTES

SEEDS = range(60)


class Place:
    """A directory under a disk that can lose power."""

    def __init__(self, tmp_path: Path) -> None:
        self.tmp, self.root = tmp_path, tmp_path / "root"
        self.disk = PowerCutDisk(self.root, shadow=tmp_path / "shadow")

    def create(
        self, name: str, content: bytes, *, sync: bool = False, sync_name: bool = False
    ) -> None:
        path = self.root / name
        fd = self.disk.open(path, create=True)
        self.disk.write_at(path, fd, 0, content)
        if sync:
            self.disk.sync_data(path, fd)
        self.disk.close(path, fd)
        if sync_name:
            self.disk.sync_directory(path.parent)

    def cuts(self) -> list[Path]:
        return [self.disk.power_cut(self.tmp / f"after-{seed}", seed) for seed in SEEDS]

    def contents(self, name: str) -> set[bytes | None]:
        """Return everything that a file may hold after a cut; None: it is not there."""
        files = [after / name for after in self.cuts()]
        return {file.read_bytes() if file.exists() else None for file in files}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_a_synced_file_with_a_synced_name_is_there_for_certain(place: Place) -> None:
    place.create("f", b"abc", sync=True, sync_name=True)

    assert place.contents("f") == {b"abc"}


def test_a_synced_file_with_an_unsynced_name_is_whole_or_missing(place: Place) -> None:
    place.create("f", b"abc", sync=True)

    assert place.contents("f") == {None, b"abc"}


def test_an_unsynced_file_may_be_missing_empty_zero_or_whole(place: Place) -> None:
    place.create("f", b"abc")

    assert place.contents("f") == {None, b"", b"\0\0\0", b"abc"}


def test_an_unsynced_file_with_a_synced_name_may_be_empty_zero_or_whole(place: Place) -> None:
    place.create("f", b"abc", sync_name=True)

    assert place.contents("f") == {b"", b"\0\0\0", b"abc"}


def test_what_was_there_at_the_beginning_is_durable(tmp_path: Path) -> None:
    (tmp_path / "root" / "deep").mkdir(parents=True)
    (tmp_path / "root" / "deep" / "f").write_bytes(b"abc")
    place = Place(tmp_path)

    assert place.contents("deep/f") == {b"abc"}


def test_unsynced_pages_survive_in_any_mixture_and_tear_at_sectors(place: Place) -> None:
    pages = 16
    place.create("f", b"o" * pages * PAGE_BYTES, sync=True, sync_name=True)
    fd = place.disk.open(place.root / "f")
    place.disk.write_at(place.root / "f", fd, 0, b"n" * pages * PAGE_BYTES)
    # The middle is synced once more: these pages are new for certain.
    place.disk.sync_data(place.root / "f", fd, 4 * PAGE_BYTES, 2 * PAGE_BYTES)
    place.disk.close(place.root / "f", fd)

    found = place.contents("f")

    torn = 0
    for content in found:
        assert content is not None
        assert len(content) == pages * PAGE_BYTES
        assert content[4 * PAGE_BYTES : 6 * PAGE_BYTES] == b"n" * 2 * PAGE_BYTES
        for at in range(0, len(content), SECTOR_BYTES):
            assert content[at : at + SECTOR_BYTES] in (b"o" * SECTOR_BYTES, b"n" * SECTOR_BYTES)
        for at in range(0, len(content), PAGE_BYTES):
            torn += len(set(content[at : at + PAGE_BYTES])) == 2
    assert b"n" * pages * PAGE_BYTES in found
    synced_only = b"o" * 4 * PAGE_BYTES + b"n" * 2 * PAGE_BYTES + b"o" * 10 * PAGE_BYTES
    assert synced_only in found
    assert torn > 0
    assert len(found) > 10


def test_bytes_written_through_a_mapping_count_when_they_are_synced(place: Place) -> None:
    path = place.root / "f"
    place.create("f", bytes(2 * PAGE_BYTES), sync=True, sync_name=True)
    fd = place.disk.open(path)
    view = place.disk.map(path, fd, 2 * PAGE_BYTES, writable=True)
    view[:3] = b"abc"
    view[PAGE_BYTES : PAGE_BYTES + 3] = b"def"
    place.disk.sync_data(path, fd, 0, 3)

    found = place.contents("f")
    view.close()
    place.disk.close(path, fd)

    assert {content[:3] for content in found if content} == {b"abc"}
    assert {content[PAGE_BYTES : PAGE_BYTES + 3] for content in found if content} == {
        b"def",
        bytes(3),
    }


def test_a_file_that_grew_has_its_old_or_its_new_length(place: Place) -> None:
    place.create("f", b"abc", sync=True, sync_name=True)
    fd = place.disk.open(place.root / "f")
    place.disk.truncate(place.root / "f", fd, 10_000)
    place.disk.close(place.root / "f", fd)

    assert place.contents("f") == {b"abc", b"abc" + bytes(9_997)}


def test_a_removed_file_may_come_back_until_its_directory_is_synced(place: Place) -> None:
    place.create("f", b"abc", sync=True, sync_name=True)
    place.disk.remove(place.root / "f")

    assert place.contents("f") == {b"abc", None}
    place.disk.sync_directory(place.root)
    place.tmp = place.tmp / "second"
    place.tmp.mkdir()
    assert place.contents("f") == {None}


def test_a_rename_happened_or_did_not(place: Place) -> None:
    place.create("old", b"A", sync=True, sync_name=True)
    place.create("new", b"B", sync=True)
    place.disk.rename(place.root / "new", place.root / "old")

    states = {
        tuple(sorted((file.name, file.read_bytes()) for file in after.iterdir()))
        for after in place.cuts()
    }

    assert states == {
        (("old", b"A"),),
        (("new", b"B"), ("old", b"A")),
        (("old", b"B"),),
    }


def _tree(root: Path) -> dict[str, bytes]:
    files = (path for path in root.rglob("*") if path.is_file())
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


def test_a_directory_that_gets_another_name_takes_along_what_is_in_it(place: Place) -> None:
    place.disk.make_directory(place.root / "old")
    place.create("old/f", b"abc", sync=True, sync_name=True)
    place.disk.sync_directory(place.root)
    place.disk.rename(place.root / "old", place.root / "new")

    assert {tuple(_tree(after).items()) for after in place.cuts()} == {
        (("old/f", b"abc"),),
        (("new/f", b"abc"),),
    }
    place.disk.sync_directory(place.root)
    place.create("new/g", b"def", sync=True, sync_name=True)
    assert _tree(place.disk.power_cut(place.tmp / "last", survival=NOTHING)) == {
        "new/f": b"abc",
        "new/g": b"def",
    }


def test_a_directory_that_moves_can_be_at_both_places_or_at_none(place: Place) -> None:
    for name in ("a", "b", "a/moved"):
        place.disk.make_directory(place.root / name)
    place.create("a/moved/f", b"abc", sync=True, sync_name=True)
    for name in ("", "a", "b"):
        place.disk.sync_directory(place.root / name)
    place.disk.rename(place.root / "a/moved", place.root / "b/moved")

    found = {tuple(sorted(_tree(after))) for after in place.cuts()}

    assert found == {(), ("a/moved/f",), ("b/moved/f",), ("a/moved/f", "b/moved/f")}


def test_directories_that_change_places_keep_what_is_in_them(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.disk = PowerCutDisk(place.root, shadow=tmp_path / "own", can_exchange=True)
    for name in ("work", "x", "work/x"):
        place.disk.make_directory(place.root / name)
    place.create("x/f", b"old", sync=True, sync_name=True)
    place.create("work/x/f", b"new", sync=True, sync_name=True)
    place.disk.sync_directory(place.root)
    place.disk.sync_directory(place.root / "work")

    assert place.disk.exchange(place.root / "work/x", place.root / "x")

    assert place.contents("x/f") == {b"old", b"new"}
    place.disk.sync_directory(place.root)
    assert _tree(place.disk.power_cut(tmp_path / "last", survival=NOTHING))["x/f"] == b"new"


def test_a_directory_that_is_removed_and_made_again_is_another_one(place: Place) -> None:
    place.disk.make_directory(place.root / "d")
    place.create("d/f", b"abc", sync=True, sync_name=True)
    place.disk.sync_directory(place.root)
    place.disk.remove(place.root / "d/f")
    place.disk.remove_directory(place.root / "d")
    place.disk.make_directory(place.root / "d")

    assert place.contents("d/f") == {None, b"abc"}


@pytest.mark.parametrize(
    ("survival", "left"),
    [
        (NOTHING, {"f": b"old"}),
        (NAMES_ONLY, {"f": b"old", "g": b""}),
        (BYTES_ONLY, {"f": b"new"}),
        (EVERYTHING, {"f": b"new", "g": b"new"}),
    ],
)
def test_the_kind_of_disk_can_be_chosen(
    place: Place, survival: Survival, left: dict[str, bytes]
) -> None:
    place.create("f", b"old", sync=True, sync_name=True)
    place.create("f", b"new")
    place.create("g", b"new")

    assert _tree(place.disk.power_cut(place.tmp / "after", survival=survival)) == left


def test_changes_of_one_directory_survive_in_their_order(place: Place) -> None:
    for number in range(5):
        place.create(str(number), b"", sync=True)

    found = {tuple(sorted(file.name for file in after.iterdir())) for after in place.cuts()}

    assert found == {tuple(str(number) for number in range(count)) for count in range(6)}


def test_a_new_directory_is_lost_with_all_in_it_until_its_parent_is_synced(place: Place) -> None:
    place.disk.make_directory(place.root / "a" / "b")
    place.create("a/b/f", b"abc", sync=True, sync_name=True)

    assert place.contents("a/b/f") == {None, b"abc"}
    place.disk.sync_directory(place.root)
    place.disk.sync_directory(place.root / "a")
    place.tmp = place.tmp / "second"
    place.tmp.mkdir()
    assert place.contents("a/b/f") == {b"abc"}


def test_a_sync_of_the_file_system_makes_all_durable(place: Place) -> None:
    place.disk.make_directory(place.root / "a" / "b")
    place.create("a/b/f", b"abc")
    (place.root / "a" / "g").write_bytes(b"not through the disk")

    place.disk.sync_file_system(place.root)

    assert place.contents("a/b/f") == {b"abc"}
    assert (place.tmp / "after-3/a/g").read_bytes() == b"not through the disk"


def test_what_happened_behind_the_disks_back_counts_as_not_synced(place: Place) -> None:
    place.create("f", b"abc", sync=True, sync_name=True)
    (place.root / "f").rename(place.root / "g")
    (place.root / "h").mkdir()
    (place.root / "h" / "i").write_bytes(b"def")

    assert place.contents("g") == {None, b"abc"}
    assert any((after / "h" / "i").exists() for after in place.tmp.glob("after-*"))
    assert {after.joinpath("f").exists() for after in place.tmp.glob("after-*")} == {True, False}


def test_equal_seeds_give_equal_states_and_a_cut_changes_nothing(place: Place) -> None:
    for number in range(6):
        place.create(str(number), os.urandom(3 * PAGE_BYTES), sync=number % 2 == 0)

    def tree(root: Path) -> dict[str, bytes]:
        return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*.*")}

    before = tree(place.tmp / "shadow"), tree(place.root)
    first = place.disk.power_cut(place.tmp / "one", seed=11)
    second = power_cut(place.root, place.tmp / "shadow", place.tmp / "two", seed=11)

    assert tree(first) == tree(second)
    assert (tree(place.tmp / "shadow"), tree(place.root)) == before


def test_who_goes_on_after_a_kill_knows_the_file_that_was_renamed_last(place: Place) -> None:
    place.create("tmp", b"abc", sync=True, sync_name=True)
    (place.root / "tmp").rename(place.root / "f")  # killed before it could be noted
    place.disk = PowerCutDisk(place.root, shadow=place.tmp / "shadow")

    place.create("tmp", b"def", sync=True, sync_name=True)

    assert place.contents("f") == {b"abc"}


def test_a_new_file_is_not_taken_for_one_of_a_removed_directory(place: Place) -> None:
    place.disk.make_directory(place.root / "old")
    for number in range(20):
        place.create(f"old/{number}", b"abc", sync=True, sync_name=True)
    place.disk.sync_directory(place.root)
    shutil.rmtree(place.root / "old")

    for number in range(20):  # by a program that uses no such disk; inodes are used again
        (place.root / str(number)).write_bytes(b"def")
    for number in range(20):
        path = place.root / str(number)
        fd = place.disk.open(path)
        place.disk.sync_data(path, fd)
        place.disk.close(path, fd)
    place.disk.sync_directory(place.root)

    after = place.disk.power_cut(place.tmp / "after", survival=NOTHING)
    assert {file.read_bytes() for file in after.iterdir()} == {b"def"}


WRITER = """
import sys
from pathlib import Path
from orbitmq.testing.power_cut import PowerCutDisk
root, shadow = Path(sys.argv[1]), Path(sys.argv[2])
disk = PowerCutDisk(root, shadow=shadow)
number = len(list(root.iterdir()))
while True:
    path = root / f"{number:06d}"
    new = root / "tmp"
    fd = disk.open(new, create=True)
    disk.write_at(new, fd, 0, b"%06d" % number * 1000)
    disk.sync_data(new, fd)
    disk.close(new, fd)
    disk.rename(new, path)
    disk.sync_directory(root)
    print(number, flush=True)
    number += 1
"""


@pytest.mark.crash
def test_the_shadow_outlives_a_killed_process_and_the_next_one_goes_on(tmp_path: Path) -> None:
    root, shadow = tmp_path / "root", tmp_path / "shadow"
    acknowledged = -1
    for life in range(4):
        command = [sys.executable, "-c", WRITER, str(root), str(shadow)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            for _ in range(7 + life):
                acknowledged = int(writer.stdout.readline())
            writer.send_signal(signal.SIGKILL)

        for seed in range(10):
            after = power_cut(root, shadow, tmp_path / f"after-{life}-{seed}", seed)
            for number in range(acknowledged + 1):
                assert (after / f"{number:06d}").read_bytes() == b"%06d" % number * 1000
            for file in after.iterdir():
                if file.name != "tmp":
                    assert file.read_bytes() == file.name.encode() * 1000
        (root / "tmp").unlink(missing_ok=True)


def test_paths_outside_the_root_are_passed_through(place: Place, tmp_path: Path) -> None:
    outside = tmp_path / "elsewhere"
    place.disk.make_directory(outside)
    fd = place.disk.open(outside / "f", create=True)
    place.disk.write_at(outside / "f", fd, 0, b"x")
    place.disk.sync_data(outside / "f", fd)
    place.disk.close(outside / "f", fd)
    place.disk.rename(outside / "f", outside / "g")
    place.disk.sync_directory(outside)
    place.disk.remove(outside / "g")
    place.disk.remove_directory(outside)

    assert not outside.exists()
    assert list(place.disk.power_cut(tmp_path / "after", 1).iterdir()) == []
