"""From the arguments of a public consumer to its configurations."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Any, Final

from orbitmq.client.consumer.config import ConsumerConfig, Model, StartFrom
from orbitmq.client.consumer.rebalance import strategy_named
from orbitmq.client.consumer.subscription import EVERYTHING, Expression, Sql
from orbitmq.client.core.config import ClientConfig, config_of
from orbitmq.errors import ConfigError

StartWish = str | StartFrom | datetime | int
"""Where a new group begins: "first", "last", a moment, or epoch milliseconds."""

_BROADCASTING_INSTANCE: Final = "DEFAULT"
_FROM_ARGUMENTS: Final = {"group", "topics", "model", "orderly", "start_from", "start_ms"}


@dataclass(frozen=True, slots=True)
class Settings:
    """What a public consumer was told."""

    client: ClientConfig
    consumer: ConsumerConfig
    filters: Mapping[str, Expression]


def consumer_settings(
    namesrv: str | Sequence[str] | None,
    group: str,
    topics: str | Sequence[str] | Mapping[str, Expression],
    orderly: bool,
    broadcasting: bool,
    start_from: StartWish,
    config: ClientConfig | None,
    settings: Mapping[str, Any],
) -> Settings:
    """Return both configurations; every further setting belongs to one of them."""
    own_names = {item.name for item in fields(ConsumerConfig)} - _FROM_ARGUMENTS
    own = {name: value for name, value in settings.items() if name in own_names}
    rest = {name: value for name, value in settings.items() if name not in own_names}
    _require_known(rest, own_names)
    if isinstance(strategy := own.get("strategy"), str):
        own["strategy"] = strategy_named(strategy)
    start, start_ms = parse_start(start_from)
    filters = parse_topics(topics)
    consumer = ConsumerConfig(
        group=group,
        topics={topic: _text(expression) for topic, expression in filters.items()},
        model=Model.BROADCASTING if broadcasting else Model.CLUSTERING,
        orderly=orderly,
        start_from=start,
        start_ms=start_ms,
        **own,
    )
    client = config_of(namesrv, config, rest)
    if broadcasting and not client.instance_name:
        # The file of offsets is named after the client: it must have the same name the next time.
        client = replace(client, instance_name=_BROADCASTING_INSTANCE)
    return Settings(client.named(), consumer, filters)


def _require_known(settings: Mapping[str, Any], own_names: set[str]) -> None:
    known = {item.name for item in fields(ClientConfig)} | own_names
    for name, value in settings.items():
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise ConfigError(name, value, f"is no setting of a consumer{hint}")


def parse_topics(topics: str | Sequence[str] | Mapping[str, Expression]) -> dict[str, Expression]:
    """Return topic -> expression of "Orders", ["Orders", "Bills"] or {"Orders": "TagA || TagB"}."""
    if isinstance(topics, str):
        return {topics: EVERYTHING}
    if isinstance(topics, Mapping):
        return dict(topics)
    return dict.fromkeys(topics, EVERYTHING)


def parse_start(wish: StartWish) -> tuple[StartFrom, int]:
    """Return where a new group begins, and the moment if that is one."""
    if isinstance(wish, StartFrom):
        return wish, 0
    if isinstance(wish, datetime):
        return StartFrom.TIMESTAMP, round(wish.timestamp() * 1000)
    if isinstance(wish, int):
        return StartFrom.TIMESTAMP, wish
    match wish.lower():
        case "first" | "earliest":
            return StartFrom.FIRST, 0
        case "last" | "latest":
            return StartFrom.LAST, 0
    raise ConfigError("start_from", wish, 'is "first", "last", a datetime or epoch milliseconds')


def _text(expression: Expression) -> str:
    return expression.expression if isinstance(expression, Sql) else expression or EVERYTHING
