"""Messages of one producer to one queue are stored in the order in which they were sent."""

from orbitmq.client import Admin, Message, MessageQueue, Producer
from orbitmq.testing import Broker


def test_async_sends_of_a_producer_that_has_no_connection_yet_keep_their_order() -> None:
    with Broker() as broker:
        with Admin(broker.namesrv) as admin:
            admin.create_topic("Ordered", queues=1)
        queue = MessageQueue("Ordered", broker.name, 0)
        with Producer(broker.namesrv, "order") as producer:
            futures = [
                producer.send_async(Message("Ordered", b"%d" % number), queue=queue)
                for number in range(2000)
            ]
            offsets = [future.result().queue_offset for future in futures]

    assert offsets == list(range(2000))
