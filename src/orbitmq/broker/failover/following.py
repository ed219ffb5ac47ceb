"""Follow the primary that a coordinator tells, as its replica or as the primary before it."""

from typing import Final

from orbitmq.broker.context import BrokerContext
from orbitmq.broker.replication.replica import Replica
from orbitmq.broker.replication.succession import Succession, ask_epochs
from orbitmq.errors import WireError
from orbitmq.net.channels import Channels
from orbitmq.units import SECOND_MS
from orbitmq.wire.bodies.replication import EpochsAnswer
from orbitmq.wire.headers.registration import RegisterBrokerAnswer

ASK_MS: Final = 1 * SECOND_MS


async def lead(context: BrokerContext, name: str, address: str) -> None:
    """Have a replica follow this broker, if it says itself that it is the primary."""
    replica = context.replication
    if not isinstance(replica, Replica) or (replica.address == address and replica.connected):
        return
    its = await _asked(address)
    known = context.succession.epochs.number
    if its.primary and its.broker_name == name and its.epochs and its.epochs[-1].number >= known:
        where = RegisterBrokerAnswer(ha_server_addr=its.ha_address, master_addr=address)
        replica.follow(where)
        if context.state_sync is not None:
            context.state_sync.use_primary(where)


async def demote(succession: Succession, address: str) -> None:
    """Become the replica of this broker if it says itself that it came after us, else WireError."""
    its = await _asked(address)
    if not succession.is_above(its):
        raise WireError(address, "is not the primary yet that the coordinator says it is")
    succession.demote(address, its)


async def _asked(address: str) -> EpochsAnswer:
    channels = Channels()
    try:
        return await ask_epochs(channels, address, ASK_MS)
    finally:
        await channels.close()
