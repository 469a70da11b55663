"""Dask: models over the partitions of arrays, dataframes and bags.

    import tilewright.dask

    client = dask.distributed.Client(…)
    y = tilewright.dask.map_partitions(x, "model.onnx", batch_size=32)

The module is compiled here. A plugin takes it to each worker process once, also to those that come later or are started again; the
processes of one machine map one file. Partitions of a worker that is lost are computed again by Dask.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Unpack

import numpy as np

from ._portable import Options, Portable, node_file, portable
from .errors import InvalidError

__all__ = ["ModulePlugin", "Options", "carry", "map_partitions"]

try:
    from distributed.diagnostics.plugin import WorkerPlugin
except ImportError:  # the schedulers of one machine need no plugin
    WorkerPlugin = object  # type: ignore[assignment,misc]


class ModulePlugin(WorkerPlugin):  # type: ignore[misc]
    """Writes the module for the worker's processor into the directory of its node; `client.register_plugin(…)` sends it."""

    def __init__(self, model: Portable, modules: Mapping[str, bytes]):
        self.portable, self.modules = model, dict(modules)
        self.name = "tilewright-" + "-".join(digest[:12] for digest in self.modules)

    def setup(self, worker: Any) -> None:
        _, digest = self.portable.choose()
        node_file(digest, lambda: self.modules[digest])
        # the worker keeps the plugin
        self.modules = {}


def _from_plugin(digest: str) -> Any:
    raise InvalidError(f"the module {digest} is not on this worker: `tilewright.dask.carry(model, client)` sends it there")


def carry(model: Any, client: Any = None, **options: Unpack[Options]) -> Portable:
    """Compiles a model and sends its module to the workers of a client.

    By default the client is the current one. Where there is none, partitions are computed on this machine.
    """
    portable_model, modules = portable(model, **options)
    if client is None:
        client = _current_client()
    carried = portable_model.carried_by(_from_plugin)
    if client is not None:
        client.register_plugin(ModulePlugin(carried, modules))
    else:
        _, digest = portable_model.choose()
        node_file(digest, lambda: modules[digest])
    return carried


def _current_client() -> Any:
    try:
        from distributed import default_client
    except ImportError:
        return None
    try:
        return default_client()
    except ValueError:
        return None


def map_partitions(collection: Any, model: Any, *, client: Any = None, **options: Unpack[Options]) -> Any:
    """The outputs of a model for a collection.

    - Of an array, or a list of arrays for several inputs: an array whose chunks have the rows of its chunks, or a tuple of them for
      several outputs. Arrays are cut along their first axis.
    - Of a dataframe: one with the outputs instead of the inputs. Rows of several numbers are arrays of one dimension.
    - Of a bag of dictionaries: one of dictionaries with the outputs instead of the inputs.

    Args:
        collection: what the model is applied to.
        model: a path, bytes, `tilewright.Model`, `tilewright.Program`, or what `carry` returned.
        client: the client whose workers compute it; the current one by default.
        options: see `Options`. A run has one thread by default: a worker runs as many tasks at once as it has threads.

    Raises:
        InvalidError: this is no such collection; or see `Options`.
        UnsupportedError: see `Options`.
    """
    if not isinstance(model, Portable):
        model = carry(model, client, **options)
    if isinstance(collection, (list, tuple)):
        return _map_arrays(model, list(collection))
    kind = type(collection).__module__.split(".")
    if hasattr(collection, "chunks"):
        return _map_arrays(model, [collection])
    if "bag" in kind:
        return collection.map_partitions(_run_items, model)
    if hasattr(collection, "map_partitions"):
        return collection.map_partitions(_run_frame, model, meta=model.run_frame(collection._meta))
    raise InvalidError(f"{type(collection).__name__} is not an array, dataframe or bag of Dask")


def _run_arrays(model: Portable, *arrays: Any) -> list[np.ndarray]:
    return model.run(arrays)


def _run_frame(frame: Any, model: Portable) -> Any:
    return model.run_frame(frame)


def _run_items(items: Iterable[dict[str, Any]], model: Portable) -> Iterator[dict[str, Any]]:
    """The items of a partition with the outputs instead of the inputs."""
    items = list(items)
    if not items:
        return iter(())
    results = model.run_columns({name: np.stack([np.asarray(item[name]) for item in items]) for name in model.taken()})
    rest = [{name: value for name, value in item.items() if name not in model.taken()} for item in items]
    return iter([{**others, **{name: results[name][i] for name in results}} for i, others in enumerate(rest)])


def _map_arrays(model: Portable, arrays: list[Any]) -> Any:
    import dask
    import dask.array as da

    if len(arrays) != len(model.inputs):
        raise InvalidError(f"{len(arrays)} arrays were given, but the model has {len(model.inputs)} inputs")
    # a chunk has whole rows, and the chunks of all inputs the same ones
    arrays = [array.rechunk({axis: -1 for axis in range(1, array.ndim)}) for array in arrays]
    arrays = [array if array.chunks[0] == arrays[0].chunks[0] else array.rechunk({0: arrays[0].chunks[0]}) for array in arrays]
    run = dask.delayed(_run_arrays, pure=True)
    blocks = zip(*(array.to_delayed().ravel() for array in arrays), strict=True)
    runs = [run(model, *block) for block in blocks]
    results = []
    for i, spec in enumerate(model.outputs):
        parts = [
            da.from_delayed(found[i], (rows, *spec.shape), dtype=spec.dtype)
            for found, rows in zip(runs, arrays[0].chunks[0], strict=True)
        ]
        results.append(da.concatenate(parts))
    return results[0] if len(results) == 1 else tuple(results)
