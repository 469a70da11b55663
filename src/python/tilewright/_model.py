"""Models: compiling, loading, running, saving."""

from __future__ import annotations

import json
import operator
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Self

from . import _native
from .errors import InvalidError

__all__ = ["Explanation", "Model", "TensorInfo", "compile", "load"]


class TensorInfo(NamedTuple):
    """An input or an output of a model."""

    name: str
    #: Name of the element type in NumPy or `ml_dtypes`; `None` where the file does not say it.
    dtype: str | None
    #: Extents: numbers, or the names of dynamic dimensions. `None` where the number of dimensions is open.
    shape: tuple[int | str, ...] | None
    #: `tensor`, `sequence of tensor`, `optional tensor` …
    kind: str


def _info(row: tuple) -> TensorInfo:
    name, dtype, shape, kind = row
    return TensorInfo(name, dtype, None if shape is None else tuple(shape), kind)


class Explanation:
    """The report of a compilation: `str()` is its text, `data` the same as dictionaries and lists."""

    def __init__(self, text: str, data: dict[str, Any]):
        self.text = text
        #: Fields as in the Rust type `Report`: `kernels`, `stages`, `compile_ms`, `code_bytes`, …; of a model that runs in
        #: parts, as in `StagedReport`.
        self.data = data

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"<Explanation of {self.data.get('model')!r} for {self.data.get('target')!r}>"

    def _repr_html_(self) -> str:
        from ._table import explanation_html

        return explanation_html(self)


class Model(_native.Model):
    """A compiled model. `compile`, `load` and `program` make it.

    It may be called by several threads at once; each run takes its own memory for intermediate tensors. Arrays that are given
    to a run must not be changed before it ends. A child process that is forked runs it on threads of its own.
    """

    _source: dict[str, Any]
    _options: dict[str, Any]

    def __new__(cls, source: Mapping[str, Any], options: Mapping[str, Any] | None = None) -> Self:
        source = {key: value for key, value in source.items() if value is not None}
        options = {key: value for key, value in (options or {}).items() if value is not None}
        self = super().__new__(cls, source, options)
        self._source, self._options = source, options
        return self

    def __reduce__(self) -> tuple:
        if self.closed:
            raise InvalidError("the model is closed: it cannot be pickled")
        return (type(self), (self._source, self._options))

    @property
    def inputs(self) -> list[TensorInfo]:
        """The inputs in the model's order, which is that of positional arguments."""
        return [_info(row) for row in self._inputs()]

    @property
    def outputs(self) -> list[TensorInfo]:
        """The outputs in the model's order. Shapes and types as far as the source declares them."""
        return [_info(row) for row in self._outputs()]

    @property
    def dims(self) -> list[str]:
        """The names of the dynamic dimensions."""
        return self._symbols()

    @property
    def metadata(self) -> dict[str, str]:
        """Key and value strings that the model's file carries."""
        return self._metadata()

    @property
    def threads(self) -> int:
        """Threads of one run."""
        return self._threads()

    @property
    def target(self) -> str:
        """Name of the target that the code is for."""
        return self._target()

    @property
    def compilations(self) -> int:
        """The number of bindings of the dynamic dimensions that have been compiled so far."""
        return self._compilations()

    def explain(
        self, *args: Any, stage: str | None = None, kernel: str | None = None, **named: Any
    ) -> Explanation | str:
        """The report of the compilation for these inputs, which are given as to a call; with `stage` the text of that stage.

        A model whose dimensions are all known needs no inputs. Stages are those of `tilewright.stages()`: `schedule`, `loops`,
        `asm` …; `kernel` shows those kernels alone whose names contain it.
        """
        if stage is not None:
            dims = dict(named.pop("dims", None) or {})
            if args or named:
                raise InvalidError("a stage takes sizes of dynamic dimensions (`dims`), not inputs")
            return self._explain(stage, kernel, dims)
        if kernel is not None:
            raise InvalidError("`kernel` is for a stage: pass `stage` too, such as stage='schedule'")
        data, text = self._report(args, named)
        return Explanation(text, json.loads(data))

    def save(self, path: str | os.PathLike[str], dims: Sequence[Mapping[str, int]] = ()) -> None:
        """Writes the compiled module to a file, for `load` and for the command line.

        `dims` has a dictionary of the sizes of dynamic dimensions for each binding that the file shall have; a model of fixed
        sizes needs none. The file is replaced as a whole.
        """
        self._save(os.fspath(path), [dict(binding) for binding in dims])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        if self.closed:
            return "<tilewright.Model, closed>"

        def shown(infos: list[TensorInfo]) -> str:
            def shape(info: TensorInfo) -> str:
                return "" if info.shape is None else "[" + ", ".join(map(str, info.shape)) + "]"

            return ", ".join(f"{info.name}: {info.dtype or info.kind}{shape(info)}" for info in infos)

        return f"<tilewright.Model ({shown(self.inputs)}) -> ({shown(self.outputs)})>"


def _names(value: Sequence[str]) -> list[str]:
    if isinstance(value, str):
        raise TypeError(f"pass a list of names: [{value!r}]")
    return list(value)


# Types of the native module, of which callers may give any mapping or sequence.
_CONVERTED: dict[str, Callable[[Any], Any]] = {
    "cache": os.fspath, "dims": dict, "growing": _names, "inputs": _names, "threads": operator.index, "values": dict,
}  # fmt: skip


def options_of(**given: Any) -> dict[str, Any]:
    """The options of `compile` as the native module takes them."""
    options = {}
    for key, value in given.items():
        try:
            options[key] = value if value is None else _CONVERTED.get(key, lambda same: same)(value)
        except (TypeError, ValueError) as error:
            raise InvalidError(f"option `{key}`: {error}") from None
    threads = options.get("threads")
    if threads is not None and threads < 1:
        raise InvalidError(f"{threads} threads: at least 1 is needed")
    return options


def compile(  # noqa: A001 - the word of the field
    model: str | os.PathLike[str] | bytes,
    *,
    precision: str | None = None,
    quotients: str | None = None,
    threads: int | None = None,
    target: str | None = None,
    cache: str | os.PathLike[str] | None = None,
    dims: Mapping[str, int] | None = None,
    values: Mapping[str, Any] | None = None,
    growing: Sequence[str] | None = None,
    inputs: Sequence[str] | None = None,
    schedules: str | None = None,
    directory: str | os.PathLike[str] | None = None,
    **others: Any,
) -> Model:
    """Compiles an ONNX model for this processor.

    Args:
        model: path of an ONNX file (or of a `.tile` program), or the bytes of an ONNX file.
        precision: `bf16` or `f16` for products of f32 whose operands have 16 bits, with sums in f32; `f32` is the default.
        quotients: `approximate` for quotients and square roots of f32 within three units in the last place; `exact` is the default.
        threads: threads of one run; one for each core by default. Results do not depend on it.
        target: name of a target (`tilewright.targets()`); by default the best one that this processor runs.
        cache: directory in which compiled modules are kept, and found again.
        dims: sizes of dynamic dimensions. Others are bound by the inputs of each run; each new size is compiled once.
        values: values of inputs that decide shapes, such as axes; others are taken from each run.
        growing: dynamic dimensions that grow from run to run, such as a decoder's past; they are compiled for capacities.
        inputs: names of inputs with a default that runs shall give.
        schedules: text of schedules for kernels, as `explain(stage="schedule")` prints them.
        directory: folder of external data of a model that is given as bytes.
        others: `accumulate`, `algorithm`, `max_error`, `max_memory`, `compile_threads`, `cache_bytes`, `instructions`: see docs/python.md.

    Raises:
        InvalidError: the file or an option is wrong.
        UnsupportedError: an operator is not supported; the message lists all such nodes.
        LimitError: a tensor is too large.
        FileError: the file cannot be read.
    """
    options = options_of(
        precision=precision, quotients=quotients, threads=threads, target=target, cache=cache, dims=dims, values=values, growing=growing, **others
    )
    source: dict[str, Any] = {"inputs": options_of(inputs=inputs)["inputs"], "schedules": schedules}
    if isinstance(model, (bytes, bytearray, memoryview)):
        source["bytes"] = bytes(model)
        source["directory"] = None if directory is None else os.path.abspath(directory)
    else:
        if directory is not None:
            raise InvalidError("`directory` is for a model that is given as bytes")
        source["path"] = os.path.abspath(model)
    return Model(source, options)


def load(path: str | os.PathLike[str], *, threads: int | None = None) -> Model:
    """Loads a module that `Model.save` or `tilewright compile` wrote.

    The file is trusted as a program is: it holds machine code, which runs with the rights of this process. Its checksum finds
    damage, not malice. It must not be changed while the model is in use.

    Raises:
        InvalidError: the file is not a module, is damaged, or of another version.
        UnsupportedError: it is for another processor.
        FileError: it cannot be read.
    """
    return Model({"module": os.path.abspath(path)}, options_of(threads=threads))
