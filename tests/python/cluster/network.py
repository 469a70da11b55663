"""A network for the tests of the engines, and its outputs in one process."""
import numpy as np
from conftest import FLOAT, onnx_model
from onnx import helper

import tilewright as tw

WIDTH, BATCH = 32, 8


def network(width=WIDTH, layers=2):
    """Layers of width by width, then the largest element: rows x to rows y and numbers top."""
    rng = np.random.default_rng(5)
    weights = [(f"w{i}", rng.standard_normal((width, width), np.float32) / width**0.5) for i in range(layers)]
    nodes, value = [], "x"
    for name, _ in weights:
        nodes += [helper.make_node("MatMul", [value, name], [f"m{name}"]), helper.make_node("Tanh", [f"m{name}"], [f"t{name}"])]
        value = f"t{name}"
    nodes += [helper.make_node("Identity", [value], ["y"]), helper.make_node("ReduceMax", [value, "axes"], ["top"], keepdims=0)]
    outputs = [("y", FLOAT, ["batch", width]), ("top", FLOAT, ["batch"])]
    return onnx_model(nodes, [("x", FLOAT, ["batch", width])], outputs, [*weights, ("axes", np.array([1]))])


def rows(count, width=WIDTH):
    return np.random.default_rng(6).standard_normal((count, width), np.float32)


def in_one_process(x, model=None, batch_size=BATCH):
    """y and top, batch by batch, without anything that this folder tests. The last batch is filled up with copies of the last row."""
    with tw.compile(model or network(), threads=1) as compiled:
        pad = -len(x) % batch_size
        filled = np.concatenate([x, np.repeat(x[-1:], pad, 0)])
        parts = [compiled.run({"x": filled[i : i + batch_size]}) for i in range(0, len(x), batch_size)]
    return tuple(np.concatenate([part[name] for part in parts])[: len(x)] for name in ("y", "top"))
