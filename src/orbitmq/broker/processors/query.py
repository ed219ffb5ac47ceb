"""QUERY_MESSAGE (12): messages by key; VIEW_MESSAGE_BY_ID (33): one message by its place in the log."""

from typing import Final

from orbitmq.broker.processors.processor import Processor, answers
from orbitmq.broker.refusal import Refusal
from orbitmq.errors import FormatError
from orbitmq.format.record import decode_record
from orbitmq.net.connection import Connection
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers.query import QueryAnswer, QueryHeader, ViewHeader

UNIQUE_KEY_COUNT: Final = 32  # defaultQueryMaxNum


class QueryProcessor(Processor):
    """Finds single messages. Belongs to the event loop's thread."""

    @answers(RequestCode.QUERY_MESSAGE, of_queues=True)
    def query(self, connection: Connection, request: Command) -> Command | None:
        """Answer with the newest messages that have a key, or an id that their producer gave."""
        header = QueryHeader.read(request.fields)
        count = UNIQUE_KEY_COUNT if header.unique_key else header.max_num
        found = self._store.query(
            header.topic,
            header.key,
            max(count, 0),
            max(header.begin_timestamp, 0),
            max(header.end_timestamp, 0),
            exact=True,
        )
        if not found:
            raise Refusal(
                ResponseCode.QUERY_NOT_FOUND,
                "can not find message, maybe time range not correct",
                fields=QueryAnswer(
                    index_last_update_timestamp=0, index_last_update_phyoffset=0
                ).write(),
            )
        store_ms, log_offset = self._store.index_end()
        fields = QueryAnswer(
            index_last_update_timestamp=store_ms, index_last_update_phyoffset=log_offset
        ).write()
        if not request.is_oneway:
            connection.send_parts(request.answer(fields=fields), found)
        return None

    @answers(RequestCode.VIEW_MESSAGE_BY_ID)
    def view(self, connection: Connection, request: Command) -> Command | None:
        """Answer with the message that starts at a log offset."""
        header = ViewHeader.read(request.fields)
        raw = self._store.record_bytes(header.offset) if header.offset >= 0 else None
        if raw is None or not _is_record(raw, header.offset):
            remark = f"can not find message by the offset, {header.offset}"
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
        return request.answer(body=bytes(raw))


def _is_record(raw: memoryview, log_offset: int) -> bool:
    """Tell whether a record starts here: any offset can be asked for, also one inside a body."""
    try:
        return decode_record(raw).log_offset == log_offset
    except FormatError:
        return False
