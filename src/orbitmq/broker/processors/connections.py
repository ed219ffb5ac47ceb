"""Who is online, for tools: consumers and producers of groups."""

from orbitmq.broker.processors.processor import Processor, answers
from orbitmq.broker.refusal import Refusal
from orbitmq.broker.tables.clients import ClientConnection as Client
from orbitmq.net.connection import Connection
from orbitmq.wire.bodies.connections import (
    ClientConnection,
    ConsumerConnections,
    ProducerConnections,
    ProducerInfo,
    ProducerTable,
)
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers.admin import ProducerGroupHeader
from orbitmq.wire.headers.clients import ConsumerGroupHeader


class ConnectionsProcessor(Processor):
    """Answers what tools ask about clients."""

    @answers(RequestCode.GET_CONSUMER_CONNECTION_LIST)
    def _consumers(self, connection: Connection, request: Command) -> Command:
        name = ConsumerGroupHeader.read(request.fields).consumer_group
        group = self._context.consumers.group(name)
        if group is None:
            remark = f"the consumer group[{name}] not online"
            raise Refusal(ResponseCode.CONSUMER_NOT_ONLINE, remark)
        body = ConsumerConnections(
            connection_set=[_connection(client) for client in group.connections],
            subscription_table=dict(group.subscriptions),
            consume_type=group.consume_type,
            message_model=group.model,
            consume_from_where=group.from_where,
        )
        return request.answer(body=body.encode())

    @answers(RequestCode.GET_PRODUCER_CONNECTION_LIST)
    def _producers(self, connection: Connection, request: Command) -> Command:
        name = ProducerGroupHeader.read(request.fields).producer_group
        clients = self._context.producers.connections(name)
        if not clients:
            remark = f"the producer group[{name}] not exist"
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
        body = ProducerConnections(connection_set=[_connection(client) for client in clients])
        return request.answer(body=body.encode())

    @answers(RequestCode.GET_ALL_PRODUCER_INFO)
    def _all_producers(self, connection: Connection, request: Command) -> Command:
        data = {
            group: [
                ProducerInfo(
                    client_id=client.client_id,
                    remote_ip="/" + client.connection.peer,
                    language=client.language,
                    version=client.version,
                    last_update_timestamp=client.heard_ms,
                )
                for client in members.values()
            ]
            for group, members in self._context.producers.all().items()
        }
        return request.answer(body=ProducerTable(data=data).encode())


def _connection(client: Client) -> ClientConnection:
    return ClientConnection(
        client_id=client.client_id,
        client_addr=client.connection.peer,
        language=client.language,
        version=client.version,
    )
