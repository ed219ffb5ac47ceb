"""A broker's settings and runtime figures for tools: read them, change them, tidy up now."""

import asyncio
import logging
from functools import partial
from typing import Final

from orbitmq.broker.context import BrokerContext
from orbitmq.broker.live_settings import Change, plan_change
from orbitmq.broker.processors.processor import Processor, answers
from orbitmq.broker.refusal import Refusal
from orbitmq.broker.runtime_info import runtime_info
from orbitmq.broker.statistics import Rate
from orbitmq.errors import ConfigError, StoreError
from orbitmq.files.settings_file import keep_settings
from orbitmq.net.connection import Connection
from orbitmq.setting_keys import LOG_KEYS, STORE_KEYS
from orbitmq.settings import parse_properties
from orbitmq.wire.bodies.lists import KvTable
from orbitmq.wire.bodies.stats import StatsData, StatsItem
from orbitmq.wire.bodies.topic_config import DataVersion
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers.admin import BrokerConfigAnswer, StatsItemHeader

logger = logging.getLogger(__name__)

BLACK_LIST: Final = frozenset(("configBlackList", "brokerConfigPath"))
"""What RocketMQ does not let anybody change from outside."""

KEPT_TITLE: Final = (
    "# Settings that were changed while the broker ran. Read at its start, when no configuration file\n"
    "# is given; flags and ORBITMQ_ variables win over them.\n"
)

REGISTERED_KEYS: Final = frozenset(("brokerPermission", "namesrvAddr"))
"""Those of which name servers hear at once."""


class RuntimeProcessor(Processor):
    """Answers what tools ask about the broker itself."""

    def __init__(self, context: BrokerContext) -> None:
        super().__init__(context)
        self._version = DataVersion(timestamp=context.boot_ms)
        self._change_lock = asyncio.Lock()

    # Settings

    @answers(RequestCode.UPDATE_BROKER_CONFIG)
    def _update_config(self, connection: Connection, request: Command) -> None:
        """Change settings: all of them, or none and the answer says why."""
        text = request.body.decode("utf-8", "replace")
        asked = {key: value for _, key, value in parse_properties(text)}
        if BLACK_LIST & asked.keys():
            raise Refusal(ResponseCode.NO_PERMISSION, "Can not update config in black list.")
        self.answer_later(connection, request, self._change(connection, request, asked))

    async def _change(
        self, connection: Connection, request: Command, asked: dict[str, str]
    ) -> Command | None:
        """Return the answer; None: it is sent when the name servers know."""
        context = self._context
        async with self._change_lock:  # what was planned must still be so when it is kept
            change = plan_change(context.config, self._effective(), asked)
            if change.settings:
                self._check_log(change)
                await self._keep(change)
                self._apply(change)
                told = {"peer": connection.peer, "settings": change.settings}
                logger.info("settings changed", extra=told)
        if change.notice:
            logger.warning("settings changed by %s: %s", connection.peer, change.notice)
        answer = request.answer(remark=change.notice)
        if not change.keys & REGISTERED_KEYS:
            return answer
        context.registration.register_now()
        if not request.is_oneway:
            # Tools ask for routes next.
            context.registration.when_known(lambda: connection.send(answer))
        return None

    def _check_log(self, change: Change) -> None:
        """Refuse a log that cannot be; also that of a program that this broker is only a part of."""
        if not change.keys & LOG_KEYS - {"slowRequestMillis"}:
            return
        log = self._context.log
        if log is None:
            remark = (
                "the log belongs to the program that this broker is part of. Nothing was changed."
            )
            raise Refusal(ResponseCode.NO_PERMISSION, remark)
        try:
            log.check_change(change.config.logs)
        except ConfigError as error:
            remark = f"{error}. Nothing was changed."
            raise Refusal(ResponseCode.INVALID_PARAMETER, remark) from error

    async def _keep(self, change: Change) -> None:
        """Write the changed settings down; without that they would be gone at the next start."""
        file = self._config.kept_file
        keep = partial(keep_settings, file, change.settings, title=KEPT_TITLE)
        try:
            await self._context.loop.run_in_executor(None, keep)
        except StoreError as error:
            remark = f"the change cannot be kept: {error} Nothing was changed."
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark) from error

    def _apply(self, change: Change) -> None:
        context = self._context
        context.config.take(change.config)
        if change.keys & STORE_KEYS:
            context.store.reconfigure(change.config.store)
        context.request_log.use_slow_ms(change.config.logs.slow_request_ms)
        if change.keys & LOG_KEYS and context.log is not None:
            context.log.use(change.config.logs)
        context.topics.add_start_topics()
        self._version = self._version.next(context.clock.now_ms())
        if "brokerPermission" in change.settings:
            context.topics.touch()  # else name servers would take nothing for changed

    @answers(RequestCode.GET_BROKER_CONFIG)
    def _get_config(self, connection: Connection, request: Command) -> Command:
        lines = (f"{key}={value}\n" for key, value in sorted(self._effective().items()))
        fields = BrokerConfigAnswer(version=self._version.encode().decode()).write()
        return request.answer(fields=fields, body="".join(lines).encode())

    def _effective(self) -> dict[str, str]:
        """Return every setting that has an effect here, by RocketMQ's key."""
        known = self._config.properties()
        host, _, port = self._context.address.rpartition(":")
        known |= {"brokerIP1": host.strip("[]"), "listenPort": port}
        return known

    # Figures

    @answers(RequestCode.GET_BROKER_RUNTIME_INFO)
    def _info(self, connection: Connection, request: Command) -> Command:
        return request.answer(body=KvTable(table=runtime_info(self._context)).encode())

    @answers(RequestCode.VIEW_BROKER_STATS_DATA)
    def _stats_item(self, connection: Connection, request: Command) -> Command:
        header = StatsItemHeader.read(request.fields)
        rates = self._context.statistics.rates(header.stats_name, header.stats_key)
        if rates is None:
            remark = f"The stats <{header.stats_name}> <{header.stats_key}> not exist"
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
        minute, hour, day = map(_item, rates)
        body = StatsData(stats_minute=minute, stats_hour=hour, stats_day=day)
        return request.answer(body=body.encode())

    # Tidying

    @answers(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)
    def _clean_queues(self, connection: Connection, request: Command) -> Command:
        """Answer at once: queues let go of what is gone from the log as soon as it is deleted."""
        return request.answer()

    @answers(RequestCode.DELETE_EXPIRED_COMMITLOG)
    def _delete_expired(self, connection: Connection, request: Command) -> Command:
        self._store.delete_expired_now()
        return request.answer()


def _item(rate: Rate) -> StatsItem:
    return StatsItem(sum=rate.sum, tps=rate.tps, avgpt=rate.average)
