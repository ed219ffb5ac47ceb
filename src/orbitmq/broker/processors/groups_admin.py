"""Consumer groups for tools: create, change, delete, list, and topics that a group may not read."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from orbitmq.broker.context import BrokerContext
from orbitmq.broker.refusal import Refusal
from orbitmq.broker.router import RequestHandler
from orbitmq.wire.bodies.group_config import GroupConfig, GroupConfigList
from orbitmq.wire.bodies.stats import GroupForbidden
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers.admin import DeleteGroupHeader, GroupForbiddenHeader, GroupHeader

if TYPE_CHECKING:
    from orbitmq.net.connection import Connection

READ_BIT: Final = 4
"""Bit of what is forbidden to a group: it may not read the topic."""


class GroupsAdminProcessor:
    """Answers what tools ask about consumer groups."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context

    def handlers(self) -> Mapping[int, RequestHandler]:
        return {
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self._put,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: self._put_many,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self._all,
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: self._get,
            RequestCode.DELETE_SUBSCRIPTIONGROUP: self._delete,
            RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: self._forbidden,
        }

    def _put(self, connection: "Connection", request: Command) -> Command:
        self._store([GroupConfig.decode(request.body)])
        return request.answer()

    def _put_many(self, connection: "Connection", request: Command) -> Command:
        self._store(GroupConfigList.decode(request.body).group_config_list)
        return request.answer()

    def _store(self, configs: Sequence[GroupConfig]) -> None:
        for config in configs:
            for change in config.attributes:
                # Groups have no attributes yet; RocketMQ says so in these words.
                name = change.lstrip("+-")
                raise Refusal(ResponseCode.SYSTEM_ERROR, f"unsupported key: {name}")
        self._context.groups.put_many(configs)

    def _all(self, connection: "Connection", request: Command) -> Command:
        return request.answer(body=self._context.groups.body().encode())

    def _get(self, connection: "Connection", request: Command) -> Command:
        group = GroupHeader.read(request.fields).group
        config = self._context.groups.get_or_create(group)
        if config is None:
            remark = "No group in this broker"
            raise Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        return request.answer(body=config.encode())

    def _delete(self, connection: "Connection", request: Command) -> Command:
        header = DeleteGroupHeader.read(request.fields)
        context = self._context
        context.groups.delete(header.group_name)
        if header.clean_offset:
            context.offsets.remove_group(header.group_name)
        context.statistics.forget_group(header.group_name)
        return request.answer()

    def _forbidden(self, connection: "Connection", request: Command) -> Command:
        header = GroupForbiddenHeader.read(request.fields)
        groups = self._context.groups
        bits = groups.forbidden(header.group, header.topic)
        if header.readable is not None:
            bits = bits & ~READ_BIT if header.readable else bits | READ_BIT
            groups.set_forbidden(header.group, header.topic, bits)
        readable = not bits & READ_BIT
        body = GroupForbidden(group=header.group, topic=header.topic, readable=readable)
        return request.answer(remark="", body=body.encode())
