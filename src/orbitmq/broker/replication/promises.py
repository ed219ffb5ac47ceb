"""Promises: before a replica becomes the primary, the others of its name leave the primary before it.

Else one of them could go on with a primary that was only paused or cut off, and these two would acknowledge
what is cut off later. Who promises an epoch ends its connection, keeps the promise on its disk, follows
nobody of a lower epoch from then on, and tells how long its log is: everything that the primary before
acknowledged with its help lies before that.
"""

import asyncio
import logging
from typing import Final, NamedTuple

from orbitmq.broker.context import BrokerContext
from orbitmq.broker.replication.members import members
from orbitmq.errors import OrbitError, ResponseError
from orbitmq.net.channels import Channels
from orbitmq.units import SECOND_MS
from orbitmq.wire.bodies.replication import PromiseAnswer, PromiseBody
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command

logger = logging.getLogger(__name__)

ASK_MS: Final = 5 * SECOND_MS


class Promises(NamedTuple):
    """What the other replicas of a name have promised."""

    number: int  # of the epoch that may begin
    given: dict[str, int]  # how long the log of each one is, by its address
    refused: dict[str, str]  # why somebody gave none

    def problem(self, log_end: int, in_sync: int) -> str:
        """Return why a log of this length should not be the primary's; empty: it may.

        The primary before acknowledges what `in_sync` brokers have, itself included: fewer than it
        needs must be left to it.
        """
        longest = max(self.given, key=lambda address: self.given[address], default="")
        if longest and self.given[longest] > log_end:
            return f"{longest} has {self.given[longest] - log_end} bytes more: promote that one"
        if in_sync > 1 and len(self.refused) >= in_sync - 1:
            told = "; ".join(f"{address}: {why}" for address, why in self.refused.items())
            return (
                f"others may go on with the primary before, and do not promise to leave it: {told}"
            )
        return ""


async def gather(context: BrokerContext, number: int, former: str) -> Promises:
    """Have all replicas promise who name servers know, the primary before left out."""
    channels = Channels()
    try:
        known = await members(context.config, channels)
        left_out = context.address, former
        others = [a for broker_id, a in known.items() if broker_id and a not in left_out]
        asked = (_ask(channels, context, address, number) for address in others)
        answers = dict(zip(others, await asyncio.gather(*asked), strict=True))
    finally:
        await channels.close()
    told = {a: one for a, one in answers.items() if isinstance(one, PromiseAnswer)}
    return Promises(
        max([number, *(one.number for one in told.values())]),
        {address: one.log_end for address, one in told.items()},
        {address: str(one) for address, one in answers.items() if isinstance(one, Exception)},
    )


async def _ask(
    channels: Channels, context: BrokerContext, address: str, number: int
) -> PromiseAnswer | Exception:
    body = PromiseBody(broker_name=context.config.name, number=number).encode()
    try:
        answer = await channels.request(
            address, Command(RequestCode.PROMISE_EPOCH, {}, body), ASK_MS
        )
        if answer.code != ResponseCode.SUCCESS:
            raise ResponseError(answer.code, answer.remark or "", address)
        return PromiseAnswer.decode(bytes(answer.body))
    except (OrbitError, OSError) as error:
        logger.warning("replica %s: promises nothing: %s", address, error)
        return error
