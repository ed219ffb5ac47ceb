"""Calls: commands to an address and their answers, with everything that all requests have in common.

Header encoding, timeouts, the signature of ACL 1.0, answers that say no (ResponseError with a next
step), and GO_AWAY: a broker that is about to stop asks for a new connection; the request is sent once
more over it, and the old connection may finish what is on its way.
"""

import asyncio
import base64
import hashlib
import hmac
from collections.abc import Mapping
from typing import Final

from orbitmq.client.core.config import ClientConfig
from orbitmq.errors import ResponseError
from orbitmq.net.channels import Channels
from orbitmq.net.connection import Connection
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command, Encoding

_BINARY_CODE_MAX: Final = 0x7FFF

_ADVICE: Final[Mapping[int, str]] = {
    ResponseCode.SYSTEM_BUSY: "The broker is overloaded: send less, or try again later.",
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: "This server does not know the request.",
    ResponseCode.MESSAGE_ILLEGAL: "Look at the size of the message (4 MiB) and of its properties.",
    ResponseCode.SERVICE_NOT_AVAILABLE: "The store takes no writes: look at the broker's log and disk.",
    ResponseCode.NO_PERMISSION: "Look at the permissions of topic, group and broker.",
    ResponseCode.TOPIC_NOT_EXIST: "Create the topic: `orbitmq topic create`.",
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: "Create the group: `orbitmq group create`.",
    ResponseCode.CONSUMER_NOT_ONLINE: "Start a consumer of the group.",
}


def response_error(answer: Command, peer: str) -> ResponseError:
    """Return what an answer with a code other than 0 means."""
    remark = answer.remark or "no remark"
    # OrbitMQ's own remarks are sentences that say what to do; RocketMQ's are not.
    advice = "" if remark.endswith(".") else _ADVICE.get(answer.code, "")
    return ResponseError(answer.code, remark, peer, advice)


class Calls:
    """Requests to brokers and name servers. Belongs to its loop's thread."""

    def __init__(self, config: ClientConfig, channels: Channels) -> None:
        self.config, self.channels = config, channels

    def command(
        self, code: int, fields: dict[str, str] | None = None, body: bytes = b""
    ) -> Command:
        """Return a request in our encoding, signed where keys are set."""
        # A binary header has 16 bits for the code: to a pop RocketMQ would say that it knows no such request.
        encoding = self.config.encoding if code <= _BINARY_CODE_MAX else Encoding.JSON
        command = Command(code, fields, body, encoding=encoding)
        if self.config.access_key:
            sign(command, self.config)
        return command

    async def request(
        self,
        address: str,
        code: int,
        fields: dict[str, str] | None = None,
        body: bytes = b"",
        *,
        timeout_ms: float = 0,
    ) -> Command:
        """Return the answer, whatever its code. `timeout_ms` 0: the configured one. WireError."""
        timeout_ms = timeout_ms or self.config.request_timeout_ms
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        answer = await self.channels.request(address, self.command(code, fields, body), timeout_ms)
        if answer.code != ResponseCode.GO_AWAY:
            return answer
        self.retire(address)
        left_ms = (deadline - loop.time()) * 1000
        if left_ms <= 0:
            return answer
        return await self.channels.request(address, self.command(code, fields, body), left_ms)

    async def checked(
        self,
        address: str,
        code: int,
        fields: dict[str, str] | None = None,
        body: bytes = b"",
        *,
        timeout_ms: float = 0,
        also: frozenset[int] = frozenset(),
    ) -> Command:
        """Return the answer if its code is 0 or one of `also`. ResponseError for any other."""
        answer = await self.request(address, code, fields, body, timeout_ms=timeout_ms)
        if answer.code != ResponseCode.SUCCESS and answer.code not in also:
            raise response_error(answer, address)
        return answer

    async def oneway(
        self, address: str, code: int, fields: dict[str, str] | None = None, body: bytes = b""
    ) -> None:
        """Send a request that is not answered. UnreachableError: there is no connection."""
        await self.channels.oneway(address, self.command(code, fields, body))

    def retire(self, address: str, connection: Connection | None = None) -> None:
        """Let the next request to this address make a new connection; requests on the old one go on."""
        current = self.channels.get_nowait(address)
        if current is not None and (connection is None or current is connection):
            self.channels.retire(address, self.config.send_timeout_ms)

    def vip(self, address: str) -> str:
        """Return the address for requests other than pulls: the port minus 2 where that is configured."""
        if not self.config.vip_channel:
            return address
        host, _, port = address.rpartition(":")
        return f"{host}:{int(port) - 2}"


def sign(command: Command, config: ClientConfig) -> None:
    """Prove that we know the secret key (ACL 1.0): add AccessKey, SecurityToken and Signature."""
    fields = command.fields = dict(command.fields or {})
    fields["AccessKey"] = config.access_key
    if config.security_token:
        fields["SecurityToken"] = config.security_token
    fields["Signature"] = signature(fields, command.body, config.secret_key)


def signature(fields: dict[str, str], body: bytes, secret_key: str) -> str:
    """Return base64(HMAC-SHA1(values in the order of their names, then the body))."""
    values = [fields[name].encode() for name in sorted(fields) if name != "Signature"]
    digest = hmac.digest(secret_key.encode(), b"".join((*values, body)), hashlib.sha1)
    return base64.b64encode(digest).decode()
