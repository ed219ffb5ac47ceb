"""Clients coming, staying and going: heartbeats, consumer lists, queue locks (34, 35, 38, 41, 42, 46)."""

from orbitmq.broker.delivery.filters import Filters
from orbitmq.broker.processors.processor import Processor, answers
from orbitmq.broker.refusal import Refusal
from orbitmq.broker.tables.clients import ClientConnection
from orbitmq.errors import Sql92SyntaxError
from orbitmq.net.connection import Connection
from orbitmq.wire.bodies.heartbeat import CheckClient, ConsumerData, ConsumerIds, HeartbeatData
from orbitmq.wire.bodies.locks import LockAnswer, LockRequest
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers.clients import ConsumerGroupHeader, HeartbeatAnswer, UnregisterClient


class ClientsProcessor(Processor):
    """Keeps the tables of producers, consumers and locks."""

    # Heartbeats

    @answers(RequestCode.HEART_BEAT)
    def heartbeat(self, connection: Connection, request: Command) -> Command:
        """Register a client's producers and consumers (34)."""
        data = HeartbeatData.decode(request.body)
        client = ClientConnection(
            connection,
            data.client_id,
            request.language,
            request.version,
            self._context.clock.now_ms(),
        )
        # Version 2 of heartbeats has a fingerprint; without one, subscriptions come every time.
        changed = data.heartbeat_fingerprint == 0
        for consumer in data.consumer_data_set:
            changed |= self._consumer(client, data, consumer)
        for producer in data.producer_data_set:
            self._context.producers.register(producer.group_name, client)
        return request.answer(fields=HeartbeatAnswer(subscriptions_changed=changed).write())

    def _consumer(
        self, client: ClientConnection, data: HeartbeatData, consumer: ConsumerData
    ) -> bool:
        """Register one consumer group of a client; True: it should send its subscriptions next time."""
        context, name = self._context, consumer.group_name
        if context.config.reject_pull_consumers and consumer.consume_type == "CONSUME_ACTIVELY":
            return False
        group = context.groups.get_or_create(name)
        if group is None:
            return False
        changed = context.consumers.swap_fingerprint(name, data.heartbeat_fingerprint)
        topics = [one.topic for one in consumer.subscription_data_set]
        context.topics.create_retry(
            name,
            group.retry_queue_nums,
            order=any(context.topics.is_order(topic) for topic in topics),
            unit_mode=consumer.unit_mode,
        )
        without = data.heartbeat_fingerprint != 0 and data.without_sub
        context.consumers.register(
            name,
            client,
            consume_type=consumer.consume_type,
            model=consumer.message_model,
            from_where=consumer.consume_from_where,
            subscriptions=None if without else consumer.subscription_data_set,
        )
        # After a restart nothing is known of a client that saves its words: it has to say all again.
        known = context.consumers.group(name)
        return changed or (without and known is not None and not known.subscriptions)

    @answers(RequestCode.UNREGISTER_CLIENT)
    def unregister(self, connection: Connection, request: Command) -> Command:
        """Remove a client from a group (35)."""
        header = UnregisterClient.read(request.fields)
        if header.producer_group is not None:
            self._context.producers.unregister(header.producer_group, connection)
        if header.consumer_group is not None:
            self._context.consumers.unregister(header.consumer_group, connection)
        return request.answer(fields={})

    @answers(RequestCode.GET_CONSUMER_LIST_BY_GROUP)
    def consumer_list(self, connection: Connection, request: Command) -> Command:
        """Tell the client ids of a group's members, for their rebalance (38)."""
        name = ConsumerGroupHeader.read(request.fields).consumer_group
        group = self._context.consumers.group(name)
        if group is None:
            remark = f"no consumer for this group, {name}"
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark, fields={})
        ids = list(dict.fromkeys(group.client_ids))
        return request.answer(fields={}, body=ConsumerIds(consumer_id_list=ids).encode())

    @answers(RequestCode.CHECK_CLIENT_CONFIG)
    def check_client(self, connection: Connection, request: Command) -> Command:
        """Tell whether a consumer's filter can be used here (46)."""
        subscription = CheckClient.decode(request.body).subscription_data if request.body else None
        if subscription is None or subscription.is_tag:
            return request.answer()
        try:
            Filters(self._config).compile(subscription.expression_type, subscription.sub_string)
        except Sql92SyntaxError as error:
            raise Refusal(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from None
        return request.answer()

    # Locks

    @answers(RequestCode.LOCK_BATCH_MQ)
    def lock(self, connection: Connection, request: Command) -> Command:
        """Lock queues for an orderly consumer; tell those that it has now (41)."""
        asked = LockRequest.decode(request.body)
        locked = self._context.locks.lock(asked.consumer_group, asked.client_id, asked.mq_set)
        return request.answer(body=LockAnswer(locked=locked).encode())

    @answers(RequestCode.UNLOCK_BATCH_MQ)
    def unlock(self, connection: Connection, request: Command) -> Command:
        """Give back queues of an orderly consumer (42)."""
        asked = LockRequest.decode(request.body)
        self._context.locks.unlock(asked.consumer_group, asked.client_id, asked.mq_set)
        return request.answer()
