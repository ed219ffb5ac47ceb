"""Bodies as text, JSON or variants (option `bodyAs`): those that cannot be are null, with words why.

A message whose body is something else is no damaged record: it stays a row, whatever `badRecords` says.
"""

from collections.abc import Sequence
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from orbitmq.spark.source.row_columns import VARIANT
from orbitmq.spark.variant import VariantError, variant_of

_JSON: Final = msgspec.json.Decoder(type=msgspec.Raw)  # looks at every character, and makes nothing
_OF_LIBRARY: Final = "JSON is malformed: "

NOTHING: Final = (b"", b"")

Variant = tuple[bytes, bytes]
Faults = Sequence[str | None]


def as_text(bodies: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return bodies as strings, and for each the reason why it is null; null if it is not."""
    return _without(bodies, _text_faults(bodies))


def as_json(bodies: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return bodies as strings that are JSON, and for each the reason why it is null."""
    pairs = zip(bodies, _text_faults(bodies), strict=True)
    return _without(bodies, [fault or _json_fault(body.as_buffer()) for body, fault in pairs])


def as_variant(bodies: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return bodies that are JSON as variants, and for each the reason why it is null."""
    made: list[Variant] = []
    faults: list[str | None] = []
    for text, no_json in zip(*(array.to_pylist() for array in as_json(bodies)), strict=True):
        variant, fault = (NOTHING, no_json) if text is None else _variant(text)
        made.append(variant)
        faults.append(fault)
    pieces = [pa.array(piece, type=pa.binary()) for piece in zip(*made, strict=True)]
    errors = pa.array(faults, type=pa.string())
    variants = pa.StructArray.from_arrays(pieces, fields=list(VARIANT), mask=errors.is_valid())
    return variants, errors


def _variant(text: str) -> tuple[Variant, str | None]:
    try:
        return variant_of(text), None
    except VariantError as error:
        return NOTHING, f"the body is no JSON that a variant can hold: {error}"


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
