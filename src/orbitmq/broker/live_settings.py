"""Which settings may change while a broker runs (25), and what each change comes to.

| the key | the answer |
|---|---|
| works here, and only changes behaviour | in effect at once, kept for the next start |
| is RocketMQ's and means nothing here | kept, and said to have no effect |
| decides something that is fixed at the start | refused, with the reason |
| is nobody's | refused |

Everything is looked at before anything changes: all of a request, or none of it.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from orbitmq.broker import config as broker_config
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.refusal import Refusal
from orbitmq.errors import ConfigError
from orbitmq.net.config import NET_KEYS
from orbitmq.setting_keys import LOG_KEYS, OTHER_KEYS, OWN_KEYS, STORE_KEYS
from orbitmq.settings import change_notices, with_guesses
from orbitmq.store import config as store_config
from orbitmq.wire.codes import ResponseCode

BROKER_KEYS: Final = STORE_KEYS | OTHER_KEYS | OWN_KEYS
"""Keys of a broker; a name server has settings of its own."""

LIVE_KEYS: Final = store_config.LIVE_KEYS | broker_config.LIVE_KEYS | LOG_KEYS | {"slaveReadEnable"}
"""Settings that a running broker follows as soon as they are changed."""

FIXED_KEYS: Final = (
    broker_config.KEYS | store_config.KEYS | NET_KEYS.keys() | {"storePathRootDir"}
) - LIVE_KEYS
"""Settings that have an effect here, and only at a start."""

_REASONS: Final = {
    "names are what clients, name servers and other brokers know it by": (
        "brokerName brokerClusterName brokerId"
    ),
    "addresses and ports are taken at the start": (
        "listenPort bindAddress brokerIP1 haListenPort haMasterAddress primaryAddress "
        "serverSocketBacklog serverChannelMaxIdleTimeSeconds"
    ),
    "the files that are open lie there": (
        "storePathRootDir storePathCommitLog readOnlyCommitLogStorePaths"
    ),
    "the files that are there have this size": (
        "mappedFileSizeCommitLog mappedFileSizeConsumeQueue mappedFileSizeConsumeQueueExt "
        "mapperFileSizeBatchConsumeQueue maxHashSlotNum maxIndexNum mappedFileSizeTimerLog"
    ),
    "the broker's own topics are made at its start": (
        "defaultTopicQueueNums clusterTopicEnable brokerTopicEnable msgTraceTopicName "
        "reviveQueueNum timerWheelEnable"
    ),
    "who is the primary is asked there from the start on": (
        "failover failoverLeaseMs failoverCaFile failoverCertFile failoverKeyFile failoverUser "
        "failoverPasswordFile"
    ),
    "messages wait in a wheel that was made with it": "timerPrecisionMs timerRollWindowSlot",
    "topics in memory get their room at the start": "memoryTopicEnable memoryTopicBytesMax",
}
_REASON_OF: Final = {key: why for why, keys in _REASONS.items() for key in keys.split()}
_OTHER_REASON: Final = "the store is opened with it"

_AT_LEAST_1: Final = frozenset(
    (
        "commitIntervalCommitLog",
        "flushIntervalCommitLog",
        "flushIntervalConsumeQueue",
        "maxMsgsNumBatch",
        "maxTransferBytesOnMessageInDisk",
        "maxTransferBytesOnMessageInMemory",
        "maxTransferCountOnMessageInDisk",
        "maxTransferCountOnMessageInMemory",
        "replicasPerDiskPartition",
        "syncFlushTimeout",
        "timerFlushIntervalMs",
        "travelCqFileNumWhenGetMessage",
    )
)
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class Change:
    """What a request comes to."""

    settings: dict[str, str]  # to be kept; those that stay as they are not among them
    config: BrokerConfig  # with them
    notice: str | None  # what whoever asked should know

    @property
    def keys(self) -> frozenset[str]:
        return frozenset(self.settings)


def plan_change(
    config: BrokerConfig, effective: Mapping[str, str], asked: Mapping[str, str]
) -> Change:
    """Return what these settings change. Refusal: one of them cannot be, so none is."""
    asked = {key: value.strip() for key, value in asked.items()}
    _refuse_unknown(asked.keys() - BROKER_KEYS)
    changes = {key: value for key, value in asked.items() if effective.get(key) != value}
    for key in changes.keys() - FIXED_KEYS:
        _check_form(key, changes[key], effective.get(key))
    fixed = {key for key in changes.keys() & FIXED_KEYS if not _is_same(config, key, changes[key])}
    _refuse_fixed(fixed)
    changes = {key: value for key, value in changes.items() if key not in FIXED_KEYS}
    return Change(changes, _changed(config, changes), _notice(config, changes))


def _refuse_unknown(keys: Iterable[str]) -> None:
    if unknown := with_guesses(keys):
        remark = f"{unknown}: no such setting. Nothing was changed."
        raise Refusal(ResponseCode.INVALID_PARAMETER, remark)


def _refuse_fixed(keys: Iterable[str]) -> None:
    reasons: dict[str, list[str]] = {}
    for key in sorted(keys):
        reasons.setdefault(_REASON_OF.get(key, _OTHER_REASON), []).append(key)
    if reasons:
        why_not = "; ".join(f"{', '.join(names)}: {why}" for why, names in reasons.items())
        remark = (
            f"cannot be changed while the broker runs: {why_not}. "
            "Set it in the broker's configuration file and start it again. Nothing was changed."
        )
        raise Refusal(ResponseCode.NO_PERMISSION, remark)


def _check_form(key: str, value: str, now: str | None) -> None:
    """Refuse a value of another kind than the present one; Java would quietly take it for false."""
    rule = None
    if now in ("true", "false") and value.lower() not in ("true", "false"):
        rule = "must be true or false"
    elif now is not None and _NUMBER.fullmatch(now):
        least = 1 if key in _AT_LEAST_1 else 0
        if not _NUMBER.fullmatch(value):
            rule = "must be a whole number"
        elif key in LIVE_KEYS and int(value) < least:
            rule = f"must be at least {least}"
    if rule is not None:
        raise _bad_value(ConfigError(key, value, rule))


def _is_same(config: BrokerConfig, key: str, value: str) -> bool:
    """Tell whether another text means the same value."""
    if key in NET_KEYS or key == "storePathRootDir":
        return False
    return replace(_changed(config, {key: value}), given=config.given) == config


def _changed(config: BrokerConfig, changes: Mapping[str, str]) -> BrokerConfig:
    try:
        return config.changed(changes)
    except ConfigError as error:
        raise _bad_value(error) from error


def _bad_value(error: ConfigError) -> Refusal:
    return Refusal(ResponseCode.INVALID_PARAMETER, f"{error}. Nothing was changed.")


def _notice(config: BrokerConfig, changes: Mapping[str, str]) -> str | None:
    return "; ".join(change_notices(changes, LIVE_KEYS, config.stronger)) or None
