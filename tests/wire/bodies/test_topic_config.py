"""Topics in bodies: the recorded tables, versions, registrations in both forms."""

import zlib

import pytest

from golden_frames import good_frames
from orbitmq.errors import FieldError
from orbitmq.wire.bodies.compressed_registration import decode_compressed, encode_compressed
from orbitmq.wire.bodies.topic_config import DataVersion, Registration, TopicConfig, TopicTable


def registrations():
    return [
        f
        for f in good_frames(
            "broker/registration", "broker/registration-binary", "broker/slave-and-ha"
        )
        if f.command.code == 103 and not f.command.is_response
    ]


def compressed():
    (frame,) = (
        f
        for f in good_frames("broker/registration-compressed")
        if f.command.code == 103 and not f.command.is_response and f.command.body[:1] == b"x"
    )
    return frame.command


def test_recorded_registrations_are_read_and_written_again():
    assert len(registrations()) > 5
    for frame in registrations():
        told = Registration.decode(frame.command.body)
        table = told.topic_config_serialize_wrapper

        assert Registration.decode(told.encode()) == told
        assert len(told.encode()) == len(frame.command.body)  # the tables' order is not kept
        assert all(name == topic.topic_name for name, topic in table.topic_config_table.items())


def test_a_recorded_topic_table_is_read():
    frame = next(
        f
        for f in good_frames("raw/answers")
        if f.request_code == 21 and f.command.is_response and f.command.body
    )
    table = TopicTable.decode(frame.command.body)

    assert table.topic_config_table["TBW102"] == TopicConfig(
        topic_name="TBW102", read_queue_nums=8, write_queue_nums=8, perm=7
    )
    assert table.data_version.counter > 0


def test_a_topic_is_written_as_java_does():
    topic = TopicConfig(topic_name="T", read_queue_nums=8, write_queue_nums=8)

    assert topic.encode() == (
        b'{"attributes":{},"order":false,"perm":6,"readQueueNums":8,"topicFilterType":"SINGLE_TAG",'
        b'"topicName":"T","topicSysFlag":0,"writeQueueNums":8}'
    )
    assert topic.is_readable
    assert topic.is_writable


def test_the_next_version_counts_up_and_has_its_time():
    version = DataVersion(counter=3, timestamp=1, state_version=2)

    assert version.next(99) == DataVersion(counter=4, timestamp=99)
    assert version == DataVersion(counter=3, timestamp=1, state_version=2)


def test_two_tables_share_nothing():
    one, other = TopicTable(), TopicTable()
    one.topic_config_table["T"] = TopicConfig(topic_name="T")

    assert other.topic_config_table == {}
    assert TopicConfig(topic_name="a").attributes is not TopicConfig(topic_name="b").attributes


def test_a_recorded_compressed_registration_is_read_and_written_byte_for_byte():
    command = compressed()
    told = decode_compressed(command.body, command.version)
    table = told.topic_config_serialize_wrapper

    assert len(table.topic_config_table) == 13
    assert table.topic_config_table["TBW102"].perm == 7
    assert table.topic_config_table["BenchmarkTest"].read_queue_nums == 1024
    assert encode_compressed(told, command.version) == command.body


def test_mappings_and_attributes_survive_compression():
    told = Registration(
        topic_config_serialize_wrapper=TopicTable(
            data_version=DataVersion(counter=1),
            topic_config_table={
                "T": TopicConfig(topic_name="T", attributes={"message.type": "FIFO x"})
            },
            topic_queue_mapping_info_map={"T": {"topic": "T", "bname": "broker-a"}},
        ),
        filter_server_list=["f:1"],
    )

    assert decode_compressed(encode_compressed(told), 479) == told
    told.topic_config_serialize_wrapper.topic_queue_mapping_info_map = {}
    assert decode_compressed(encode_compressed(told, 400), 400) == told


def test_broken_compressed_registrations_are_refused():
    body = compressed().body
    plain = zlib.decompress(body)
    broken = [b"", b"x", body[:-1], b"\x78" + bytes(20)]
    broken += [zlib.compress(plain[:size]) for size in range(0, len(plain) - 4, 7)]
    broken += [
        zlib.compress(plain[:at] + b"\xff\xff\xff\xff" + plain[at + 4 :]) for at in (0, 60, 64)
    ]
    for raw in broken:
        with pytest.raises(FieldError, match="body"):
            decode_compressed(raw, 479)


def test_a_compression_bomb_is_refused(monkeypatch):
    monkeypatch.setattr("orbitmq.wire.bodies.compressed_registration.PLAIN_BYTES_MAX", 10_000)
    with pytest.raises(FieldError, match="too long"):
        decode_compressed(zlib.compress(bytes(20_000)), 479)
