"""Columns of an Arrow batch as those need them who make messages of rows: a load, and the sink."""

from typing import Final

import numpy as np
import pyarrow as pa

from orbitmq.errors import InvalidMessageError
from orbitmq.format.columns import Ints
from orbitmq.format.ordinary import ZEROS_MAX, has_zeros
from orbitmq.message import NAME_SEPARATOR, PROPERTIES_BYTES_MAX, PROPERTY_SEPARATOR
from orbitmq.spark.jobs.load.encode.layout import Texts

NO_NAME: Final = -1
"""Stands for the number of a row's properties where one of them has no name."""
_SEPARATORS: Final = tuple(map(ord, (NAME_SEPARATOR, PROPERTY_SEPARATOR)))


def column(batch: pa.RecordBatch, name: str) -> pa.Array | None:
    return batch[name] if name in batch.schema.names else None


def numbers(batch: pa.RecordBatch, name: str, missing: int) -> Ints:
    """Return a column of whole numbers, with this one where there is none."""
    found = column(batch, name)
    if found is None:
        return np.full(batch.num_rows, missing, dtype=np.int64)
    filled = found.cast(pa.int64()).fill_null(missing)
    return np.asarray(filled.to_numpy(zero_copy_only=False), dtype=np.int64)


def texts(values: pa.Array) -> Texts:
    """Return a column of strings or bytes as the kernels take it, without a copy of its bytes."""
    large = pa.types.is_large_string(values.type) or pa.types.is_large_binary(values.type)
    _, ends, data = values.buffers()
    wide = np.frombuffer(ends, dtype=np.int64 if large else np.int32)
    cut = wide[values.offset : values.offset + len(values) + 1].astype(np.int64)
    found = np.frombuffer(data, dtype=np.uint8) if data is not None else np.empty(0, np.uint8)
    return Texts(found, cut)


def require_properties(found: Texts, pieces: Ints) -> None:
    """Raise InvalidMessageError unless readers will find what the row holds, no more and no less."""
    if (pieces == NO_NAME).any():
        raise InvalidMessageError("a property has an empty name")
    used = found.data[int(found.ends[0]) : int(found.ends[-1])]
    total = int(pieces.sum())
    if any(np.count_nonzero(used == separator) != total for separator in _SEPARATORS):
        raise InvalidMessageError(
            "a property, key or tag holds one of the characters 0x01 and 0x02, which separate properties"
        )
    if has_zeros(used.tobytes()):
        raise InvalidMessageError(f"properties have more than {ZEROS_MAX} zero bytes in a row")
    if int(found.lengths.max()) > PROPERTIES_BYTES_MAX:
        raise InvalidMessageError(
            f"properties have {int(found.lengths.max())} bytes, allowed are {PROPERTIES_BYTES_MAX}"
        )
