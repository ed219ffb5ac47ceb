"""Which messages are ordinary: nothing in them asks the store for more than to be written down.

what        | makes a message special
sys_flag    | transaction type, IPv6 hosts, a body to be unwrapped, inner batch
properties  | DELAY, any INNER_..., any TIMER_...: the rules rewrite such messages, count or refuse them
properties  | a zero byte at the end, or many in a row: recovery takes these for torn records
properties  | longer than a record can hold

The kernels of `wire.fast` know the same by the same names; tests compare them.
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

_ZEROS: Final = bytes(ZEROS_MAX + 1)
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


def has_zeros(properties: bytes) -> bool:
    """Tell whether properties hold so many zero bytes in a row that they are refused."""
    return len(properties) > ZEROS_MAX and _ZEROS in properties
