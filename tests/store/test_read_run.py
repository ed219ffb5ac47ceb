"""A run of messages, and tags compared by their hash, give what reading unit by unit with a filter gives."""

import random
from pathlib import Path
from typing import Any

import pytest

from orbitmq.message import AppendRequest
from orbitmq.store.config import StoreConfig
from orbitmq.store.reads.runs import RunReader
from orbitmq.store.reads.tag_filter import TagFilter
from orbitmq.store.store import MessageStore
from orbitmq.units import KiB

TAGS = ["", "TagA", "TagB", "Aa", "BB"]  # the last two have the same hash
SUBSCRIPTIONS = [None, "*", "TagA", "TagA || Aa", "nobody"]


class Asked(TagFilter):
    """A filter that is asked about each unit, for it is not just one by tags."""


def _filled(root: Path, chance: random.Random, **settings: Any) -> MessageStore:
    store = MessageStore.open(
        StoreConfig(
            root=root, segment_bytes=64 * KiB, cq_file_bytes=800, index_enabled=False, **settings
        )
    )
    for _ in range(1200):
        tag = chance.choice(TAGS)
        properties = f"TAGS\x01{tag}\x02".encode() if tag else b""
        body = bytes(chance.randrange(1, 600))
        store.append(AppendRequest("Topic", chance.randrange(3), body, properties))
    store.wait_dispatched()
    return store


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("limits", [{}, {"transfer_count_in_memory": 5}, {"memory_bytes": 50_000}])
def test_both_ways_give_the_same_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, limits: dict[str, int]
) -> None:
    chance = random.Random(seed)
    with _filled(tmp_path / "store", chance, **limits) as store:
        asked = [
            (
                (
                    "Topic",
                    chance.randrange(3),
                    chance.randrange(450),
                    chance.choice([1, 7, 32, 100]),
                ),
                chance.choice(SUBSCRIPTIONS),
                chance.choice([1, 2000, 1 << 27]),
            )
            for _ in range(300)
        ]

        short = [store.get(*a, subscription=s, max_bytes=m) for a, s, m in asked]
        monkeypatch.setattr(RunReader, "following", lambda *_: None)
        long = [store.get(*a, message_filter=Asked.parse(s), max_bytes=m) for a, s, m in asked]

        assert any(result.packed for result in short)
        assert not any(result.packed for result in long)
        for one, other, question in zip(short, long, asked, strict=True):
            assert _plain(one) == _plain(other), question


def _plain(result: Any) -> tuple[Any, ...]:
    return (
        result.status,
        result.next_offset,
        result.min_offset,
        result.max_offset,
        [bytes(record) for record in result.records],
        result.queue_offsets,
        result.log_offsets,
        result.message_count,
        result.total_bytes,
        result.suggest_replica,
    )
