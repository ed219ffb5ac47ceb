"""Which topics have batch queues."""

import pytest

from golden_stores import unpack
from orbitmq.files.disk import Disk
from orbitmq.message import QueueType
from orbitmq.store.topic_types import read_topic_types


def test_the_table_of_a_real_broker_tells_batch_topics(tmp_path):
    root = unpack("batchcq", tmp_path)

    types = read_topic_types(root / "config" / "topics.json", Disk())

    assert types("BatchT") is QueueType.BATCH
    assert types("TBW102") is QueueType.SIMPLE
    assert types("Unknown") is QueueType.SIMPLE


@pytest.mark.parametrize("text", ["", '{"topicConfigTable":{"T":{}}}', "{}"])
def test_no_table_means_simple_queues(tmp_path, text):
    path = tmp_path / "topics.json"
    path.write_text(text)

    assert read_topic_types(path, Disk())("T") is QueueType.SIMPLE
    assert read_topic_types(tmp_path / "missing.json", Disk())("T") is QueueType.SIMPLE
