"""Models for the processes of a cluster: compiled once, carried as modules, loaded once by each process.

The driver compiles a module for each target that is asked for, by default its own. What travels is the module; a node keeps it in a
file that is named by its content, from which all processes of the node map it. How the bytes travel is up to `tilewright.ray`,
`tilewright.dask` and `tilewright.spark`: they give a `fetch` that finds them by the name. Nothing is compiled on a node: where no
module is for its processor, loading is an `UnsupportedError` that names both.

A module is for one size of batches. Rows come in any number: they are run in batches, the last one filled up with copies of its last row.
Rows are independent of each other; that is what running in batches means.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import stat
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypedDict, Unpack

import numpy as np

from ._model import Model, TensorInfo, compile, load
from ._program import Program
from .errors import FileError, InvalidError, UnsupportedError

__all__ = ["Options", "Portable", "Rows", "portable"]

#: What this process did: modules that were `fetched` into the node's directory, and `loaded`.
events: Counter[str] = Counter()

#: Models of this process, by their modules and the threads of a run.
_LOADED: dict[tuple[tuple[tuple[str, str], ...], int], Model] = {}
_LOCK = threading.Lock()


class Rows(NamedTuple):
    """An input or an output, of which a row is one element of a batch."""

    name: str
    #: Names of columns: one with whole rows, or several with one number each.
    columns: tuple[str, ...]
    dtype: np.dtype
    #: Extents of one row.
    shape: tuple[int, ...]


class Portable:
    """A model that is run on rows in any process. It is small: the modules travel apart, and `fetch` gets one by its digest."""

    def __init__(
        self,
        modules: Sequence[tuple[str, str]],
        inputs: Sequence[Rows],
        outputs: Sequence[Rows],
        batch_size: int,
        threads: int,
        fetch: Callable[[str], Any],
    ):
        #: Target and digest of each module, in the order in which a node tries them.
        self.modules = tuple(modules)
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)
        self.batch_size, self.threads = batch_size, threads
        self.fetch = fetch

    def carried_by(self, fetch: Callable[[str], Any]) -> Portable:
        """The same model, whose modules another function gets."""
        return Portable(self.modules, self.inputs, self.outputs, self.batch_size, self.threads, fetch)

    def choose(self) -> tuple[str, str]:
        """Target and digest of the module for this processor; the first one where there is none, which refuses to load."""
        from . import targets

        runnable = set(targets(runnable=True))
        return next((module for module in self.modules if module[0] in runnable), self.modules[0])

    def model(self) -> Model:
        """The model in this process, which loads it when it is first needed.

        Raises:
            UnsupportedError: no module is for this processor.
        """
        with _LOCK:
            model = _LOADED.get((self.modules, self.threads))
            if model is None:
                _, digest = self.choose()
                path = node_file(digest, lambda: self.fetch(digest))
                try:
                    model = load(path, threads=self.threads)
                except UnsupportedError as error:
                    names = ", ".join(name for name, _ in self.modules)
                    text = f"node {platform.node()}: {error}. Modules were carried for {names}: name one for this processor in `targets`"
                    raise UnsupportedError(text) from None
                events["loaded"] += 1
                _LOADED[self.modules, self.threads] = model
            return model

    def run(self, arrays: Sequence[Any]) -> list[np.ndarray]:
        """The outputs for arrays in the order of the inputs, of which each has one row for each element.

        Raises:
            InvalidError: rows have another type or shape than the model takes, or arrays have different numbers of rows.
        """
        given = [_rows(array, spec) for array, spec in zip(arrays, self.inputs, strict=True)]
        count = len(given[0])
        if any(len(array) != count for array in given):
            lengths = ", ".join(f"{spec.name}: {len(array)}" for array, spec in zip(given, self.inputs, strict=True))
            raise InvalidError(f"the inputs have different numbers of rows: {lengths}")
        results = [np.empty((count, *spec.shape), spec.dtype) for spec in self.outputs]
        if not count:
            return results
        model = self.model()
        for start in range(0, count, self.batch_size):
            missing = start + self.batch_size - count
            part = slice(start, start + self.batch_size)
            if missing <= 0:
                feed = {spec.name: array[part] for array, spec in zip(given, self.inputs, strict=True)}
                out = {spec.name: result[part] for result, spec in zip(results, self.outputs, strict=True)}
                model.run(feed, out=out)
                continue
            feed = {
                spec.name: np.concatenate([array[part], np.repeat(array[-1:], missing, 0)])
                for array, spec in zip(given, self.inputs, strict=True)
            }
            found = model.run(feed)
            for result, spec in zip(results, self.outputs, strict=True):
                result[part] = found[spec.name][: count - start]
        return results

    def run_columns(self, columns: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """The outputs by the names of their columns, for columns by name."""
        arrays = []
        for spec in self.inputs:
            absent = [name for name in spec.columns if name not in columns]
            if absent:
                text = f"input `{spec.name}`: there is no column `{absent[0]}`: there are {', '.join(map(str, columns))}"
                raise InvalidError(f"{text}; say which ones it takes with `columns`")
            parts = [columns[name] for name in spec.columns]
            arrays.append(parts[0] if len(parts) == 1 else np.stack([np.asarray(part) for part in parts], 1))
        return {spec.columns[0]: result for spec, result in zip(self.outputs, self.run(arrays), strict=True)}

    def taken(self) -> set[str]:
        """The names of the columns that are inputs: what comes out has the outputs instead."""
        return {name for spec in self.inputs for name in spec.columns}

    def run_frame(self, frame: Any) -> Any:
        """A frame of pandas with the outputs instead of the inputs; rows of several numbers are arrays of one dimension."""
        results = self.run_columns({name: frame[name].to_numpy() for name in frame.columns if name in self.taken()})
        rest = frame.drop(columns=[name for name in frame.columns if name in self.taken()])
        return rest.assign(**{name: _cells(array) for name, array in results.items()})


def _rows(array: Any, spec: Rows) -> np.ndarray:
    """The rows as an array that the model takes without a copy of its own."""
    array = np.asarray(array)
    if array.dtype == object and len(array):
        array = np.stack([np.asarray(row) for row in array])
        if array.dtype == object:
            array = np.array(array.tolist())
    if not len(array):
        return np.empty((0, *spec.shape), spec.dtype)
    if array.shape[1:] != spec.shape:
        if int(np.prod(array.shape[1:])) != int(np.prod(spec.shape)) or (array.ndim > 2 and spec.shape):
            raise InvalidError(f"input `{spec.name}`: rows have the shape {array.shape[1:]}, the model takes {spec.shape}")
        array = array.reshape(len(array), *spec.shape)
    if array.dtype != spec.dtype:
        if not np.can_cast(array.dtype, spec.dtype, "same_kind"):
            raise InvalidError(f"input `{spec.name}`: rows are of {array.dtype}, the model takes {spec.dtype}")
        array = array.astype(spec.dtype)
    return np.ascontiguousarray(array)


def _cells(rows: np.ndarray) -> np.ndarray:
    """A column of a frame: the numbers, or an object for each row."""
    if rows.ndim == 1:
        return rows
    cells = np.empty(len(rows), object)
    for i, row in enumerate(rows):
        cells[i] = row.ravel()
    return cells


def node_directory() -> Path:
    """The directory with the modules of this node: `TILEWRIGHT_NODE_CACHE`, or a folder of this user below that of temporary files.

    Raises:
        FileError: it belongs to another user, or others may write there: a module is a program.
    """
    given = os.environ.get("TILEWRIGHT_NODE_CACHE")
    path = Path(given) if given else Path(tempfile.gettempdir()) / f"tilewright-{os.getuid()}"
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = path.lstat()
    except OSError as error:
        raise FileError(f"{path}: {error}") from None
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise FileError(f"{path}: modules are kept in a directory of one's own into which nobody else may write: set TILEWRIGHT_NODE_CACHE")
    return path.absolute()


def node_file(digest: str, fetch: Callable[[], Any]) -> Path:
    """The file of a module on this node. The first process that needs it writes it; others wait for that."""
    directory = node_directory()
    path = directory / f"{digest}.tw"
    try:
        with open(directory / f"{digest}.lock", "wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.is_file() or _digest_of(path) != digest:
                data = fetch()
                if _digest(data) != digest:
                    raise InvalidError(f"the module {digest} arrived with other bytes")
                beside = path.with_suffix(".part")
                beside.write_bytes(data)
                beside.replace(path)
                events["fetched"] += 1
    except OSError as error:
        raise FileError(f"{path}: {error}") from None
    return path


def _hash(data: Any = b"") -> Any:
    return hashlib.blake2b(data, digest_size=20)


def _digest(data: Any) -> str:
    return _hash(data).hexdigest()


def _digest_of(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, _hash).hexdigest()


class Options(TypedDict, total=False):
    """How a model runs on the rows of an engine: arguments of all functions that carry one.

    - `batch_size`: rows of one run, whatever the engine's own batches or partitions are. A model whose first dimension is fixed
      has its size.
    - `dims`: sizes of the other dynamic dimensions.
    - `columns`: columns of inputs that are called otherwise: `{"x": "image"}`, or `{"x": ["a", "b"]}` of one number each.
    - `outputs`: columns of outputs that shall be called otherwise.
    - `targets`: targets of the nodes, best first, where they are not all as the processor here: a module is compiled for each.
    - `threads`: threads of one run.

    `InvalidError`: an input or an output has no dimension of rows, or a dynamic dimension has no size. On the nodes, where the
    modules are for other processors: `UnsupportedError`.
    """

    batch_size: int | None
    dims: Mapping[str, int] | None
    columns: Mapping[str, str | Sequence[str]] | None
    outputs: Mapping[str, str] | None
    targets: Sequence[str] | None
    threads: int | None


def portable(model: Any, **options: Unpack[Options]) -> tuple[Portable, dict[str, bytes]]:
    """A model for rows, and its modules by their digests.

    Args:
        model: path of an ONNX file, of a `.tile` program or of a saved module (`.tw`); bytes of an ONNX file; a `Model` or a `Program`.
        options: see `Options`.

    Raises:
        InvalidError: see `Options`; or there is no such option.
    """
    unknown = sorted(set(options) - set(Options.__annotations__))
    if unknown:
        raise InvalidError(f"there is no option `{unknown[0]}`: there are {', '.join(Options.__annotations__)}")
    columns, outputs, targets = options.get("columns"), options.get("outputs"), options.get("targets")
    threads = options.get("threads") or 1
    if isinstance(model, Program):
        model = model.compile()
    elif not isinstance(model, Model):
        is_module = isinstance(model, (str, os.PathLike)) and os.fspath(model).endswith(".tw")
        model = load(model) if is_module else compile(model, threads=threads)
    dims, batch_size = _bindings(model, options.get("batch_size"), dict(options.get("dims") or {}))
    modules = [(name, _module(model, name, dims)) for name in (targets or [model.target])]
    data = {_digest(module): module for _, module in modules}
    given, results = _signature(model, modules, dims)
    for infos, names in ((given, columns), (results, outputs)):
        unknown = set(names or {}) - {info.name for info in infos}
        if unknown:
            raise InvalidError(f"the model has no `{min(unknown)}`: there are {', '.join(info.name for info in infos)}")
    rows = [[_row(info, names or {}, batch_size) for info in infos] for infos, names in ((given, columns), (results, outputs))]
    digests = [(name, _digest(module)) for name, module in modules]

    def fetch(digest: str) -> bytes:
        return data[digest]

    return Portable(digests, rows[0], rows[1], batch_size, threads, fetch), data


def _bindings(model: Model, batch_size: int | None, dims: dict[str, int]) -> tuple[dict[str, int], int]:
    """The sizes of all dynamic dimensions, and that of a batch."""
    firsts = {info.shape[0] for info in model.inputs if info.shape}
    if len(firsts) != 1 or not all(info.shape for info in model.inputs):
        shown = ", ".join(f"{info.name}: {info.shape}" for info in model.inputs)
        raise InvalidError(f"the first dimension of all inputs counts the rows and has one size: {shown}")
    (first,) = firsts
    if isinstance(first, int):
        if batch_size not in (None, first):
            raise InvalidError(f"the model takes batches of {first} rows, not of {batch_size}")
        batch_size = first
    else:
        batch_size = batch_size or dims.get(first)
        if batch_size is None or batch_size < 1:
            raise InvalidError(f"dimension `{first}` counts the rows of a batch: pass `batch_size`")
        dims[first] = batch_size
    if "module" in model._source:
        if any(isinstance(extent, str) for info in model.inputs for extent in info.shape or ()):
            raise InvalidError("a saved module of several sizes cannot be carried: save it for that of one batch")
        return {}, batch_size
    known = {**(model._options.get("dims") or {}), **dims}
    missing = [name for name in model.dims if name not in known]
    if missing:
        raise InvalidError(f"dimension `{missing[0]}` has no size: pass it in `dims`")
    return {name: known[name] for name in model.dims}, batch_size


def _module(model: Model, target: str, dims: Mapping[str, int]) -> bytes:
    """The bytes of the module for a target."""
    if "module" in model._source:
        if model.target != target:
            raise InvalidError(f"a module that was saved is for its target alone, {model.target}, not for {target}")
        return Path(model._source["module"]).read_bytes()
    if target != model.target:
        model = type(model)(model._source, {**model._options, "target": target})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.tw"
        model.save(path, [dims] if dims else ())
        return path.read_bytes()


def _signature(
    model: Model, modules: Sequence[tuple[str, bytes]], dims: Mapping[str, int]
) -> tuple[list[TensorInfo], list[TensorInfo]]:
    """Inputs and outputs of the module, with the sizes of a batch."""
    from . import targets

    runnable = targets(runnable=True)
    module = next((data for name, data in modules if name in runnable), None)
    if module is None:
        # all modules are for other processors: one for this processor has the same inputs and outputs
        source = {key: value for key, value in model._options.items() if key != "target"}
        module = _module(type(model)(model._source, source), runnable[0], dims)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.tw"
        path.write_bytes(module)
        with load(path, threads=1) as loaded:
            return loaded.inputs, loaded.outputs


def _row(info: TensorInfo, names: Mapping[str, str | Sequence[str]], batch_size: int) -> Rows:
    if not info.shape or info.shape[0] != batch_size or info.dtype is None or not all(isinstance(n, int) for n in info.shape):
        raise InvalidError(f"`{info.name}` has the shape {info.shape}: its first dimension is to be that of {batch_size} rows")
    columns = names.get(info.name, info.name)
    shape = tuple(int(extent) for extent in info.shape[1:])
    return Rows(info.name, (columns,) if isinstance(columns, str) else tuple(columns), _dtype(info.dtype), shape)


def _dtype(name: str) -> np.dtype:
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name))
