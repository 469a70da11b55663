"""Columns of Arrow as arrays of rows, and back. Numbers stay where they lie; what is copied are booleans, which Arrow keeps as bits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from ._portable import Portable, Rows
from .errors import InvalidError

#: Lists count their elements in 32 bits.
_MOST_ELEMENTS = 2**31 - 1


def run_batch(model: Portable, batch: pa.RecordBatch, types: dict[str, pa.DataType]) -> Iterator[pa.RecordBatch]:
    """A batch with the outputs instead of the inputs: in one part, unless lists cannot count the elements.

    `types` has the element types of columns whose numbers come back wider than the model's, by name.
    """
    most = max(1, _MOST_ELEMENTS // max(int(np.prod(spec.shape, dtype=np.int64)) for spec in model.outputs))
    for start in range(0, max(batch.num_rows, 1), most):
        part = batch.slice(start, most)
        taken, names = model.taken(), part.schema.names
        dtypes = {spec.columns[0]: spec.dtype for spec in model.inputs if len(spec.columns) == 1}
        columns = {name: _rows(name, part.column(name), dtypes.get(name)) for name in names if name in taken}
        results = model.run_columns(columns)
        fields = {name: part.column(name) for name in names if name not in taken}
        for spec in model.outputs:
            fields[spec.columns[0]] = _column(results[spec.columns[0]], spec, types.get(spec.columns[0]))
        yield pa.RecordBatch.from_arrays(list(fields.values()), names=list(fields))


def _rows(name: str, column: Any, dtype: np.dtype | None) -> np.ndarray:
    """An array with a row for each entry of a column of numbers, of lists, of lists of lists, or of the bytes of rows.

    Raises:
        InvalidError: entries are absent, or have different lengths.
    """
    count, is_list = len(column), False
    while True:
        if column.null_count:
            raise InvalidError(f"column `{name}` has {column.null_count} entries without a value")
        kind = column.type
        if pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind):
            if not pa.types.is_fixed_size_list(kind):
                _check_lengths(name, column.offsets.to_numpy())
            column, is_list = column.flatten(), True
        elif pa.types.is_fixed_size_binary(kind):
            first = column.offset * kind.byte_width
            return _elements(name, column.buffers()[1], first, len(column) * kind.byte_width, count, dtype)
        elif pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            sizes = np.int64 if pa.types.is_large_binary(kind) else np.int32
            offsets = np.frombuffer(column.buffers()[1], sizes)[column.offset : column.offset + len(column) + 1]
            _check_lengths(name, offsets)
            if not count:
                return np.empty((0,), np.uint8)
            return _elements(name, column.buffers()[2], int(offsets[0]), int(offsets[-1] - offsets[0]), count, dtype)
        else:
            break
    values = column.to_numpy(zero_copy_only=False)
    return values.reshape(count, -1) if is_list and count else values


def _check_lengths(name: str, offsets: np.ndarray) -> None:
    lengths = np.diff(offsets)
    if len(lengths) and (lengths != lengths[0]).any():
        raise InvalidError(f"column `{name}` has rows of {lengths.min()} to {lengths.max()} elements: all are to have one length")


def _elements(name: str, buffer: Any, first: int, length: int, count: int, dtype: np.dtype | None) -> np.ndarray:
    """The elements of rows that are given as their bytes."""
    if dtype is None:
        raise InvalidError(f"column `{name}` has bytes, and is to have a number in each row")
    if not count:
        return np.empty((0,), dtype)
    if length // count % dtype.itemsize:
        raise InvalidError(f"column `{name}` has rows of {length // count} bytes, which are not elements of {dtype}")
    data = np.frombuffer(buffer, np.uint8, length, first) if length else np.empty(0, np.uint8)
    return data.view(dtype).reshape(count, -1)


def _column(rows: np.ndarray, spec: Rows, wider: pa.DataType | None) -> Any:
    """A column of numbers, or of a list for each row."""
    values = rows.reshape(-1)
    values = pa.array(values if wider is None else values.astype(wider.to_pandas_dtype()))
    if not spec.shape:
        return values
    length = int(np.prod(spec.shape, dtype=np.int64))
    return pa.ListArray.from_arrays(pa.array(np.arange(len(rows) + 1, dtype=np.int32) * np.int32(length)), values)
