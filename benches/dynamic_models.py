"""Make the models of the suite `shapes`: transformers with dynamic dimensions, as exporters write them, weights from a seed.

usage: dynamic_models.py FOLDER        writes FOLDER/bert_dynamic.onnx and FOLDER/decoder.onnx
       dynamic_models.py --fixtures    writes the small ones of tests/fixtures/networks, with recipes instead of weights
"""
import pathlib
import sys

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper


class Network:
    """A graph under construction. Methods add a node and return the name of its result."""

    def __init__(self, name, seed, recipes=False):
        self.recipes = recipes
        self.name, self.random, self.nodes, self.weights = name, numpy.random.default_rng(seed), [], []
        self.inputs, self.outputs, self.constants = [], [], {}

    def add(self, kind, *operands, result=None, **attributes):
        result = result or f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(operands), [result], name=f"n{len(self.nodes)}_{kind}", **attributes))
        return result

    def constant(self, value, dtype):
        value = numpy.asarray(value, dtype)
        key = (value.dtype.str, value.shape, value.tobytes())
        if key not in self.constants:
            self.constants[key] = f"constant_{len(self.constants)}"
            self.weights.append(numpy_helper.from_array(value, self.constants[key]))
        return self.constants[key]

    def integers(self, *values):
        return self.constant(values, numpy.int64)

    def weight(self, name, *shape, mean=0.0, deviation=0.02):
        if self.recipes:
            tensor = TensorProto(name=name, dims=shape, data_type=TensorProto.FLOAT, data_location=TensorProto.EXTERNAL)
            recipe = {"location": "synthetic", "distribution": "normal", "seed": len(self.weights), "mean": mean, "std": deviation}
            tensor.external_data.extend(onnx.StringStringEntryProto(key=key, value=str(entry)) for key, entry in recipe.items())
            self.weights.append(tensor)
            return name
        value = mean + deviation * self.random.standard_normal(shape, dtype=numpy.float32)
        self.weights.append(numpy_helper.from_array(value.astype(numpy.float32), name))
        return name

    def linear(self, x, name, inputs, outputs):
        return self.add("Add", self.add("MatMul", x, self.weight(f"{name}.weight", inputs, outputs)), self.weight(f"{name}.bias", outputs))

    def norm(self, x, name, width):
        scale = self.weight(f"{name}.scale", width, mean=1.0)
        return self.add("LayerNormalization", x, scale, self.weight(f"{name}.bias", width), axis=-1, epsilon=1e-12)

    def gelu(self, x):
        half = self.add("Div", x, self.constant(2 ** 0.5, numpy.float32))
        sum_ = self.add("Add", self.add("Erf", half), self.constant(1, numpy.float32))
        return self.add("Mul", self.add("Mul", x, sum_), self.constant(0.5, numpy.float32))

    def size(self, x, axis):
        """One size of a tensor, of shape [1]."""
        size = self.add("Gather", self.add("Shape", x), self.constant(axis, numpy.int64), axis=0)
        return self.add("Unsqueeze", size, self.integers(0))

    def concat(self, *parts):
        return self.add("Concat", *parts, axis=0)

    def heads(self, x, heads, width):
        """(batch, length, heads * width) to (batch, heads, length, width)."""
        shape = self.concat(self.size(x, 0), self.size(x, 1), self.integers(heads), self.integers(width))
        return self.add("Transpose", self.add("Reshape", x, shape), perm=[0, 2, 1, 3])

    def joined(self, x, width):
        """(batch, heads, length, width of a head) to (batch, length, width)."""
        x = self.add("Transpose", x, perm=[0, 2, 1, 3])
        return self.add("Reshape", x, self.concat(self.size(x, 0), self.size(x, 1), self.integers(width)))

    def input(self, name, dtype, *shape):
        self.inputs.append(helper.make_tensor_value_info(name, dtype, shape))
        return name

    def output(self, name, *shape):
        self.outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
        return name

    def save(self, path):
        graph = helper.make_graph(self.nodes, self.name, self.inputs, self.outputs, self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        if not self.recipes:
            onnx.checker.check_model(model)
        onnx.save(model, path)


def bert(layers=12, width=768, heads=12, vocabulary=30522, positions=512, recipes=False):
    """BERT-base (Devlin et al., 2018), batch and length dynamic."""
    net = Network("bert_dynamic", 1, recipes)
    ids = net.input("input_ids", TensorProto.INT64, "batch", "length")
    mask = net.input("attention_mask", TensorProto.INT64, "batch", "length")
    words = net.add("Gather", net.weight("embeddings.word", vocabulary, width), ids, axis=0)
    numbers = net.constant(numpy.arange(positions)[None], numpy.int64)
    numbers = net.add("Slice", numbers, net.integers(0), net.size(ids, 1), net.integers(1), net.integers(1))
    places = net.add("Gather", net.weight("embeddings.position", positions, width), numbers, axis=0)
    x = net.norm(net.add("Add", words, places), "embeddings.norm", width)
    mask = net.add("Cast", net.add("Unsqueeze", mask, net.integers(1, 2)), to=TensorProto.FLOAT)
    mask = net.add("Mul", net.add("Sub", net.constant(1, numpy.float32), mask), net.constant(-10000, numpy.float32))
    for layer in range(layers):
        name, head = f"layer.{layer}", width // heads
        q, k, v = (net.heads(net.linear(x, f"{name}.{part}", width, width), heads, head) for part in ["query", "key", "value"])
        scores = net.add("MatMul", q, net.add("Transpose", k, perm=[0, 1, 3, 2]))
        scores = net.add("Add", net.add("Div", scores, net.constant(head ** 0.5, numpy.float32)), mask)
        context = net.joined(net.add("MatMul", net.add("Softmax", scores, axis=-1), v), width)
        x = net.norm(net.add("Add", net.linear(context, f"{name}.output", width, width), x), f"{name}.norm_1", width)
        inner = net.gelu(net.linear(x, f"{name}.up", width, 4 * width))
        x = net.norm(net.add("Add", net.linear(inner, f"{name}.down", 4 * width, width), x), f"{name}.norm_2", width)
    net.add("Identity", x, result=net.output("last_hidden_state", "batch", "length", width))
    return net


def decoder(layers=4, width=256, heads=4, vocabulary=8000, positions=1024, recipes=False):
    """A decoder in the order of GPT-2 (Radford et al., 2019) with a key-value cache: `past` is the number of tokens before."""
    net = Network("decoder", 2, recipes)
    head = width // heads
    ids = net.input("input_ids", TensorProto.INT64, "batch", "length")
    pasts = [[net.input(f"past.{layer}.{part}", TensorProto.FLOAT, "batch", heads, "past", head) for part in ["key", "value"]]
             for layer in range(layers)]
    past, length = net.size(pasts[0][0], 2), net.size(ids, 1)
    total = net.add("Add", past, length)
    scalar = [net.add("Squeeze", size, net.integers(0)) for size in [past, total]]
    numbers = net.add("Range", *scalar, net.constant(1, numpy.int64))
    places = net.add("Gather", net.weight("embeddings.position", positions, width), numbers, axis=0)
    words = net.weight("embeddings.word", vocabulary, width)
    x = net.add("Add", net.add("Gather", words, ids, axis=0), places)
    causal = net.constant(numpy.tril(numpy.ones((1, 1, positions, positions), bool)), bool)
    causal = net.add("Slice", causal, past, total, net.integers(2), net.integers(1))
    causal = net.add("Slice", causal, net.integers(0), total, net.integers(3), net.integers(1))
    for layer in range(layers):
        name = f"layer.{layer}"
        inner = net.norm(x, f"{name}.norm_1", width)
        q, k, v = (net.heads(net.linear(inner, f"{name}.{part}", width, width), heads, head) for part in ["query", "key", "value"])
        shape = "batch", heads, "total", head
        k = net.add("Concat", pasts[layer][0], k, result=net.output(f"present.{layer}.key", *shape), axis=2)
        v = net.add("Concat", pasts[layer][1], v, result=net.output(f"present.{layer}.value", *shape), axis=2)
        scores = net.add("MatMul", q, net.add("Transpose", k, perm=[0, 1, 3, 2]))
        scores = net.add("Div", scores, net.constant(head ** 0.5, numpy.float32))
        scores = net.add("Where", causal, scores, net.constant(numpy.finfo(numpy.float32).min, numpy.float32))
        context = net.joined(net.add("MatMul", net.add("Softmax", scores, axis=-1), v), width)
        x = net.add("Add", net.linear(context, f"{name}.output", width, width), x)
        inner = net.gelu(net.linear(net.norm(x, f"{name}.norm_2", width), f"{name}.up", width, 4 * width))
        x = net.add("Add", net.linear(inner, f"{name}.down", 4 * width, width), x)
    x = net.norm(x, "norm", width)
    logits = net.output("logits", "batch", "length", vocabulary)
    net.add("MatMul", x, net.add("Transpose", words, perm=[1, 0]), result=logits)
    return net


def main(folder):
    if folder == "--fixtures":
        folder = pathlib.Path(__file__).resolve().parents[1] / "tests" / "fixtures" / "networks"
        bert(2, 128, 2, 50, 64, recipes=True).save(folder / "small_bert.onnx")
        return
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    bert().save(folder / "bert_dynamic.onnx")
    decoder().save(folder / "decoder.onnx")


if __name__ == "__main__":
    main(*sys.argv[1:]) if len(sys.argv) == 2 else sys.exit(__doc__)
