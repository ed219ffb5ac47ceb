"""Bodies as text (option `bodyAs`): those that cannot be are null, with words why.

A message whose body is something else is no damaged record: it stays a row, whatever `badRecords` says.
"""

from collections.abc import Sequence
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

_JSON: Final = msgspec.json.Decoder(type=msgspec.Raw)  # looks at every character, and makes nothing
_OF_LIBRARY: Final = "JSON is malformed: "

Faults = Sequence[str | None]


def as_text(bodies: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return bodies as strings, and for each the reason why it is null; null if it is not."""
    return _without(bodies, _text_faults(bodies))


def as_json(bodies: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return bodies as strings that are JSON, and for each the reason why it is null."""
    pairs = zip(bodies, _text_faults(bodies), strict=True)
    return _without(bodies, [fault or _json_fault(body.as_buffer()) for body, fault in pairs])


def _without(bodies: pa.Array, faults: Faults) -> tuple[pa.Array, pa.Array]:
    errors = pa.array(faults, type=pa.string())
    texts = bodies.view(pa.string())  # not copied: it may be a single body as large as memory
    if errors.null_count < len(errors):
        texts = pc.if_else(pc.is_null(errors), texts, pa.scalar(None, pa.string()))
    return texts, errors


def _text_faults(bodies: pa.Array) -> Faults:
    try:
        bodies.view(pa.string()).validate(full=True)
    except pa.ArrowInvalid:
        return [_text_fault(body.as_buffer()) for body in bodies]
    return [None] * len(bodies)


def _text_fault(body: pa.Buffer) -> str | None:
    try:
        str(body, "utf-8")
    except UnicodeDecodeError as error:
        return f"the body is no UTF-8 (byte {error.start})"
    return None


def _json_fault(body: pa.Buffer) -> str | None:
    try:
        _JSON.decode(body)
    except msgspec.DecodeError as error:
        return f"the body is no JSON: {str(error).removeprefix(_OF_LIBRARY)}"
    except RecursionError:
        return "the body is no JSON that can be read: it is nested too deeply"
    return None
