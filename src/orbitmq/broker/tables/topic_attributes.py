"""Attributes of topics: what tools may set, change and remove, and the text in which they say it.

text                                    | meaning
+message.type=FIFO                      | add or change
-reserve.time                           | remove
+queue.type=BatchCQ,+message.type=FIFO  | several

Errors carry RocketMQ's words, which its tool shows.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple


class AttributeChangeError(ValueError):
    """A change that cannot be made; the text says why."""


class _Attribute(NamedTuple):
    changeable: bool
    values: tuple[str, ...] = ()  # empty: a number from -1 on


MESSAGE_TYPE: Final = "message.type"
QUEUE_TYPE: Final = "queue.type"
CLEANUP_POLICY: Final = "cleanup.policy"
MEMORY_TOPIC: Final = "memory.topic"  # ours; RocketMQ's document proposes it and has no name for it
MIXED: Final = "MIXED"
_NUMBER_MAX: Final = (1 << 63) - 1

_ATTRIBUTES: Final[Mapping[str, _Attribute]] = {
    QUEUE_TYPE: _Attribute(False, ("BatchCQ", "SimpleCQ")),
    CLEANUP_POLICY: _Attribute(False, ("DELETE", "COMPACTION")),
    MEMORY_TOPIC: _Attribute(False, ("true", "false")),
    MESSAGE_TYPE: _Attribute(
        True, ("UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", MIXED)
    ),
    "reserve.time": _Attribute(True),
}


def parse_changes(text: str | None) -> dict[str, str]:
    """Return the changes of a text: name with its sign, and value (empty for a removal)."""
    changes: dict[str, str] = {}
    for part in (text or "").split(",") if text else ():
        name, equals, value = part.partition("=")
        if equals and (not value or "+" not in name):
            raise AttributeChangeError(f"add/alter attribute format is wrong: {name}")
        if not equals and "-" not in name:
            raise AttributeChangeError(f"delete attribute format is wrong: {name}")
        if name in changes:
            raise AttributeChangeError(f"key duplication: {name}")
        changes[name] = value.partition("=")[0]
    return changes


def changed_attributes(
    current: Mapping[str, str] | None, changes: Mapping[str, str]
) -> dict[str, str]:
    """Return the attributes after the changes; `current` is None for a new topic."""
    attributes = dict(current or {})
    seen: set[str] = set()
    for signed, value in changes.items():
        sign, name = signed[:1], signed[1:]
        if not name or "+" in name or "-" in name:
            raise AttributeChangeError("kv string format wrong.")
        if name in seen:
            raise AttributeChangeError(f"alter duplication key. key: {name}")
        seen.add(name)
        _change(attributes, current, sign, name, value)
    return attributes


def _change(
    attributes: dict[str, str], current: Mapping[str, str] | None, sign: str, name: str, value: str
) -> None:
    creating = current is None
    if creating and sign != "+":
        rule = "only add attribute is supported while creating topic"
        raise AttributeChangeError(f"{rule}. key: {name}")
    if sign == "-" and name not in (current or {}):
        raise AttributeChangeError(f"attempt to delete a nonexistent key: {name}")
    if sign not in ("+", "-"):
        raise AttributeChangeError(f"wrong format key: {name}")
    attribute = _ATTRIBUTES.get(name)
    if attribute is None:
        raise AttributeChangeError(f"unsupported key: {name}")
    if not creating and not attribute.changeable:
        raise AttributeChangeError(f"attempt to update an unchangeable attribute. key: {name}")
    if sign == "-":
        del attributes[name]
        return
    _verify(attribute, value)
    attributes[name] = value


def _verify(attribute: _Attribute, value: str) -> None:
    if attribute.values:
        if value not in attribute.values:
            listed = ", ".join(attribute.values)
            raise AttributeChangeError(f"value is not in set: [{listed}]")
        return
    try:
        number = int(value)
    except ValueError:
        raise AttributeChangeError(f'For input string: "{value}"') from None
    if not -1 <= number <= _NUMBER_MAX:
        raise AttributeChangeError(f"value is not in range(-1, {_NUMBER_MAX})")
