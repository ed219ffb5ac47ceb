"""What a consumer tells tools about itself (307)."""

from collections.abc import Iterable

from orbitmq import __version__
from orbitmq.client.consumer.context import ConsumerContext
from orbitmq.client.consumer.process_queue import ProcessQueue
from orbitmq.units import MiB
from orbitmq.wire.bodies.running_info import ConsumerRunningInfo, ProcessQueueInfo


def describe(
    context: ConsumerContext, queues: Iterable[ProcessQueue], consume_type: str, started_ms: int
) -> ConsumerRunningInfo:
    """Return the settings, queues and rates of a consumer."""
    config, core = context.config, context.core
    properties = {
        "PROP_NAMESERVER_ADDR": ";".join(core.config.namesrv),
        "PROP_THREADPOOL_CORE_SIZE": str(config.workers),
        "PROP_CONSUMEORDERLY": str(config.orderly).lower(),
        "PROP_CONSUME_TYPE": consume_type,
        "PROP_CLIENT_VERSION": f"OrbitMQ {__version__}",
        "PROP_CONSUMER_START_TIMESTAMP": str(started_ms),
        "consumerGroup": config.group,
        "messageModel": config.model.value,
        "consumeFromWhere": config.start_from.value,
        "allocateMessageQueueStrategy": config.strategy.name,
        "consumeMessageBatchMaxSize": str(config.batch_size),
        "pullBatchSize": str(config.pull_count),
        "pullThresholdForQueue": str(config.prefetch_count),
        "maxReconsumeTimes": str(config.reconsume_times_max),
    }
    return ConsumerRunningInfo(
        properties=properties,
        subscription_set=list(context.subscriptions.values()),
        mq_table={held.queue: _queue_info(context, held) for held in queues},
        status_table=context.rates.status(core.clock.monotonic_ms()),
    )


def _queue_info(context: ConsumerContext, held: ProcessQueue) -> ProcessQueueInfo:
    offset = context.offsets.get(held.queue)
    return ProcessQueueInfo(
        commit_offset=-1 if offset is None else offset,
        cached_msg_min_offset=held.first_offset or 0,
        cached_msg_max_offset=held.last_offset or 0,
        cached_msg_count=held.count,
        cached_msg_mib=held.body_bytes // MiB,
        locked=held.locked,
        last_lock_timestamp=_wall_ms(context, held.locked_ms) if held.locked else 0,
        droped=held.dropped,
        last_pull_timestamp=held.pulled_ms,
        last_consume_timestamp=held.consumed_ms,
    )


def _wall_ms(context: ConsumerContext, monotonic_ms: float) -> int:
    clock = context.core.clock
    return round(clock.now_ms() - (clock.monotonic_ms() - monotonic_ms))
