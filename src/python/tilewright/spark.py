"""Spark: models in `DataFrame.mapInPandas`.

    import tilewright.spark

    scored = tilewright.spark.map_in_pandas(frame, "model.onnx", batch_size=32)

The module is compiled here and broadcast: an executor gets it once, when a task needs it, and the Python processes of a node map
one file. Tasks of an executor that is lost are run again by Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyspark.sql.types as types
from pyspark.sql import DataFrame

from ._portable import Portable, Rows, portable
from .errors import InvalidError, UnsupportedError

__all__ = ["broadcast", "function", "map_in_pandas", "schema"]

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


def broadcast(session: Any, model: Any, **others: Any) -> Portable:
    """Compiles a model and broadcasts its module; arguments as those of `map_in_pandas`.

    Raises:
        UnsupportedError: the session is one of Spark Connect, which cannot broadcast.
    """
    try:
        context = session.sparkContext
    except Exception as error:  # Spark Connect raises one of its own
        raise UnsupportedError(f"a session without a SparkContext (Spark Connect) cannot broadcast the module: {error}") from None
    if others.get("threads") is None:
        others["threads"] = int(context.getConf().get("spark.task.cpus", "1"))
    portable_model, modules = portable(model, **others)
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


def map_in_pandas(
    frame: DataFrame,
    model: Any,
    *,
    batch_size: int | None = None,
    dims: Mapping[str, int] | None = None,
    columns: Mapping[str, str | Sequence[str]] | None = None,
    outputs: Mapping[str, str] | None = None,
    targets: Sequence[str] | None = None,
    threads: int | None = None,
) -> DataFrame:
    """The frame with the outputs of the model instead of its inputs.

    A row of an input is an array of its elements in row-major order, or a number; so is one of an output.

    Args:
        frame: rows with a column for each input.
        model: a path, bytes, `tilewright.Model`, `tilewright.Program`, or what `broadcast` returned.
        batch_size: rows of one run, whatever the size of Spark's own batches. A model whose first dimension is fixed has its size.
        dims: sizes of other dynamic dimensions.
        columns: columns of inputs that are called otherwise: `{"x": "image"}`, or `{"x": ["a", "b"]}` of numbers.
        outputs: columns of outputs that shall be called otherwise.
        targets: targets of the executors, best first, where they are not all as the processor here.
        threads: threads of one run; `spark.task.cpus` by default.

    Raises:
        InvalidError: the model has no dimension of rows, a dimension has no size, or the frame lacks a column.
        UnsupportedError: Spark has no such columns, or the session cannot broadcast; in the executors, where the modules are for
            other processors.
    """
    if not isinstance(model, Portable):
        model = broadcast(
            frame.sparkSession, model, batch_size=batch_size, dims=dims, columns=columns, outputs=outputs, targets=targets,
            threads=threads,
        )  # fmt: skip
    absent = sorted(model.taken() - set(frame.columns))
    if absent:
        text = f"there is no column `{absent[0]}`: there are {', '.join(frame.columns)}"
        raise InvalidError(f"{text}; say which ones are inputs with `columns`")
    return frame.mapInPandas(function(model), schema(frame, model))
