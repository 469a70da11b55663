#!/usr/bin/env python3
"""Write a weightless graph of datasets/networks with its seeded weights inside, for programs other than tilewright.

usage: materialize.py WEIGHTLESS.onnx FULL.onnx        (needs the packages onnx and numpy)

Tilewright itself reads the weightless graphs as they are (src/graph/synthetic.rs makes the same bytes).
"""
import sys

import numpy as np
import onnx


def values(recipe, shape):
    """The tensor that a recipe describes: float32, from NumPy's PCG64."""
    random = np.random.Generator(np.random.PCG64(int(recipe["seed"])))
    if recipe["distribution"] == "uniform":
        low, high = float(recipe["low"]), float(recipe["high"])
        return low + (high - low) * random.random(shape, dtype=np.float32)
    mean, std = float(recipe["mean"]), float(recipe["std"])
    return mean + std * random.standard_normal(shape, dtype=np.float32)


def materialize(source):
    """The model in the file `source` with every recipe replaced by its values."""
    model = onnx.load(source, load_external_data=False)
    for tensor in model.graph.initializer:
        recipe = {entry.key: entry.value for entry in tensor.external_data}
        if recipe.get("location") == "synthetic":
            data = values(recipe, tuple(tensor.dims))
            tensor.ClearField("external_data")
            tensor.ClearField("data_location")
            tensor.raw_data = np.ascontiguousarray(data, dtype="<f4").tobytes()
    return model


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    onnx.save(materialize(sys.argv[1]), sys.argv[2])
