"""EtcdCoordinator: etcd 3.4 or newer, by its JSON gateway, which every etcd serves beside gRPC."""

from contextlib import aclosing
from typing import Any, Final

from orbitmq.broker.failover.access import Access
from orbitmq.broker.failover.coordinator import Grant
from orbitmq.broker.failover.place import Place
from orbitmq.errors import (
    ConfigError,
    RemoteProtocolError,
    ResponseError,
    UnreachableError,
    WireError,
)
from orbitmq.net.http import JsonServer
from orbitmq.units import SECOND_MS
from orbitmq.wire import etcd
from orbitmq.wire.bodies.failover import FailoverState, Seen

_OK: Final = 200


class EtcdCoordinator:
    """The servers of one etcd. Belongs to the event loop's thread.

    A server that does not answer is left for the next one; a question that may have been done is not
    repeated by itself, but asking again does no harm: every change says what it was made from.
    ConfigError: a file that says how to get in cannot be used.
    """

    def __init__(
        self, place: Place, cluster: str, name: str, timeout_ms: float, access: Access | None = None
    ) -> None:
        self._access = access or Access()
        self._token = ""  # what the user is known by
        tls = self._access.tls_context() if place.tls else None
        if self._access.user:
            self._access.password()  # one that cannot be read is told now
        self._servers = [JsonServer(address, tls) for address in place.servers]
        self._keys = etcd.Keys.of(place.prefix, cluster, name)
        self._timeout_ms = timeout_ms

    async def look(self) -> Seen:
        return etcd.found(await self._ask(etcd.read(self._keys)), self._keys)

    async def grant(self, ms: int) -> Grant:
        lease, seconds = etcd.granted(await self._ask(etcd.grant(-(-ms // SECOND_MS))))
        return Grant(lease, seconds * SECOND_MS)

    async def keep(self, lease: int) -> int:
        try:
            return etcd.kept(await self._ask(etcd.keep_alive(lease))) * SECOND_MS
        except ResponseError as error:
            if error.code == etcd.NOT_FOUND:
                return 0
            raise

    async def revoke(self, lease: int) -> None:
        try:
            await self._ask(etcd.revoke(lease))
        except ResponseError as error:
            if error.code != etcd.NOT_FOUND:
                raise

    async def take(self, before: Seen, state: FailoverState, member: str, lease: int) -> int:
        asked = etcd.take(self._keys, before, state, member, lease)
        return etcd.changed(await self._ask(asked))

    async def change(self, before: Seen, state: FailoverState) -> int:
        return etcd.changed(await self._ask(etcd.change(self._keys, before, state)))

    async def wait_change(self, seen: Seen) -> None:
        path, body = etcd.watch(self._keys, seen.at)
        stream = self._servers[0].stream(path, body, self._timeout_ms, self._token)
        async with aclosing(stream) as lines:
            async for line in lines:
                if etcd.is_news(line):
                    return
        raise UnreachableError(self._servers[0].address, "it ended a watch")

    def close(self) -> None:
        for server in self._servers:
            server.close()

    async def _ask(self, asked: etcd.Request) -> Any:
        """Ask as the user that is configured, if there is one; a token that has ended is replaced."""
        if not self._access.user:
            return await self._ask_any(asked)
        if self._token:
            try:
                return await self._ask_any(asked)
            except ResponseError as error:
                if error.code != etcd.UNAUTHENTICATED:
                    raise
        self._token = ""
        try:
            password = self._access.password()
        except ConfigError as error:
            raise UnreachableError(self._servers[0].address, str(error)) from error
        told = await self._ask_any(etcd.authenticate(self._access.user, password))
        self._token = etcd.authenticated(told)
        return await self._ask_any(asked)

    async def _ask_any(self, asked: etcd.Request) -> Any:
        """Ask the server that answered last, else the next ones. WireError: nobody answers."""
        failure: WireError | None = None
        for server in list(self._servers):
            try:
                status, answer = await server.ask(
                    asked.path, asked.body, self._timeout_ms, self._token
                )
            except WireError as error:
                failure = failure or error
                self._servers = [*(s for s in self._servers if s is not server), server]
                continue
            if status == _OK:
                return answer
            code, words = etcd.refusal(answer)
            raise ResponseError(code or status, words, server.address)
        raise failure or RemoteProtocolError("no server of etcd is known")
