"""What a client does without being told: the values of RocketMQ's Java client 5.3, beside its names."""

from dataclasses import MISSING, fields
from pathlib import Path

from orbitmq.client.consumer.config import ConsumerConfig, Model, StartFrom
from orbitmq.client.consumer.idempotence import MemoryKeys, SqliteKeys
from orbitmq.client.consumer.pull_consumer import AsyncPullConsumer
from orbitmq.client.consumer.rebalance import Average
from orbitmq.client.core.config import ClientConfig
from orbitmq.client.core.core import _FIRST_HEARTBEAT_MS, _FIRST_ROUTES_MS
from orbitmq.format.compression import Compression
from orbitmq.testing.fake_clock import FakeClock
from orbitmq.wire.command import Encoding

CLIENT = {
    "namesrv": ("127.0.0.1:9876",),
    "client_ip": "",
    "instance_name": "",
    "unit_name": "",
    "encoding": Encoding.JSON,
    "vip_channel": False,
    "access_key": "",
    "secret_key": "",
    "security_token": "",
    "request_timeout_ms": 3_000,  # mqClientApiTimeout
    "admin_timeout_ms": 5_000,
    "connect_timeout_ms": 3_000,
    "route_interval_ms": 30_000,  # pollNameServerInterval
    "heartbeat_interval_ms": 30_000,  # heartbeatBrokerInterval
    "send_timeout_ms": 3_000,  # sendMsgTimeout
    "send_try_timeout_ms": 0,
    "retries": 2,  # retryTimesWhenSendFailed
    "async_retries": 2,  # retryTimesWhenSendAsyncFailed
    "retry_when_not_flushed": False,  # retryAnotherBrokerWhenNotStoreOK
    "fault_avoidance": False,  # sendLatencyFaultEnable
    "compress_bytes_min": 4096,  # compressMsgBodyOverHowmuch
    "compression": Compression.ZLIB,
    "compression_level": 5,
    "message_bytes_max": 4 * 1024 * 1024,  # maxMessageSize
    "creation_topic": "TBW102",
    "creation_queues": 4,  # defaultTopicQueueNums
    "pending_sends_max": 4_000,  # ours; RocketMQ lets 65 535 wait
    "trace": False,  # enableTrace
    "trace_batch": 10,  # traceMsgBatchNum
}
CONSUMER = {
    "model": Model.CLUSTERING,
    "orderly": False,
    "start_from": StartFrom.LAST,
    "start_ms": 0,
    "strategy": Average(),
    "workers": 20,  # consumeThreadMax
    "batch_size": 1,  # consumeMessageBatchMaxSize
    "reconsume_times_max": -1,  # maxReconsumeTimes
    "consume_timeout_ms": 15 * 60_000,  # consumeTimeout
    "suspend_queue_ms": 1_000,  # suspendCurrentQueueTimeMillis
    "retry_level": 0,
    "close_wait_ms": 30_000,  # ours; RocketMQ does not wait
    "pull_count": 32,  # pullBatchSize
    "pull_bytes": 256 * 1024,  # pullBatchSizeInBytes
    "pull_interval_ms": 0,  # pullInterval
    "suspend_ms": 15_000,
    "pull_timeout_ms": 30_000,
    "pull_failed_wait_ms": 1_000,  # pullTimeDelayMillsWhenException
    "prefetch_count": 1_000,  # pullThresholdForQueue
    "prefetch_bytes": 100 * 1024 * 1024,  # pullThresholdSizeForQueue
    "prefetch_span": 2_000,  # consumeConcurrentlyMaxSpan
    "prefetch_topic_count": -1,  # pullThresholdForTopic
    "prefetch_topic_bytes": -1,  # pullThresholdSizeForTopic
    "expression_in_pull": False,  # postSubscriptionWhenPull
    "persist_interval_ms": 5_000,  # persistConsumerOffsetInterval
    "rebalance_interval_ms": 20_000,
    "rebalance_again_ms": 1_000,
    "lock_interval_ms": 20_000,
    "handover_wait_ms": 500,  # ours
    "offsets_directory": Path.home() / ".rocketmq_offsets",
}


def defaults_of(config: type) -> dict[str, object]:
    """Return every field that has a default; none is left out."""
    return {
        one.name: one.default if one.default_factory is MISSING else one.default_factory()
        for one in fields(config)
        if one.default is not MISSING or one.default_factory is not MISSING
    }


def test_a_client_has_the_defaults_of_rocketmq():
    assert defaults_of(ClientConfig) == CLIENT


def test_a_consumer_has_the_defaults_of_rocketmq():
    assert defaults_of(ConsumerConfig) == CONSUMER


def test_a_message_may_fail_16_times_and_without_limit_in_order():
    limits = [
        ConsumerConfig(group="g", orderly=orderly).reconsume_limit for orderly in (False, True)
    ]

    assert limits == [16, 2**31 - 1]


def test_a_pull_consumer_lets_the_broker_wait_for_20_seconds():
    assert AsyncPullConsumer(group="g").settings.consumer.suspend_ms == 20_000


def test_the_first_heartbeat_and_the_first_look_at_routes_come_soon():
    assert (_FIRST_HEARTBEAT_MS, _FIRST_ROUTES_MS) == (1_000, 10)


def test_keys_are_remembered_for_days_and_claims_for_minutes(tmp_path):
    clock = FakeClock()
    for keys, days in ((MemoryKeys(clock=clock), 1), (SqliteKeys(tmp_path / "k", clock=clock), 7)):
        claimed = keys.claim("a"), keys.claim("b")
        keys.handled("a")
        clock.advance(5 * 60_000 - 1)
        before = keys.claim("b")
        clock.advance(1)
        after = keys.claim("b")
        clock.advance(days * 24 * 3_600_000 - 5 * 60_000 - 1)
        kept = keys.claim("a")
        clock.advance(1)
        forgotten = keys.claim("a")

        names = [state.name for state in (*claimed, before, after, kept, forgotten)]
        assert names == ["CLAIMED", "CLAIMED", "IN_PROGRESS", "CLAIMED", "HANDLED", "CLAIMED"]
    keys.close()
