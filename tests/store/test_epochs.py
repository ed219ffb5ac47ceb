"""Epochs: what a replica concludes of its primary's, and what the file bears."""

from pathlib import Path

import pytest

from orbitmq.errors import StateFileError
from orbitmq.store.epochs import Epoch, EpochFile, Epochs, Role, compare

pytestmark = pytest.mark.feature("F84")

ONE, TWO, OTHER_TWO, THREE = (
    Epoch(1, 0, "a"),
    Epoch(2, 100, "b"),
    Epoch(2, 100, "x"),
    Epoch(3, 150, "c"),
)


@pytest.mark.parametrize(
    ("mine", "my_end", "its", "its_end", "cut"),
    [
        pytest.param([ONE], 70, [ONE], 90, -1, id="a-beginning"),
        pytest.param([ONE], 90, [ONE], 90, -1, id="equal"),
        pytest.param([ONE], 100, [ONE, TWO], 150, -1, id="up-to-the-promotion"),
        pytest.param([ONE], 130, [ONE, TWO], 150, 100, id="beyond-the-promotion"),
        pytest.param([ONE], 130, [ONE, TWO], 100, 100, id="nothing-written-since"),
        pytest.param([ONE, TWO], 90, [ONE, THREE], 200, -1, id="its-epoch-not-reached"),
        pytest.param([ONE, TWO], 160, [ONE, THREE], 200, 100, id="two-promotions"),
        pytest.param([ONE, TWO], 160, [ONE, TWO, THREE], 200, 150, id="beyond-the-second"),
        pytest.param([], 40, [ONE], 50, -1, id="from-before-there-were-epochs"),
        pytest.param([ONE], 0, [Epoch(1, 0, "z")], 50, -1, id="an-empty-log"),
    ],
)
def test_a_log_is_cut_where_its_primary_was_another(
    mine: list[Epoch], my_end: int, its: list[Epoch], its_end: int, cut: int
) -> None:
    assert compare(Epochs(tuple(mine)), my_end, its, its_end) == ("", cut)


@pytest.mark.parametrize(
    ("mine", "my_end", "its", "its_end", "reason"),
    [
        pytest.param([ONE, TWO], 110, [ONE], 300, "was a primary before", id="former"),
        pytest.param([ONE, TWO], 110, [ONE, OTHER_TWO], 300, "promote the one", id="two-of-one"),
        pytest.param([ONE], 110, [Epoch(1, 0, "z"), TWO], 300, "no epoch in common", id="another"),
        pytest.param([ONE], 110, [], 300, "knows no epochs", id="without"),
        pytest.param([ONE], 110, [ONE], 100, "10 bytes from log offset 100 on", id="lost"),
        pytest.param(
            [ONE], 110, [ONE, Epoch(1, 80, "y")], 300, "30 bytes from log offset 80 on", id="start"
        ),
    ],
)
def test_a_primary_that_is_none_or_lost_something_is_refused_with_a_sentence(
    mine: list[Epoch], my_end: int, its: list[Epoch], its_end: int, reason: str
) -> None:
    found = compare(Epochs(tuple(mine)), my_end, its, its_end)
    assert reason in found.refusal
    assert found.cut == -1


def test_a_promotion_makes_the_next_number_and_a_start_only_an_epoch(tmp_path: Path) -> None:
    file = EpochFile(tmp_path / "orbitmq.epochs")
    assert file.read() == Epochs()
    epochs = Epochs().began(0, promoted=False).began(40, promoted=False).began(80, promoted=True)
    assert [epoch[:2] for epoch in epochs.epochs] == [(1, 0), (1, 40), (2, 80)]
    assert len({epoch.id for epoch in epochs.epochs}) == 3
    kept = epochs._replace(role=Role("SLAVE 1", "SYNC_MASTER", 0, left_id=1))
    file.write(kept)
    assert file.read() == kept


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"epochs": [{"number": 1}]}',
        '{"epochs": [{"number": 0, "start": 0, "id": "a"}]}',
        '{"epochs": [{"number": 1, "start": 5, "id": "a"}, {"number": 1, "start": 4, "id": "b"}]}',
        '{"epochs": [{"number": 2, "start": 5, "id": "a"}, {"number": 1, "start": 6, "id": "b"}]}',
        '{"epochs": [{"number": 1, "start": 5, "id": ""}]}',
        '{"epochs": [], "role": {"no": 1}}',
    ],
)
def test_a_file_that_holds_no_epochs_is_refused_with_what_to_do(text: str, tmp_path: Path) -> None:
    path = tmp_path / "orbitmq.epochs"
    path.write_text(text)
    with pytest.raises(StateFileError, match="Restore the file"):
        EpochFile(path).read()
