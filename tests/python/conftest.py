"""Small ONNX models for the tests of the Python package."""
import pathlib

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

ROOT = pathlib.Path(__file__).resolve().parents[2]

DOUBLE = "def double(f32(N) x) -> (y) { y(i) = 2 * x(i) }"

GEMM = """
def gemm(f32(M, K) A, f32(K, N) B) -> (C) {
    sizes SMALL { M = 48, N = 64, K = 32 }
    C(m, n) +=! A(m, k) * B(k, n)
}

schedule tiled for gemm {
    distribute C_init, C at m
    tile C(m, n) by (8, 32) -> mo, no, mi, ni
    reorder C(mo, no, k, mi, ni)
    unroll mi
    vectorize ni
    parallel mo
}
"""


def onnx_model(nodes, inputs, outputs, weights=(), metadata=()):
    """The bytes of a model; inputs and outputs are (name, type, shape), weights (name, array)."""
    info = [[helper.make_tensor_value_info(*row) for row in rows] for rows in (inputs, outputs)]
    graph = helper.make_graph(nodes, "test", *info, [numpy_helper.from_array(a, n) for n, a in weights])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    helper.set_model_props(model, dict(metadata))
    return model.SerializeToString()


FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


@pytest.fixture(scope="session")
def linear():
    """y = relu(x · w + b), x of any number of rows."""
    rng = np.random.default_rng(0)
    weight, bias = rng.standard_normal((8, 5), np.float32), rng.standard_normal(5).astype(np.float32)
    nodes = [helper.make_node("Gemm", ["x", "w", "b"], ["g"]), helper.make_node("Relu", ["g"], ["y"])]
    model = onnx_model(nodes, [("x", FLOAT, ["batch", 8])], [("y", FLOAT, ["batch", 5])], [("w", weight), ("b", bias)],
                       {"author": "tests"})
    return model, lambda x: np.maximum(x @ weight + bias, 0)


@pytest.fixture(scope="session")
def two():
    """Two inputs of fixed sizes, two outputs: their sum and their difference."""
    nodes = [helper.make_node("Add", ["a", "b"], ["sum"]), helper.make_node("Sub", ["a", "b"], ["difference"])]
    return onnx_model(nodes, [("a", FLOAT, [2, 3]), ("b", FLOAT, [2, 3])],
                      [("sum", FLOAT, [2, 3]), ("difference", FLOAT, [2, 3])])


@pytest.fixture(scope="session")
def in_parts():
    """The places of elements that are not zero: the size of the result follows from the data."""
    return onnx_model([helper.make_node("NonZero", ["x"], ["places"])], [("x", FLOAT, ["n"])], [("places", INT64, [1, None])])


@pytest.fixture(scope="session")
def sequence():
    """A sequence of tensors and an optional one."""
    tensor = helper.make_tensor_type_proto(FLOAT, [None])
    nodes = [helper.make_node("ConcatFromSequence", ["xs"], ["y"], axis=0),
             helper.make_node("SequenceInsert", ["xs", "x"], ["more"])]
    inputs = [helper.make_value_info("xs", helper.make_sequence_type_proto(tensor)), helper.make_value_info("x", tensor)]
    outputs = [helper.make_value_info("y", tensor), helper.make_value_info("more", helper.make_sequence_type_proto(tensor))]
    graph = helper.make_graph(nodes, "sequences", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9).SerializeToString()


def identity(code, shape):
    """A model that returns its input."""
    node = helper.make_node("Identity", ["x"], ["y"])
    return onnx_model([node], [("x", code, shape)], [("y", code, shape)])


assert onnx.__version__
