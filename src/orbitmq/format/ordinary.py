"""Which messages are ordinary: nothing in them asks the store for more than to be written down.

what        | makes a message special
sys_flag    | transaction type, IPv6 hosts, a body to be unwrapped, inner batch
properties  | DELAY, any INNER_..., any TIMER_...: the rules rewrite such messages, count or refuse them
properties  | a zero byte at the end, or many in a row: recovery takes these for torn records
properties  | longer than a record can hold

Of a message whose delay is over, DELAY and TIMER_... only tell how it came (`is_ordinary_when_due`). One that
was committed is written down like others, with its flag (`is_ordinary_when_committed`).

The kernels of `wire.fast` know the same by the same names; tests compare them. They also take an otherwise
ordinary message that says its time in one property (`waiting.TIMED`), and the rules tell them where it waits.
"""

import re
from typing import Final

from orbitmq.message import PROPERTIES_BYTES_MAX, Property, SysFlag

SPECIAL_FLAGS: Final = int(
    SysFlag.TRANSACTION
    | SysFlag.BORN_HOST_V6
    | SysFlag.STORE_HOST_V6
    | SysFlag.NEED_UNWRAP
    | SysFlag.INNER_BATCH
)
SPECIAL_NAME: Final = Property.DELAY
SPECIAL_PREFIXES: Final = ("INNER_", "TIMER_")
ZEROS_MAX: Final = 510  # in a row, in properties: recovery takes a sector of zeros for a lost one

_TRANSACTION: Final = int(SysFlag.TRANSACTION)
_COMMIT: Final = int(SysFlag.COMMIT)
_ZEROS: Final = bytes(ZEROS_MAX + 1)
_INNER: Final = b"INNER_"
_DELAY: Final = f"{SPECIAL_NAME}\x01"
_PREFIX_ENDS: Final = "ER_"
assert all(prefix.endswith(_PREFIX_ENDS) for prefix in SPECIAL_PREFIXES)
_SPECIAL: Final = re.compile(rf"(?:\A|\x02)(?:{'|'.join((_DELAY, *SPECIAL_PREFIXES))})")


def is_ordinary(sys_flag: int, properties: bytes) -> bool:
    """Tell whether a message with these flags and properties is ordinary."""
    if sys_flag & SPECIAL_FLAGS:
        return False
    names = properties.decode("latin-1")  # searching text is three times as fast as searching bytes
    if (_DELAY in names or _PREFIX_ENDS in names) and _SPECIAL.search(names) is not None:
        return False
    if "\0" in names and (names.endswith("\0") or _ZEROS in properties):
        return False
    return len(names) <= PROPERTIES_BYTES_MAX


def is_ordinary_when_due(sys_flag: int, properties: bytes) -> bool:
    """Tell the same of a message whose delay is over: what DELAY and TIMER_... say has been done."""
    return not (
        sys_flag & SPECIAL_FLAGS
        or _INNER in properties
        or b"\0" in properties
        or len(properties) > PROPERTIES_BYTES_MAX
    )


def is_ordinary_when_committed(sys_flag: int, properties: bytes) -> bool:
    """Tell the same of a message whose transaction was committed: the flag only stands in its record."""
    return sys_flag & _TRANSACTION == _COMMIT and is_ordinary(sys_flag ^ _COMMIT, properties)


def has_zeros(properties: bytes) -> bool:
    """Tell whether properties hold so many zero bytes in a row that they are refused."""
    return len(properties) > ZEROS_MAX and _ZEROS in properties
