"""Spark: models in `DataFrame.mapInArrow` and `DataFrame.mapInPandas`.

    import tilewright.spark

    scored = tilewright.spark.map_in_arrow(frame, "model.onnx", batch_size=32)

The module is compiled here and broadcast: an executor gets it once, when a task needs it, and the Python processes of a node map
one file. Tasks of an executor that is lost are run again by Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Unpack

import numpy as np
import pyspark.sql.types as types
from pyspark.sql import DataFrame

from ._portable import Options, Portable, Rows, portable
from .errors import InvalidError, UnsupportedError

__all__ = ["Options", "arrow_function", "broadcast", "function", "map_in_arrow", "map_in_pandas", "schema"]

#: Types of columns, by the names of element types in NumPy. Spark's integers have signs: unsigned ones take the next wider type.
_TYPES = {
    "bool": types.BooleanType(), "int8": types.ByteType(), "int16": types.ShortType(), "int32": types.IntegerType(),
    "int64": types.LongType(), "uint8": types.ShortType(), "uint16": types.IntegerType(), "uint32": types.LongType(),
    "float32": types.FloatType(), "float64": types.DoubleType(),
}  # fmt: skip


class _Broadcasts:
    """Modules as broadcast variables, whose bytes an executor gets when they are read."""

    def __init__(self, context: Any, modules: Mapping[str, bytes]):
        self.variables = {digest: context.broadcast(data) for digest, data in modules.items()}

    def __call__(self, digest: str) -> Any:
        return self.variables[digest].value


def broadcast(session: Any, model: Any, **options: Unpack[Options]) -> Portable:
    """Compiles a model and broadcasts its module. Threads of a run are `spark.task.cpus` by default.

    Raises:
        UnsupportedError: the session is one of Spark Connect, which cannot broadcast.
    """
    try:
        context = session.sparkContext
    except Exception as error:  # Spark Connect raises one of its own
        raise UnsupportedError(f"a session without a SparkContext (Spark Connect) cannot broadcast the module: {error}") from None
    if options.get("threads") is None:
        options["threads"] = int(context.getConf().get("spark.task.cpus", "1"))
    portable_model, modules = portable(model, **options)
    return portable_model.carried_by(_Broadcasts(context, modules))


def _field(spec: Rows) -> types.StructField:
    if spec.dtype.name not in _TYPES:
        raise UnsupportedError(f"output `{spec.name}` is of {spec.dtype.name}: Spark has no such type of columns")
    element = _TYPES[spec.dtype.name]
    return types.StructField(spec.columns[0], types.ArrayType(element, False) if spec.shape else element)


def schema(frame: DataFrame, model: Portable) -> types.StructType:
    """The columns of the result: those of the frame that are not inputs, then the outputs."""
    outputs = {spec.columns[0] for spec in model.outputs}
    kept = [field for field in frame.schema.fields if field.name not in model.taken() | outputs]
    return types.StructType([*kept, *(_field(spec) for spec in model.outputs)])


def function(model: Portable) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """The function for `mapInPandas`: frames of pandas in and out."""

    def run(frames: Iterator[Any]) -> Iterator[Any]:
        for frame in frames:
            yield model.run_frame(frame)

    return run


def _ahead(batches: Iterable[Any]) -> Iterator[Any]:
    """The batches, each of which is taken while the caller works on the one before: Spark writes the next one meanwhile."""
    rest = iter(batches)
    with ThreadPoolExecutor(1) as reader:
        coming = reader.submit(next, rest, None)
        while (batch := coming.result()) is not None:
            coming = reader.submit(next, rest, None)
            yield batch


def arrow_function(model: Portable) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """The function for `mapInArrow`: batches of Arrow in and out, whose numbers are read and written where they lie."""

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow

        from ._arrow import run_batch

        signed = {np.dtype(np.uint8): "int16", np.dtype(np.uint16): "int32", np.dtype(np.uint32): "int64"}
        wider = {spec.columns[0]: pyarrow.type_for_alias(signed[spec.dtype]) for spec in model.outputs if spec.dtype in signed}
        for batch in _ahead(batches):
            yield from run_batch(model, batch, wider)

    return run


def _carried(frame: DataFrame, model: Any, options: Options) -> Portable:
    """The model with its module broadcast, for a frame that has its columns."""
    if not isinstance(model, Portable):
        model = broadcast(frame.sparkSession, model, **options)
    absent = sorted(model.taken() - set(frame.columns))
    if absent:
        text = f"there is no column `{absent[0]}`: there are {', '.join(frame.columns)}"
        raise InvalidError(f"{text}; say which ones are inputs with `columns`")
    return model


def map_in_arrow(frame: DataFrame, model: Any, **options: Unpack[Options]) -> DataFrame:
    """The frame with the outputs of the model instead of its inputs, through Arrow.

    A row of an input is an array of its elements in row-major order, an array of arrays, its elements' bytes (a column of type
    `binary`), or a number; one of an output is an array of its elements in row-major order, or a number.

    Args:
        frame: rows with a column for each input.
        model: a path, bytes, `tilewright.Model`, `tilewright.Program`, or what `broadcast` returned.
        options: see `Options`. Threads of a run are `spark.task.cpus` by default.

    Raises:
        InvalidError: the frame lacks a column; see `Options`. In the executors, where rows have different lengths or no value.
        UnsupportedError: Spark has no such columns, or the session cannot broadcast; see `Options`.
    """
    model = _carried(frame, model, options)
    return frame.mapInArrow(arrow_function(model), schema(frame, model))


def map_in_pandas(frame: DataFrame, model: Any, **options: Unpack[Options]) -> DataFrame:
    """As `map_in_arrow`, through frames of pandas, where each row is an object: slower, for functions that are written for pandas."""
    model = _carried(frame, model, options)
    return frame.mapInPandas(function(model), schema(frame, model))
