"""The key-value config and its file."""

import pytest

from orbitmq.errors import StateFileError
from orbitmq.namesrv.kv_config import KvConfig


def test_what_was_saved_is_there_again(tmp_path):
    path = tmp_path / "deep" / "kvConfig.json"
    kv = KvConfig(path)
    kv.load()
    kv.put("ORDER_TOPIC_CONFIG", "Orders", "broker-a:4")
    kv.save(kv.snapshot())

    again = KvConfig(path)
    again.load()
    assert again.get("ORDER_TOPIC_CONFIG", "Orders") == "broker-a:4"
    assert b'"configTable"' in path.read_bytes()


def test_a_file_of_rocketmq_is_read(tmp_path):
    path = tmp_path / "kvConfig.json"
    path.write_text('{\n\t"configTable":{\n\t\t"N":{\n\t\t\t"k":"v"\n\t\t}\n\t}\n}')
    kv = KvConfig(path)
    kv.load()

    assert kv.namespace("N") == {"k": "v"}
    assert kv.namespace("M") is None


@pytest.mark.parametrize("text", ['{"configTable":[]}', '{"configTable":{"N":5}}', "{"])
def test_a_file_that_is_none_is_named(tmp_path, text):
    path = tmp_path / "kvConfig.json"
    path.write_text(text)

    with pytest.raises(StateFileError, match=r"kvConfig\.json"):
        KvConfig(path).load()


def test_a_snapshot_does_not_change(tmp_path):
    kv = KvConfig()
    kv.put("n", "k", "v")
    before = kv.snapshot()
    kv.put("n", "k", "w")
    kv.save(before)

    assert before == {"n": {"k": "v"}}
