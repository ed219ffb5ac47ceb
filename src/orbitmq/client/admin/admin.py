"""AsyncAdmin: look at a cluster and change it, from asyncio code.

async with AsyncAdmin("127.0.0.1:9876") as admin:
    await admin.create_topic("Orders", queues=4)
    progress = await admin.progress("orders-service")
    print(progress.lag, progress.queues[0].lag)
    message = (await admin.messages_by_key("Orders", "order-17"))[0]
"""

from orbitmq.client.admin.group_samples import GroupSamples
from orbitmq.client.admin.offsets import OffsetAdmin
from orbitmq.client.admin.replicas import ReplicaAdmin
from orbitmq.client.admin.traces import TraceAdmin


class AsyncAdmin(OffsetAdmin, GroupSamples, TraceAdmin, ReplicaAdmin):
    """An admin client for asyncio code. Belongs to the loop in which it was opened."""
