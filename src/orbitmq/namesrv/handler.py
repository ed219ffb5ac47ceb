"""NamesrvHandler: what a name server does with each request.

Answers have RocketMQ's codes, fields and texts. Bodies are plain JSON, number keys quoted, which every
client reads.
"""

import logging
from collections.abc import Callable, Mapping
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Final

from orbitmq.clock import Clock
from orbitmq.errors import FieldError
from orbitmq.namesrv import _lookups as lookups
from orbitmq.namesrv._live_settings import plan_change
from orbitmq.namesrv.config import NamesrvConfig
from orbitmq.namesrv.kv_config import KvConfig
from orbitmq.namesrv.routes import RouteTable
from orbitmq.net.connection import Connection, ConnectionHandler
from orbitmq.net.request_log import RequestLog
from orbitmq.settings import parse_properties
from orbitmq.wire.bodies.body import Body
from orbitmq.wire.bodies.compressed_registration import ZLIB_BYTE, decode_compressed
from orbitmq.wire.bodies.lists import KvTable
from orbitmq.wire.bodies.route import TopicRoute
from orbitmq.wire.bodies.topic_config import DataVersion, Registration, TopicTable
from orbitmq.wire.codes import RequestCode as Request
from orbitmq.wire.codes import ResponseCode as Response
from orbitmq.wire.command import Command
from orbitmq.wire.headers.admin import TopicHeader
from orbitmq.wire.headers.kv import ORDER_TOPICS, GetKv, GetKvAnswer, GetKvList
from orbitmq.wire.headers.registration import (
    BrokerHeartbeat,
    QueryDataVersion,
    QueryDataVersionAnswer,
    RegisterBroker,
    RegisterBrokerAnswer,
    UnregisterBroker,
    body_crc32,
)
from orbitmq.wire.headers.route import (
    AddWritePermAnswer,
    ChangeWritePerm,
    DeleteTopicInNamesrv,
    GetBrokerMembers,
    GetRoute,
    GetTopicsByCluster,
    WipeWritePermAnswer,
)

if TYPE_CHECKING:
    from orbitmq.logs.server_log import ServerLog

logger = logging.getLogger(__name__)

Handle = Callable[[Connection, Command], Command | None]
"""Returns the answer; None: it is sent later."""
SaveKv = Callable[[Callable[[Exception | None], None]], None]
"""Saves the key-value config and calls back, with the error if there was one."""

KeepSettings = Callable[[Mapping[str, str], Callable[[Exception | None], None]], None]
"""Writes changed settings down and calls back, with the error if there was one."""

WRAPPED_VERSION: Final = 37
"""Brokers before 3.0.11 send the table of topics alone."""

_ROUTES_KEPT_MAX: Final = 10_000
_UNIT_LISTS: Final = frozenset(
    {
        Request.GET_UNIT_TOPIC_LIST,
        Request.GET_HAS_UNIT_SUB_TOPIC_LIST,
        Request.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
    }
)


class NamesrvHandler(ConnectionHandler):
    """Requests in, answers out. Belongs to its loop's thread."""

    def __init__(
        self,
        config: NamesrvConfig,
        clock: Clock,
        routes: RouteTable,
        kv: KvConfig,
        save_kv: SaveKv,
        keep_settings: KeepSettings,
        log: "ServerLog | None" = None,
    ) -> None:
        self.config, self._log = config, log
        self.request_log = RequestLog(clock, config.logs.slow_request_ms)
        self._clock, self._routes, self._kv, self._save_kv = clock, routes, kv, save_kv
        self._keep_settings = keep_settings
        self._started_ms = clock.monotonic_ms()
        self._was_asked = False  # a route was given once: this name server is ready for good
        self._encoded: dict[str, bytes] = {}  # routes that were asked for
        self._encoded_version = -1
        self._handles = self._table()

    def _table(self) -> Mapping[int, Handle]:
        of = self._list_of
        return {
            Request.PUT_KV_CONFIG: self._put_kv,
            Request.GET_KV_CONFIG: self._get_kv,
            Request.DELETE_KV_CONFIG: self._delete_kv,
            Request.GET_KVLIST_BY_NAMESPACE: self._get_kv_list,
            Request.REGISTER_BROKER: self._register,
            Request.UNREGISTER_BROKER: self._unregister,
            Request.QUERY_DATA_VERSION: self._query_data_version,
            Request.BROKER_HEARTBEAT: self._heartbeat,
            Request.GET_ROUTEINFO_BY_TOPIC: self._get_route,
            Request.GET_BROKER_CLUSTER_INFO: of(lookups.cluster_info),
            Request.GET_BROKER_MEMBER_GROUP: self._get_members,
            Request.WIPE_WRITE_PERM_OF_BROKER: self._wipe_write_perm,
            Request.ADD_WRITE_PERM_OF_BROKER: self._add_write_perm,
            Request.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self._get_all_topics,
            Request.DELETE_TOPIC_IN_NAMESRV: self._delete_topic,
            Request.REGISTER_TOPIC_IN_NAMESRV: self._register_topic,
            Request.GET_TOPICS_BY_CLUSTER: self._get_topics_of_cluster,
            Request.GET_SYSTEM_TOPIC_LIST_FROM_NS: of(lookups.system_topics),
            Request.GET_UNIT_TOPIC_LIST: of(lookups.unit_topics),
            Request.GET_HAS_UNIT_SUB_TOPIC_LIST: of(lookups.unit_subscribed_topics),
            Request.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: of(
                partial(lookups.unit_subscribed_topics, not_of_units=True)
            ),
            Request.UPDATE_NAMESRV_CONFIG: self._update_config,
            Request.GET_NAMESRV_CONFIG: self._get_config,
        }

    # --- connections ---

    def on_close(self, connection: Connection, error: Exception | None) -> None:
        for name in self._routes.connection_lost(connection):
            logger.warning("broker %s: gone, its connection %s closed", name, connection.peer)

    def on_commands(self, connection: Connection, requests: list[Command]) -> None:
        before = monotonic()
        for command in requests:
            answer = self._answer(connection, command)
            if answer is not None:
                self.request_log.refused(connection, command, answer)
                if not command.is_oneway:
                    connection.send(answer)
            now = monotonic()
            if now - before >= self.request_log.slow_s:
                self.request_log.slow(connection, command, now - before)
            before = now

    def _answer(self, connection: Connection, command: Command) -> Command | None:
        handle = self._handles.get(command.code)
        if handle is None:
            remark = f" request type {command.code} not supported"
            return command.answer(Response.REQUEST_CODE_NOT_SUPPORTED, remark)
        try:
            return handle(connection, command)
        except FieldError as error:
            return command.answer(Response.SYSTEM_ERROR, str(error))
        except Exception as error:
            # Whatever one request meets, the others and their connections go on.
            logger.exception("request code %d of %s failed", command.code, connection.peer)
            return command.answer(Response.SYSTEM_ERROR, f"{type(error).__name__}: {error}")

    # --- brokers ---

    def _register(self, connection: Connection, command: Command) -> Command:
        header = RegisterBroker.read(command.fields)
        if header.body_crc32 not in (0, body_crc32(command.body)):  # 0: it sent none
            return command.answer(Response.SYSTEM_ERROR, "crc32 not match", fields={})
        body = _read_registration(command, header)
        delete = self.config.delete_topics_on_registration
        found = self._routes.register(header, body, connection, delete_topics=delete)
        if found is None:
            return command.answer(Response.SYSTEM_ERROR, "register broker failed", fields={})
        fields = RegisterBrokerAnswer(
            master_addr=found.master_addr, ha_server_addr=found.ha_server_addr
        ).write()
        return command.answer(fields=fields, body=self._order_topics())

    def _order_topics(self) -> bytes:
        if not self.config.return_order_topics:
            return b""
        table = self._kv.namespace(ORDER_TOPICS)
        return b"" if table is None else KvTable(table=table).encode()

    def _unregister(self, connection: Connection, command: Command) -> Command:
        header = UnregisterBroker.read(command.fields)
        address = (header.cluster_name, header.broker_addr)
        self._routes.unregister(header.broker_name, address)
        logger.info("broker %s at %s: unregistered", header.broker_name, header.broker_addr)
        return command.answer()

    def _query_data_version(self, connection: Connection, command: Command) -> Command:
        header = QueryDataVersion.read(command.fields)
        address = (header.cluster_name, header.broker_addr)
        changed = self._routes.is_changed(address, DataVersion.decode(command.body))
        self._routes.touch(address)
        known = self._routes.data_version(address)
        body = b"" if known is None else known.encode()
        return command.answer(fields=QueryDataVersionAnswer(changed=changed).write(), body=body)

    def _heartbeat(self, connection: Connection, command: Command) -> Command:
        header = BrokerHeartbeat.read(command.fields)
        self._routes.touch((header.cluster_name, header.broker_addr))
        return command.answer()

    def _wipe_write_perm(self, connection: Connection, command: Command) -> Command:
        header = ChangeWritePerm.read(command.fields)
        count = self._routes.wipe_write_perm(header.broker_name)
        logger.info("broker %s: %d topics without the right to write", header.broker_name, count)
        return command.answer(fields=WipeWritePermAnswer(wipe_topic_count=count).write())

    def _add_write_perm(self, connection: Connection, command: Command) -> Command:
        header = ChangeWritePerm.read(command.fields)
        count = self._routes.add_write_perm(header.broker_name)
        logger.info("broker %s: %d topics with the right to write", header.broker_name, count)
        return command.answer(fields=AddWritePermAnswer(add_topic_count=count).write())

    # --- routes and lists ---

    def _get_route(self, connection: Connection, command: Command) -> Command:
        if not self._is_ready():
            return command.answer(Response.SYSTEM_ERROR, "name server not ready")
        fields = command.fields or {}
        topic = fields.get("topic", "null")
        body = self._zone_route(command) if "__ZONE_MODE" in fields else self._route(topic)
        if body is None:
            return command.answer(Response.TOPIC_NOT_EXIST, _NO_ROUTE.format(topic=topic))
        self._was_asked = True
        return command.answer(body=body)

    def _is_ready(self) -> bool:
        """Return whether routes may be given out: right after the start they may miss most brokers."""
        if not self.config.wait_for_service or self._was_asked:
            return True
        return self._clock.monotonic_ms() - self._started_ms >= self.config.wait_for_service_ms

    def _route(self, topic: str) -> bytes | None:
        if self._encoded_version != self._routes.version or len(self._encoded) > _ROUTES_KEPT_MAX:
            self._encoded.clear()
            self._encoded_version = self._routes.version
        body = self._encoded.get(topic)
        if body is None:
            found = self._find_route(topic)
            if found is None:
                return None
            body = self._encoded[topic] = found.encode(quote_keys=True)
        return body

    def _find_route(self, topic: str) -> TopicRoute | None:
        acting = self.config.support_acting_master
        found = lookups.route(self._routes, topic, acting_master=acting)
        if found is not None and self.config.order_message_enable:
            found.order_topic_conf = self._kv.get(ORDER_TOPICS, topic)
        return found

    def _zone_route(self, command: Command) -> bytes | None:
        header = GetRoute.read(command.fields)
        found = self._find_route(header.topic)
        if found is not None and header.zone_mode and header.zone_name:
            found = lookups.in_zone(found, header.zone_name)
        return None if found is None else found.encode(quote_keys=True)

    def _list_of(self, find: Callable[[RouteTable], Body]) -> Handle:
        def handle(connection: Connection, command: Command) -> Command:
            if not self.config.list_topics and command.code in _UNIT_LISTS:
                return command.answer(Response.SYSTEM_ERROR, "disable")
            return command.answer(body=find(self._routes).encode(quote_keys=True))

        return handle

    def _get_members(self, connection: Connection, command: Command) -> Command:
        header = GetBrokerMembers.read(command.fields)
        found = lookups.members(self._routes, header.cluster_name, header.broker_name)
        return command.answer(body=found.encode(quote_keys=True))

    def _get_all_topics(self, connection: Connection, command: Command) -> Command:
        if not self.config.list_all_topics:
            return command.answer(Response.SYSTEM_ERROR, "disable")
        return command.answer(body=lookups.all_topics(self._routes).encode())

    def _get_topics_of_cluster(self, connection: Connection, command: Command) -> Command:
        if not self.config.list_topics:
            return command.answer(Response.SYSTEM_ERROR, "disable")
        header = GetTopicsByCluster.read(command.fields)
        return command.answer(body=lookups.topics_of_cluster(self._routes, header.cluster).encode())

    def _delete_topic(self, connection: Connection, command: Command) -> Command:
        header = DeleteTopicInNamesrv.read(command.fields)
        self._routes.delete_topic(header.topic, header.cluster_name or None)
        return command.answer()

    def _register_topic(self, connection: Connection, command: Command) -> Command:
        header = TopicHeader.read(command.fields)
        route = TopicRoute.decode(command.body) if command.body else TopicRoute()
        self._routes.add_topic(header.topic, route.queue_datas)
        return command.answer()

    # --- key-value config ---

    def _put_kv(self, connection: Connection, command: Command) -> Command | None:
        fields = command.fields or {}
        namespace, key, value = (fields.get(name) for name in ("namespace", "key", "value"))
        if namespace is None or key is None:
            return command.answer(Response.SYSTEM_ERROR, "namespace or key is null")
        if value is None:
            raise FieldError("value", "is missing")
        self._kv.put(namespace, key, value)
        self._save_and_answer(connection, command)
        return None

    def _delete_kv(self, connection: Connection, command: Command) -> Command | None:
        fields = command.fields or {}
        namespace, key = fields.get("namespace"), fields.get("key")
        if namespace is None or key is None:
            return command.answer(Response.SYSTEM_ERROR, "namespace or key is null")
        self._kv.delete(namespace, key)
        self._save_and_answer(connection, command)
        return None

    def _save_and_answer(self, connection: Connection, command: Command) -> None:
        """Answer as soon as the table is on the disk."""
        self._encoded_version = -1

        def on_saved(error: Exception | None) -> None:
            if command.is_oneway:
                return
            if error is None:
                connection.send(command.answer())
            else:
                remark = f"the key-value config is changed, but could not be saved: {error}"
                connection.send(command.answer(Response.SYSTEM_ERROR, remark))

        self._save_kv(on_saved)

    def _get_kv(self, connection: Connection, command: Command) -> Command:
        header = GetKv.read(command.fields)
        value = self._kv.get(header.namespace, header.key)
        if value is None:
            remark = f"No config item, Namespace: {header.namespace} Key: {header.key}"
            return command.answer(Response.QUERY_NOT_FOUND, remark, fields={})
        return command.answer(fields=GetKvAnswer(value=value).write())

    def _get_kv_list(self, connection: Connection, command: Command) -> Command:
        header = GetKvList.read(command.fields)
        table = self._kv.namespace(header.namespace)
        if table is None:
            remark = f"No config item, Namespace: {header.namespace}"
            return command.answer(Response.QUERY_NOT_FOUND, remark)
        return command.answer(body=KvTable(table=table).encode())

    # --- settings ---

    def _get_config(self, connection: Connection, command: Command) -> Command:
        lines = (f"{key}={value}\n" for key, value in self.config.properties().items())
        return command.answer(body="".join(lines).encode())

    def _update_config(self, connection: Connection, command: Command) -> Command | None:
        """Change settings: all of them, or none and the answer says why."""
        text = command.body.decode("utf-8", "replace")
        asked = {key: value for _, key, value in parse_properties(text)}
        change = plan_change(self.config, asked, self._log)
        if change.code != Response.SUCCESS or not change.settings:
            return command.answer(change.code, change.remark)

        def on_kept(error: Exception | None) -> None:
            if error is None:
                self._use(self.config.changed(change.settings))
                told = {"peer": connection.peer, "settings": change.settings}
                logger.info("settings changed", extra=told)
                answer = command.answer(remark=change.remark)
            else:
                remark = f"the change cannot be kept: {error} Nothing was changed."
                answer = command.answer(Response.SYSTEM_ERROR, remark)
            if not command.is_oneway:
                connection.send(answer)

        self._keep_settings(change.settings, on_kept)
        return None

    def _use(self, config: NamesrvConfig) -> None:
        if self._log is not None and config.logs != self.config.logs:
            self._log.use(config.logs)
        self.config = config
        self.request_log.use_slow_ms(config.logs.slow_request_ms)
        self._encoded_version = -1


_NO_ROUTE: Final = (
    "No topic route info in name server for the topic: {topic}\n"
    "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
)


def _read_registration(command: Command, header: RegisterBroker) -> Registration:
    """Return the registration in a request's body, in whichever form it came. FieldError: there is none."""
    body = command.body
    if not body:
        return Registration()
    # RocketMQ 5.3.3 compresses and says that it does not.
    if header.compressed or body[0] == ZLIB_BYTE:
        return decode_compressed(body, command.version)
    if command.version < WRAPPED_VERSION:
        return Registration(topic_config_serialize_wrapper=TopicTable.decode(body))
    return Registration.decode(body)
