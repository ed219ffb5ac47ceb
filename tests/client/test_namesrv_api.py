"""Asking name servers."""

import pytest

from async_run import run_async
from fake_cluster import FakeNamesrv, refuse
from golden_frames import frames
from orbitmq.client.core.calls import Calls
from orbitmq.client.core.config import ClientConfig
from orbitmq.client.core.namesrv_api import NamesrvApi
from orbitmq.errors import ResponseError, UnreachableError
from orbitmq.net.channels import Channels
from orbitmq.wire.bodies.route import TopicRoute
from orbitmq.wire.codes import RequestCode


def run_with_servers(test, count=1):
    async def main():
        servers = [FakeNamesrv() for _ in range(count)]
        for server in servers:
            await server.start()
        addresses = tuple(server.address for server in servers)
        calls = Calls(ClientConfig(namesrv=addresses), Channels())
        try:
            await test(servers, NamesrvApi(calls))
        finally:
            await calls.channels.close()
            for server in servers:
                await server.stop()

    run_async(main)


def recorded(code: int, answer_code: int = 0) -> bytes:
    for name in ("java-json/producer", "java-json/mqadmin", "java-binary/producer"):
        for frame in frames(name):
            if not frame.to_server and frame.request_code == code:
                command = frame.command
                if command.code == answer_code and command.body:
                    return command.body
    raise AssertionError(f"no answer of {code} was recorded")


def replay(server: FakeNamesrv, code: int) -> None:
    body = recorded(code)
    server.reactions[code] = lambda connection, request: request.answer(body=body)


def test_answers_of_a_java_name_server():
    async def test(servers, api):
        for code in (105, 106, 206):
            replay(servers[0], code)

        route = await api.route("T")
        info = await api.cluster_info()
        topics = await api.topics()

        assert route.broker_datas[0].primary == "127.0.0.2:11311"
        assert info.cluster_addr_table == {"DefaultCluster": ["broker-a"]}
        assert "TBW102" in topics

    run_with_servers(test)


def test_an_unknown_topic_is_no_error():
    async def test(servers, api):
        assert await api.route("Nowhere") is None

    run_with_servers(test)


def test_the_next_server_is_asked_when_one_is_down_and_stays_chosen():
    async def test(servers, api):
        for server in servers:
            server.routes["T"] = TopicRoute()
        down = next(server for server in servers if server.address == api.chosen)
        await down.stop()

        for _ in range(5):
            assert await api.route("T") is not None

        others = [len(server.requests) for server in servers if server is not down]
        assert sorted(others) == [0, 5]

    run_with_servers(test, count=3)


def test_the_first_server_is_any():
    calls = Calls(ClientConfig(namesrv=("a:1", "b:2", "c:3")), Channels())

    assert {NamesrvApi(calls).chosen for _ in range(100)} == {"a:1", "b:2", "c:3"}


def test_all_down_says_which_and_what_to_do():
    async def test(servers, api):
        for server in servers:
            await server.stop()

        with pytest.raises(UnreachableError, match="orbitmq namesrv run") as caught:
            await api.route("T")
        assert all(server.address in str(caught.value) for server in servers)

    run_with_servers(test, count=2)


def test_a_refusal_is_not_asked_again_elsewhere():
    async def test(servers, api):
        for server in servers:
            server.reactions[RequestCode.GET_BROKER_CLUSTER_INFO] = refuse(1, "broken")

        with pytest.raises(ResponseError, match="broken"):
            await api.cluster_info()
        assert sum(len(server.requests) for server in servers) == 1

    run_with_servers(test, count=2)


def test_changes_go_to_all_servers():
    async def test(servers, api):
        for server in servers:
            server.reactions[RequestCode.PUT_KV_CONFIG] = lambda c, request: request.answer()
            server.reactions[RequestCode.WIPE_WRITE_PERM_OF_BROKER] = lambda c, request: (
                request.answer(fields={"wipeTopicCount": "3"})
            )

        await api.put_kv("n", "k", "v")
        assert await api.wipe_write_permission("broker-a") == 3

        for server in servers:
            assert server.requests[0].fields == {"namespace": "n", "key": "k", "value": "v"}

    run_with_servers(test, count=2)


def test_values_that_are_not_there():
    async def test(servers, api):
        servers[0].reactions[101] = refuse(22)

        assert await api.get_kv("n", "k") is None

    run_with_servers(test)
