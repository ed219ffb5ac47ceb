"""Which settings may change while a name server runs (318), and what each change comes to.

The rule is that of brokers (`broker/live_settings.py`): what works takes effect and is kept, what means
nothing here is kept and said so, what is fixed at the start or known to nobody is refused.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from orbitmq.errors import ConfigError
from orbitmq.namesrv.config import FIXED_KEYS, KNOWN_KEYS, LIVE_KEYS, NamesrvConfig
from orbitmq.setting_keys import LOG_KEYS
from orbitmq.settings import change_notices, with_guesses
from orbitmq.wire.codes import ResponseCode

if TYPE_CHECKING:
    from orbitmq.logs.server_log import ServerLog

_NOTHING = "Nothing was changed."


class Change(NamedTuple):
    """What a request comes to: a refusal, or settings to be kept and a notice."""

    settings: Mapping[str, str]
    remark: str | None = None
    code: int = ResponseCode.SUCCESS


def plan_change(
    config: NamesrvConfig, asked: Mapping[str, str], log: "ServerLog | None" = None
) -> Change:
    """Return what these settings change: all of them, or nothing.

    Without a `log` that belongs to the name server its settings cannot be changed.
    """
    if any(config.is_locked(key) for key in asked):
        return _refused("Can not update config in black list.")
    if unknown := with_guesses(asked.keys() - KNOWN_KEYS):
        return _refused(f"{unknown}: no such setting. {_NOTHING}", ResponseCode.INVALID_PARAMETER)
    now = config.properties()
    changes = {key: value.strip() for key, value in asked.items() if now.get(key) != value.strip()}
    if log is None and changes.keys() & LOG_KEYS - {"slowRequestMillis"}:
        return _refused(
            f"the log belongs to the program that this name server is part of. {_NOTHING}"
        )
    try:
        changed = config.changed(changes)
        if log is not None:
            log.check_change(changed.logs)
    except ConfigError as error:
        return _refused(f"{error}. {_NOTHING}", ResponseCode.INVALID_PARAMETER)
    after = changed.properties()
    if fixed := sorted(key for key in changes.keys() & FIXED_KEYS if after[key] != now[key]):
        return _refused(
            f"{', '.join(fixed)}: cannot be changed while the name server runs: addresses and ports "
            f"are taken at the start. Set it in its configuration file and start it again. {_NOTHING}"
        )
    changes = {key: value for key, value in changes.items() if key not in FIXED_KEYS}
    return Change(changes, _notice(config, changes))


def _refused(remark: str, code: int = ResponseCode.NO_PERMISSION) -> Change:
    return Change({}, remark, code)


def _notice(config: NamesrvConfig, changes: Mapping[str, str]) -> str | None:
    notices = change_notices(changes, LIVE_KEYS, config.stronger)
    if changes and config.kept_file is None:
        notices.append("this name server has no file to keep it in: it ends with the process")
    return "; ".join(notices) or None
