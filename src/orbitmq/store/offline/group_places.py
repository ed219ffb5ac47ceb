"""Where consumer groups stand, by what a broker keeps beside its log (config/consumerOffset.json)."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from orbitmq.files.layout import StoreLayout
from orbitmq.files.state_file import read_state


class GroupPlace(NamedTuple):
    """The next queue offset that a group reads of a queue."""

    group: str
    topic: str
    queue_id: int
    offset: int


def read_places(layout: StoreLayout) -> list[GroupPlace]:
    """Return all offsets of groups. StateFileError: the file cannot be understood."""
    table = read_state(layout.config("consumerOffset.json")).get("offsetTable") or {}
    return list(_places(table)) if isinstance(table, dict) else []


def _places(table: Mapping[str, object]) -> Iterator[GroupPlace]:
    for name, row in table.items():
        topic, separator, group = name.partition("@")
        if separator and isinstance(row, dict):
            for queue_id, offset in row.items():
                if str(queue_id).isdecimal() and isinstance(offset, int):
                    yield GroupPlace(group, topic, int(queue_id), offset)
