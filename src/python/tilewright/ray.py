"""Ray: models in the actors of `Dataset.map_batches`.

    import tilewright.ray

    scored = tilewright.ray.map_batches(dataset, "model.onnx", batch_size=32)

The module is compiled here and put into Ray's object store, from which a node takes it once; its actors map one file. Each actor has a
session. Batches of an actor or a node that is lost are run again by Ray.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

import numpy as np
import ray
import ray.data

from ._portable import Options, Portable, portable

__all__ = ["Options", "Predictor", "map_batches", "put"]


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


def put(model: Any, **options: Unpack[Options]) -> Portable:
    """Compiles a model and puts its module into the object store."""
    portable_model, modules = portable(model, **options)
    return portable_model.carried_by(_ObjectStore(modules))


def map_batches(
    dataset: ray.data.Dataset,
    model: Any,
    *,
    num_cpus: int = 1,
    actors: int | None = None,
    batches: int = 8,
    **others: Any,
) -> ray.data.Dataset:
    """The dataset with the outputs of the model instead of its inputs.

    Args:
        dataset: rows with a column for each input.
        model: a path, bytes, `tilewright.Model`, `tilewright.Program`, or what `put` returned.
        num_cpus: cores of an actor, which are the threads of a run by default.
        actors: how many there are; one for each node by default.
        batches: batches that an actor gets in one call. What Ray does for a call takes milliseconds, whatever the number of its rows.
        others: the model's `Options`, and arguments of `Dataset.map_batches`.

    Raises:
        InvalidError, UnsupportedError: see `Options`.
    """
    options: Any = {name: others.pop(name) for name in Options.__annotations__ if name in others}
    carried = model if isinstance(model, Portable) else put(model, **{"threads": num_cpus, **options})
    nodes = sum(1 for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) >= num_cpus)
    return dataset.map_batches(
        Predictor,
        fn_constructor_args=[carried],
        batch_size=carried.batch_size * batches,
        batch_format="numpy",
        num_cpus=num_cpus,
        **{"compute": ray.data.ActorPoolStrategy(size=actors or max(nodes, 1)), **others},
    )
