"""Ray: models in the actors of `Dataset.map_batches`.

    import tilewright.ray

    scored = tilewright.ray.map_batches(dataset, "model.onnx", batch_size=32)

The module is compiled here and put into Ray's object store, from which a node takes it once; its actors map one file. Each actor has a
session. Batches of an actor or a node that is lost are run again by Ray.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import ray
import ray.data

from ._portable import Portable, portable

__all__ = ["Predictor", "map_batches", "put"]


class _ObjectStore:
    """Modules in Ray's object store."""

    def __init__(self, modules: Mapping[str, bytes]):
        # an array of bytes is read in the store's own memory
        self.references = {digest: ray.put(np.frombuffer(data, np.uint8)) for digest, data in modules.items()}

    def __call__(self, digest: str) -> Any:
        return memoryview(ray.get(self.references[digest]))


class Predictor:
    """The class of the actors: `dataset.map_batches(Predictor, fn_constructor_args=[put(model)], …)`.

    A batch is a dictionary of arrays by column; the inputs are replaced by the outputs.
    """

    def __init__(self, model: Portable):
        self.portable = model
        model.model()

    def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        rest = {name: column for name, column in batch.items() if name not in self.portable.taken()}
        return rest | self.portable.run_columns(batch)


def put(model: Any, *, batch_size: int | None = None, threads: int = 1, **others: Any) -> Portable:
    """Compiles a model and puts its module into the object store; arguments as those of `map_batches`."""
    portable_model, modules = portable(model, batch_size=batch_size, threads=threads, **others)
    return portable_model.carried_by(_ObjectStore(modules))


def map_batches(
    dataset: ray.data.Dataset,
    model: Any,
    *,
    batch_size: int | None = None,
    dims: Mapping[str, int] | None = None,
    columns: Mapping[str, str | Sequence[str]] | None = None,
    outputs: Mapping[str, str] | None = None,
    targets: Sequence[str] | None = None,
    num_cpus: int = 1,
    actors: int | None = None,
    batches: int = 8,
    **others: Any,
) -> ray.data.Dataset:
    """The dataset with the outputs of the model instead of its inputs.

    Args:
        dataset: rows with a column for each input.
        model: a path, bytes, `tilewright.Model` or `tilewright.Program`.
        batch_size: rows of one run. A model whose first dimension is fixed has its size.
        dims: sizes of other dynamic dimensions.
        columns: columns of inputs that are called otherwise: `{"x": "image"}`, or `{"x": ["a", "b"]}` of numbers.
        outputs: columns of outputs that shall be called otherwise.
        targets: targets of the nodes, best first, where they are not all as the processor here.
        num_cpus: cores of an actor, which are the threads of a run.
        actors: how many there are; one for each node by default.
        batches: batches that an actor gets in one call. What Ray does for a call takes milliseconds, whatever the number of its rows.
        others: arguments of `Dataset.map_batches`.

    Raises:
        InvalidError: the model has no dimension of rows, or a dimension has no size.
        UnsupportedError: in the actors, where the modules are for other processors.
    """
    carried = put(
        model, batch_size=batch_size, threads=num_cpus, dims=dims, columns=columns, outputs=outputs, targets=targets
    )
    nodes = sum(1 for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) >= num_cpus)
    return dataset.map_batches(
        Predictor,
        fn_constructor_args=[carried],
        batch_size=carried.batch_size * batches,
        batch_format="numpy",
        num_cpus=num_cpus,
        **{"compute": ray.data.ActorPoolStrategy(size=actors or max(nodes, 1)), **others},
    )
