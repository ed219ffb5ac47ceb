"""The golden stores are what their README says; a test that compares with them compares with something."""

from pathlib import Path

import pytest

from golden_stores import (
    GOLDEN,
    STORES,
    acks,
    damage,
    manifest,
    row,
    rows,
    torn_results,
    torn_variant,
    torn_variants,
    unpack,
)

RECORDS = {
    "mixed": 3970,
    "crashed": 1653,
    "cleaned": 856,
    "ext": 971,
    "batchcq": 200,
    "propcrc": 267,
    "timer": 350,
    "indexroll": 1064,
}


def tree(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()
    }


@pytest.mark.parametrize("name", STORES)
def test_a_store_has_its_records_its_answers_and_its_acknowledgements(name: str) -> None:
    assert len(rows(name, "record")) == RECORDS[name]
    assert row(name, "opened")["load"] is True
    assert acks(name)
    assert len(manifest(name)) > RECORDS[name]


def test_every_unpacking_is_a_fresh_copy(tmp_path: Path) -> None:
    root = unpack("indexroll", tmp_path)
    before = tree(root)
    (root / "checkpoint").unlink()

    assert tree(unpack("indexroll", tmp_path)) == before


def test_every_variant_damages_something_and_has_an_answer(tmp_path: Path) -> None:
    undamaged = tree(unpack("crashed", tmp_path / "whole"))
    assert torn_variants()[0] == "none"
    assert len(torn_variants()) == 33

    for variant in torn_variants():
        damaged = tree(damage(unpack("crashed", tmp_path), variant))
        assert (damaged == undamaged) == (not torn_variant(variant)["steps"]), variant
        assert torn_results(variant)[0]["type"] == "opened"


def test_damage_is_refused_on_another_store(tmp_path: Path) -> None:
    root = unpack("crashed", tmp_path)
    damage(root, "tail-half")

    with pytest.raises(ValueError, match="not the bytes"):
        damage(root, "flip-last")


def test_the_readme_names_every_archive() -> None:
    text = (GOLDEN / "README.md").read_text(encoding="utf-8")

    for name in (*STORES, "torn"):
        assert f"`{name}`" in text
    for variant in torn_variants():
        assert f"`{variant}`" in text
