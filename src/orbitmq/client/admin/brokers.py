"""The admin client's part for brokers and name servers: figures, settings, permissions."""

import asyncio
from collections.abc import Mapping

from orbitmq.client.admin.base import AdminBase
from orbitmq.client.admin.results import BrokerInfo
from orbitmq.errors import WireError
from orbitmq.wire.bodies.lists import KvTable
from orbitmq.wire.bodies.stats import StatsData
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.headers.admin import StatsItemHeader


class BrokerAdmin(AdminBase):
    """Brokers and name servers: look at them, set them."""

    async def clusters(self) -> dict[str, list[str]]:
        """Return the names of the brokers of each cluster."""
        info = await self._namesrv.cluster_info()
        return {name: sorted(info.cluster_addr_table[name]) for name in info.cluster_addr_table}

    async def brokers(
        self, *, cluster: str | None = None, runtime: bool = True
    ) -> list[BrokerInfo]:
        """Return all brokers, with their figures unless `runtime` is False; one that is down is listed."""
        info = await self._namesrv.cluster_info()
        found = [
            BrokerInfo(data.cluster, data.broker_name, broker_id, address)
            for data in info.broker_addr_table.values()
            for broker_id, address in data.broker_addrs.items()
            if cluster is None or data.cluster == cluster
        ]
        found.sort(key=lambda broker: (broker.cluster, broker.name, broker.broker_id))
        if runtime:
            await asyncio.gather(*(self._fill(broker) for broker in found))
        return found

    async def _fill(self, broker: BrokerInfo) -> None:
        try:
            broker.runtime = await self.broker_runtime(broker.address)
        except WireError as failure:
            broker.error = str(failure)

    async def broker_runtime(self, broker: str) -> dict[str, str]:
        """Return the figures that a broker tells of itself; `broker` is a name or an address."""
        address = await self._broker_address(broker)
        answer = await self._ask(address, RequestCode.GET_BROKER_RUNTIME_INFO)
        return KvTable.decode(answer.body).table

    async def broker_config(self, broker: str) -> dict[str, str]:
        """Return the settings of a broker."""
        answer = await self._ask(await self._broker_address(broker), RequestCode.GET_BROKER_CONFIG)
        return properties(answer.body)

    async def update_broker_config(self, broker: str, settings: Mapping[str, str]) -> str | None:
        """Change settings of a running broker; return what it has to say to that, if anything."""
        address, body = await self._broker_address(broker), _settings_body(settings)
        answer = await self._ask(address, RequestCode.UPDATE_BROKER_CONFIG, body=body)
        return answer.remark

    async def broker_stats(self, broker: str, name: str, key: str) -> StatsData:
        """Return one counter over minute, hour and day, as TOPIC_PUT_NUMS of a topic."""
        header = StatsItemHeader(stats_name=name, stats_key=key)
        address = await self._broker_address(broker)
        answer = await self._ask(address, RequestCode.VIEW_BROKER_STATS_DATA, header)
        return StatsData.decode(answer.body)

    async def wipe_write_permission(self, broker_name: str) -> int:
        """Keep producers away from a broker, as before stopping it; return in how many topics."""
        return await self._namesrv.wipe_write_permission(broker_name)

    async def add_write_permission(self, broker_name: str) -> int:
        """Let producers use a broker again; return in how many topics."""
        return await self._namesrv.add_write_permission(broker_name)

    async def namesrv_config(self) -> dict[str, dict[str, str]]:
        """Return the settings of each name server by its address."""
        found = {}
        for address in self._namesrv.addresses:
            answer = await self._ask(address, RequestCode.GET_NAMESRV_CONFIG)
            found[address] = properties(answer.body)
        return found

    async def update_namesrv_config(self, settings: Mapping[str, str]) -> dict[str, str | None]:
        """Change settings of each running name server; return by its address what it has to say to that."""
        body, code = _settings_body(settings), RequestCode.UPDATE_NAMESRV_CONFIG
        return {
            address: (await self._ask(address, code, body=body)).remark
            for address in self._namesrv.addresses
        }

    async def put_kv(self, namespace: str, key: str, value: str) -> None:
        """Write a value of the name servers' key-value config."""
        await self._namesrv.put_kv(namespace, key, value)

    async def get_kv(self, namespace: str, key: str) -> str | None:
        """Return a value of the key-value config; None: there is none."""
        return await self._namesrv.get_kv(namespace, key)

    async def delete_kv(self, namespace: str, key: str) -> None:
        """Delete a value of the key-value config."""
        await self._namesrv.delete_kv(namespace, key)


def properties(body: bytes) -> dict[str, str]:
    """Return the settings of a text of `name=value` lines; brokers write them without escapes."""
    lines = (line.partition("=") for line in body.decode("utf-8", "replace").splitlines())
    return {name.strip(): value.strip() for name, equals, value in lines if equals}


def _settings_body(settings: Mapping[str, str]) -> bytes:
    return "".join(f"{name}={_escaped(value)}\n" for name, value in settings.items()).encode()


def _escaped(value: str) -> str:
    # A broker reads what it gets as Java's .properties, where a backslash begins an escape.
    return value.replace("\\", "\\\\").replace("\n", "\\n")
