"""What works in a broker beside requests, and whether it really does: asked of threads, tasks and ports."""

from orbitmq.broker.context import BrokerContext
from orbitmq.wire.bodies.lists import SERVICE_PREFIX


def service_states(context: BrokerContext) -> dict[str, str]:
    """Return the state of each service by its name: "running", perhaps with what it does, or "stopped"."""
    states = context.store.services()
    if context.replication is not None:
        states["replication"] = context.replication.state
    if context.state_sync is not None:
        states["state of the primary"] = context.state_sync.state
    if context.failover is not None:
        states["failover"] = context.failover.state
    return states | context.jobs.states()


def service_figures(context: BrokerContext) -> dict[str, str]:
    """Return the states as runtime figures."""
    states = service_states(context).items()
    return {f"{SERVICE_PREFIX}{name.replace(' ', '-')}": state for name, state in states}
