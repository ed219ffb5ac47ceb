"""etcd's JSON gateway: what is asked, and what it answers. Keys and values are base64, numbers strings.

Of one broker name etcd has two keys:

PREFIX/CLUSTER/NAME/state   who is the primary, its epoch, who is in sync; stays
PREFIX/CLUSTER/NAME/holder  the primary's id; goes with its lease
"""

import base64
import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from orbitmq.errors import FieldError, RemoteProtocolError
from orbitmq.wire.bodies.failover import FailoverState, Seen

NOT_FOUND: Final = 5
"""The code of an answer that says that there is no such lease."""
UNAUTHENTICATED: Final = 16
"""And of one that says that a token is none, or is one no longer."""


class Request(NamedTuple):
    """One question: where it is asked, and its JSON."""

    path: str
    body: bytes


class Keys(NamedTuple):
    """The two keys of a broker name."""

    state: str
    holder: str
    first: str  # both lie from here
    end: str  # to here

    @classmethod
    def of(cls, prefix: str, cluster: str, name: str) -> "Keys":
        place = f"{prefix}/{quote(cluster, safe='')}/{quote(name, safe='')}"
        return cls(f"{place}/state", f"{place}/holder", f"{place}/", f"{place}0")


# Requests


def authenticate(user: str, password: str) -> Request:
    return _request("auth/authenticate", {"name": user, "password": password})


def grant(seconds: int) -> Request:
    return _request("lease/grant", {"TTL": str(seconds)})


def keep_alive(lease: int) -> Request:
    return _request("lease/keepalive", {"ID": str(lease)})


def revoke(lease: int) -> Request:
    return _request("lease/revoke", {"ID": str(lease)})


def read(keys: Keys) -> Request:
    return _request("kv/range", {"key": _base64(keys.first), "range_end": _base64(keys.end)})


def watch(keys: Keys, after: int) -> Request:
    """Have everything told that changes after this revision of etcd's."""
    create = {
        "key": _base64(keys.first),
        "range_end": _base64(keys.end),
        "start_revision": str(after + 1),
    }
    return _request("watch", {"create_request": create})


def take(keys: Keys, before: Seen, state: FailoverState, member: str, lease: int) -> Request:
    """Become the holder if both keys are as they were read; the holder was nobody, or the same member."""
    if before.holder:
        compared = {"target": "VALUE", "value": _base64(before.holder)}
    else:
        compared = {"target": "CREATE", "create_revision": "0"}
    compare = [_same(keys, before), {"key": _base64(keys.holder), "result": "EQUAL", **compared}]
    holder = {"key": _base64(keys.holder), "value": _base64(member), "lease": str(lease)}
    puts = [{"request_put": holder}, _put(keys, state)]
    return _request("kv/txn", {"compare": compare, "success": puts})


def change(keys: Keys, before: Seen, state: FailoverState) -> Request:
    """Replace the state if it is as it was read."""
    return _request("kv/txn", {"compare": [_same(keys, before)], "success": [_put(keys, state)]})


def _same(keys: Keys, before: Seen) -> dict[str, str]:
    revision = {"target": "MOD", "mod_revision": str(before.revision)}
    return {"key": _base64(keys.state), "result": "EQUAL", **revision}


def _put(keys: Keys, state: FailoverState) -> dict[str, Any]:
    value = base64.b64encode(state.encode()).decode()
    return {"request_put": {"key": _base64(keys.state), "value": value}}


def _request(path: str, body: Mapping[str, Any]) -> Request:
    return Request(f"/v3/{path}", json.dumps(body).encode())


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


# Answers. RemoteProtocolError: they cannot be understood.


def authenticated(answer: Any) -> str:
    """Return the token that says who asks."""
    token = _table(answer).get("token")
    if not isinstance(token, str) or not token.isascii() or not token.isprintable() or not token:
        raise RemoteProtocolError("an answer to a password without a token")
    return token


def granted(answer: Any) -> tuple[int, int]:
    """Return a new lease and its seconds."""
    lease, seconds = _number(answer, "ID"), _number(answer, "TTL")
    if not lease or seconds <= 0:
        raise RemoteProtocolError(f"a lease {lease} of {seconds} s")
    return lease, seconds


def kept(answer: Any) -> int:
    """Return the seconds that a lease has from now on; 0: it is gone."""
    return max(_number(_table(answer).get("result"), "TTL"), 0)


def changed(answer: Any) -> int:
    """Return the revision of what was put; 0: it was refused, something was not as it had been read."""
    if _table(answer).get("succeeded") is not True:
        return 0
    return _number(_table(answer).get("header"), "revision")


def found(answer: Any, keys: Keys) -> Seen:
    rows = _table(answer).get("kvs", [])
    state, revision, holder = None, 0, ""
    for row in rows if isinstance(rows, list) else []:
        try:
            name = base64.b64decode(_table(row)["key"]).decode()
            value = base64.b64decode(row.get("value", ""))
            if name == keys.state:
                state, revision = FailoverState.decode(value), _number(row, "mod_revision")
            elif name == keys.holder:
                holder = value.decode()
        except (KeyError, ValueError, TypeError, FieldError) as cause:
            raise RemoteProtocolError(f"a key that holds no state: {cause}") from cause
    return Seen(state, revision, holder, _number(_table(answer).get("header"), "revision"))


def is_news(line: Any) -> bool:
    """Tell whether a line of a watch says that something has changed, or that no more will be told."""
    result = _table(_table(line).get("result", {}))
    return bool(result.get("events") or result.get("canceled")) or "error" in _table(line)


def refusal(answer: Any) -> tuple[int, str]:
    """Return the code and the words of an answer that is an error."""
    told = answer if isinstance(answer, dict) else {}
    code = told.get("code", 0)
    return code if isinstance(code, int) else 0, str(told.get("error", ""))[:200]


def _table(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise RemoteProtocolError(f"{str(value)[:80]!r} where a table was expected")
    return value


def _number(value: Any, name: str) -> int:
    """Return a number of an answer; what is 0 is left out there."""
    try:
        return int(_table(value).get(name, 0))
    except (TypeError, ValueError) as cause:
        raise RemoteProtocolError(f"{name} is no number") from cause
