"""Delayed messages: on append they are rewritten into the schedule topic, one queue per delay level."""

from dataclasses import replace

from orbitmq.format.properties import encode_properties
from orbitmq.message import SCHEDULE_TOPIC, AppendRequest, Property, SysFlag

_DELAYED_TYPES = (0, SysFlag.COMMIT)  # transaction types that reach consumers


def delay_level(request: AppendRequest, properties: dict[str, str]) -> int:
    """Return the delay level that the message asks for; 0: none."""
    if request.sys_flag & SysFlag.TRANSACTION not in _DELAYED_TYPES:
        return 0
    return parse_level(properties)


def parse_level(properties: dict[str, str]) -> int:
    """Return the value of DELAY; 0 when it is missing or no number."""
    text = properties.get(Property.DELAY, "0")
    try:
        return int(text)
    except ValueError:
        return 0  # Java refuses such a request earlier; for the store it is no delay


def schedule(
    request: AppendRequest, properties: dict[str, str], level: int, level_max: int
) -> AppendRequest:
    """Return the request as it goes into the schedule topic.

    A level above the highest is lowered, and DELAY says so in the record: delivery reads it there.
    """
    level = min(level, level_max)
    changed = {
        **properties,
        Property.DELAY: str(level),
        Property.REAL_TOPIC: request.topic,
        Property.REAL_QUEUE_ID: str(request.queue_id),
    }
    return replace(
        request,
        topic=SCHEDULE_TOPIC,
        queue_id=level - 1,
        properties=encode_properties(changed),
    )
