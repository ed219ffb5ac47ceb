"""Giving a message back that could not be handled, so that it comes again later or ends as a dead letter.

First the broker that has it is asked (36). Where that fails, the message is sent to the group's retry
topic like any other, with properties that say how often it was tried.
"""

import logging
from typing import Final

from orbitmq.client.consumer.context import ConsumerContext
from orbitmq.client.consumer.delivery import RETRY_TOPIC
from orbitmq.client.core.message import Message, ReceivedMessage
from orbitmq.client.producer.producer import send_inner
from orbitmq.errors import OrbitError, WireError
from orbitmq.message import Property
from orbitmq.wire.headers.send_back import SendBackHeader

_log = logging.getLogger(__name__)

ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
RECONSUME_TIME: Final = "RECONSUME_TIME"
MAX_RECONSUME_TIMES: Final = "MAX_RECONSUME_TIMES"
TRAN_MSG: Final = "TRAN_MSG"
FIRST_RETRY_LEVEL: Final = 3
"""The delay level of the first retry; each further one is a level higher."""


class SendBack:
    """Gives messages back for one consumer. Belongs to its loop's thread."""

    def __init__(self, context: ConsumerContext) -> None:
        self._context = context

    async def give_back(self, message: ReceivedMessage, level: int) -> bool:
        """Have a message delivered again later; return False if nobody took it."""
        try:
            await self._ask_broker(message, level)
        except WireError as failure:
            _log.warning(
                "message %s: not given back to %s, sent to the retry topic instead: %s",
                message.message_id,
                message.broker_name,
                failure,
            )
            return await self.send_to_retry_topic(message, message.reconsume_times + 1)
        return True

    async def _ask_broker(self, message: ReceivedMessage, level: int) -> None:
        context = self._context
        address = (
            await context.core.routes.find_address(message.broker_name, message.topic)
            if message.broker_name
            else message.store_host
        )
        header = SendBackHeader(
            offset=message.log_offset,
            group=context.group,
            delay_level=level,
            origin_msg_id=message.message_id,
            origin_topic=message.topic,
            max_reconsume_times=context.config.reconsume_limit,
            bname=message.broker_name,
        )
        await context.core.brokers.send_back(address, header)

    async def send_to_retry_topic(self, message: ReceivedMessage, reconsume_times: int) -> bool:
        """Send a copy to the retry topic; return False if that failed."""
        try:
            await send_inner(self._context.core, self._retry_message(message, reconsume_times))
        except OrbitError as failure:
            _log.warning("message %s: not given back: %s", message.message_id, failure)
            return False
        return True

    def _retry_message(self, message: ReceivedMessage, reconsume_times: int) -> Message:
        properties = dict(message.properties)
        properties.pop(TRAN_MSG, None)
        properties.setdefault(ORIGIN_MESSAGE_ID, message.message_id)
        properties[RETRY_TOPIC] = message.topic
        properties[RECONSUME_TIME] = str(reconsume_times)
        properties[MAX_RECONSUME_TIMES] = str(self._context.config.reconsume_limit)
        properties[Property.DELAY] = str(FIRST_RETRY_LEVEL + message.reconsume_times)
        return Message(
            self._context.retry_topic, message.body, flag=message.flag, reserved=properties
        )
