"""Consumer groups for tools: create, change, delete, list, and topics that a group may not read."""

from collections.abc import Sequence
from typing import Final

from orbitmq.broker.processors.processor import Processor, answers
from orbitmq.broker.refusal import Refusal
from orbitmq.net.connection import Connection
from orbitmq.wire.bodies.group_config import GroupConfig, GroupConfigList
from orbitmq.wire.bodies.stats import GroupForbidden
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers.admin import DeleteGroupHeader, GroupForbiddenHeader, GroupHeader

READ_BIT: Final = 4
"""Bit of what is forbidden to a group: it may not read the topic."""


class GroupsAdminProcessor(Processor):
    """Answers what tools ask about consumer groups."""

    @answers(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP)
    def _put(self, connection: Connection, request: Command) -> Command:
        self._put_checked([GroupConfig.decode(request.body)])
        return request.answer()

    @answers(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST)
    def _put_many(self, connection: Connection, request: Command) -> Command:
        self._put_checked(GroupConfigList.decode(request.body).group_config_list)
        return request.answer()

    def _put_checked(self, configs: Sequence[GroupConfig]) -> None:
        for config in configs:
            for change in config.attributes:
                # Groups have no attributes yet; RocketMQ says so in these words.
                name = change.lstrip("+-")
                raise Refusal(ResponseCode.SYSTEM_ERROR, f"unsupported key: {name}")
        self._context.groups.put_many(configs)

    @answers(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    def _all(self, connection: Connection, request: Command) -> Command:
        return request.answer(body=self._context.groups.body().encode())

    @answers(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG)
    def _get(self, connection: Connection, request: Command) -> Command:
        group = GroupHeader.read(request.fields).group
        config = self._context.groups.get_or_create(group)
        if config is None:
            remark = "No group in this broker"
            raise Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        return request.answer(body=config.encode())

    @answers(RequestCode.DELETE_SUBSCRIPTIONGROUP)
    def _delete(self, connection: Connection, request: Command) -> Command:
        header = DeleteGroupHeader.read(request.fields)
        context = self._context
        context.groups.delete(header.group_name)
        if header.clean_offset:
            context.offsets.remove_group(header.group_name)
        context.statistics.forget_group(header.group_name)
        return request.answer()

    @answers(RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN)
    def _forbidden(self, connection: Connection, request: Command) -> Command:
        header = GroupForbiddenHeader.read(request.fields)
        groups = self._context.groups
        bits = groups.forbidden(header.group, header.topic)
        if header.readable is not None:
            bits = bits & ~READ_BIT if header.readable else bits | READ_BIT
            groups.set_forbidden(header.group, header.topic, bits)
        readable = not bits & READ_BIT
        body = GroupForbidden(group=header.group, topic=header.topic, readable=readable)
        return request.answer(remark="", body=body.encode())
