"""A broker's settings and runtime figures for tools: read them, change them, tidy up now."""

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from orbitmq.broker.context import BrokerContext
from orbitmq.broker.refusal import Refusal
from orbitmq.broker.router import Handler
from orbitmq.broker.runtime_info import runtime_info
from orbitmq.broker.statistics import Rate
from orbitmq.errors import ConfigError
from orbitmq.settings import KNOWN_KEYS, parse_properties
from orbitmq.wire.bodies.lists import KvTable
from orbitmq.wire.bodies.stats import StatsData, StatsItem
from orbitmq.wire.bodies.topic_config import DataVersion
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers.admin import BrokerConfigAnswer, StatsItemHeader

if TYPE_CHECKING:
    from orbitmq.net.connection import Connection

logger = logging.getLogger(__name__)

BLACK_LIST: Final = frozenset(("configBlackList", "brokerConfigPath"))
"""What RocketMQ does not let anybody change from outside."""

LIVE_KEYS: Final = frozenset(
    (
        "autoCreateSubscriptionGroup",
        "autoCreateTopicEnable",
        "brokerPermission",
        "channelExpiredTimeout",
        "flushConsumerOffsetInterval",
        "longPollingEnable",
        "namesrvAddr",
        "notifyConsumerIdsChangedEnable",
        "regionId",
        "registerBrokerTimeoutMills",
        "registerNameServerPeriod",
        "rejectPullConsumerEnable",
        "shortPollingTimeMills",
        "startAcceptSendRequestTimeStamp",
        "traceOn",
        "useServerSideResetOffset",
    )
)
"""Settings that a running broker follows as soon as they are changed."""

REGISTERED_KEYS: Final = frozenset(("brokerPermission", "namesrvAddr"))
"""Those of which name servers hear at once."""


class RuntimeProcessor:
    """Answers what tools ask about the broker itself."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._version = DataVersion(timestamp=context.boot_ms)

    def handlers(self) -> Mapping[int, Handler]:
        return {
            RequestCode.UPDATE_BROKER_CONFIG: self._update_config,
            RequestCode.GET_BROKER_CONFIG: self._get_config,
            RequestCode.GET_BROKER_RUNTIME_INFO: self._info,
            RequestCode.VIEW_BROKER_STATS_DATA: self._stats_item,
            RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: self._clean_queues,
            RequestCode.DELETE_EXPIRED_COMMITLOG: self._delete_expired,
        }

    # Settings

    def _update_config(self, connection: "Connection", request: Command) -> Command | None:
        """Change settings that take effect at once; all of them, or none and the answer says why."""
        text = request.body.decode("utf-8", "replace")
        asked = {key: value for _, key, value in parse_properties(text)}
        if BLACK_LIST & asked.keys():
            raise Refusal(ResponseCode.NO_PERMISSION, "Can not update config in black list.")
        effective = self._effective()
        changed = {key: value for key, value in asked.items() if effective.get(key) != value}
        if fixed := sorted(key for key in changed.keys() & KNOWN_KEYS if key not in LIVE_KEYS):
            remark = (
                f"{', '.join(fixed)}: cannot be changed while the broker runs. "
                "Set it in the broker's configuration file and start it again; nothing was changed."
            )
            raise Refusal(ResponseCode.NO_PERMISSION, remark)
        live = {key: value for key, value in changed.items() if key in LIVE_KEYS}
        self._apply(live)
        unknown = sorted(changed.keys() - KNOWN_KEYS)
        notice = f"{', '.join(unknown)}: unknown, so without effect" if unknown else None
        answer = request.answer(remark=notice)
        if not live.keys() & REGISTERED_KEYS:
            return answer
        registration = self._context.registration
        registration.register_now()
        if not request.is_oneway:
            registration.when_told(lambda: connection.send(answer))  # tools ask for routes next
        return None

    def _apply(self, changes: dict[str, str]) -> None:
        if not changes:
            return
        context = self._context
        try:
            context.config.apply(changes)
        except ConfigError as error:
            raise Refusal(
                ResponseCode.INVALID_PARAMETER, f"{error} Nothing was changed."
            ) from error
        logger.info("settings changed: %s", changes)
        self._version = self._version.next(context.clock.now_ms())
        if "brokerPermission" in changes:
            context.topics.touch()  # else name servers would take nothing for changed

    def _get_config(self, connection: "Connection", request: Command) -> Command:
        lines = (f"{key}={value}\n" for key, value in sorted(self._effective().items()))
        fields = BrokerConfigAnswer(version=self._version.encode().decode()).write()
        return request.answer(fields=fields, body="".join(lines).encode())

    def _effective(self) -> dict[str, str]:
        """Return every setting that has an effect here, by RocketMQ's key."""
        config = self._context.config
        known = {**config.store.properties(), **config.properties()}
        host, _, port = self._context.address.rpartition(":")
        known |= {"brokerIP1": host.strip("[]"), "listenPort": port}
        return known

    # Figures

    def _info(self, connection: "Connection", request: Command) -> Command:
        return request.answer(body=KvTable(table=runtime_info(self._context)).encode())

    def _stats_item(self, connection: "Connection", request: Command) -> Command:
        header = StatsItemHeader.read(request.fields)
        rates = self._context.statistics.rates(header.stats_name, header.stats_key)
        if rates is None:
            remark = f"The stats <{header.stats_name}> <{header.stats_key}> not exist"
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
        minute, hour, day = map(_item, rates)
        body = StatsData(stats_minute=minute, stats_hour=hour, stats_day=day)
        return request.answer(body=body.encode())

    # Tidying

    def _clean_queues(self, connection: "Connection", request: Command) -> Command:
        """Answer at once: queues let go of what is gone from the log as soon as it is deleted."""
        return request.answer()

    def _delete_expired(self, connection: "Connection", request: Command) -> Command:
        self._context.store.delete_expired_now()
        return request.answer()


def _item(rate: Rate) -> StatsItem:
    return StatsItem(sum=rate.sum, tps=rate.tps, avgpt=rate.average)
