"""Consumer groups for tools: creating, changing, deleting, forbidding."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from admin_world import AdminWorld
from orbitmq.wire.bodies.group_config import GroupConfig, GroupConfigList
from orbitmq.wire.codes import RequestCode, ResponseCode

PUT = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP


@pytest.fixture
def world(tmp_path: Path) -> Iterator[AdminWorld]:
    with AdminWorld(tmp_path) as world:
        yield world


def test_group_is_created_and_changed(world: AdminWorld) -> None:
    first = GroupConfig(group_name="G", retry_max_times=3)
    second = GroupConfig(group_name="G", retry_max_times=5, consume_enable=False)

    for config in (first, second):
        answer = world.request(PUT, config.encode())
        assert (answer.code, answer.remark, answer.fields) == (0, None, None)

    assert world.context.groups.get("G") == second
    told = world.request(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, group="G")
    assert GroupConfig.decode(told.body) == second


def test_many_groups_are_created_together(world: AdminWorld) -> None:
    body = GroupConfigList(group_config_list=[GroupConfig(group_name=name) for name in "AB"])

    many = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST
    assert world.request(many, body.encode()).code == 0

    assert "A" in world.context.groups
    assert "B" in world.context.groups


def test_attributes_of_groups_are_refused_since_there_are_none(world: AdminWorld) -> None:
    config = GroupConfig(group_name="G", attributes={"+nope": "1"})

    answer = world.request(PUT, config.encode())

    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "unsupported key: nope")
    assert "G" not in world.context.groups


def test_body_that_is_no_group_is_refused(world: AdminWorld) -> None:
    for body in (b"", b"[]", b"{", b'{"retryMaxTimes":"many"}'):
        assert world.request(PUT, body).code == ResponseCode.SYSTEM_ERROR


@pytest.mark.parametrize("clean", ["true", "false"])
def test_deleted_group_loses_its_offsets_only_on_request(world: AdminWorld, clean: str) -> None:
    world.context.groups.put(GroupConfig(group_name="G"))
    world.context.offsets.commit("G", "T", 0, 5)

    delete = RequestCode.DELETE_SUBSCRIPTIONGROUP
    assert world.request(delete, groupName="G", cleanOffset=clean).code == 0

    assert "G" not in world.context.groups
    assert world.context.offsets.get("G", "T", 0) == (-1 if clean == "true" else 5)


def test_unknown_group_is_told_where_none_may_be_created(tmp_path: Path) -> None:
    with AdminWorld(tmp_path, auto_create_group=False) as world:
        answer = world.request(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, group="G")

    assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert answer.remark == "No group in this broker"


def test_group_can_be_forbidden_to_read_a_topic(world: AdminWorld) -> None:
    forbid = RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN
    topic = {"group": "G", "topic": "T"}

    assert world.request(forbid, **topic).body == b'{"group":"G","readable":true,"topic":"T"}'
    answer = world.request(forbid, **topic, readable="false")
    assert (answer.code, answer.remark) == (0, "")
    assert world.context.groups.forbidden("G", "T") == 4
    assert json.loads(world.request(forbid, **topic).body)["readable"] is False
    world.request(forbid, **topic, readable="true")
    assert world.context.groups.forbidden("G", "T") == 0
