"""Random networks of 3 to 12 nodes over all operators, with inputs and what ONNX Runtime computes.

    make conformance RANDOM=1000 SEED=3       compares fresh networks with ONNX Runtime
    random_networks.py --write 60 --seed 1    makes the fixtures `random_*` in tests/fixtures/operators

A network grows node by node: a recipe makes a node on values that are known, ONNX Runtime computes it by itself, and a node
that it refuses, or whose results are not finite, large or many, is left out. What a change of the inputs in their last digits
changes much is not compared.
"""
import argparse
import collections
import concurrent.futures
import pathlib
import subprocess
import sys
import tempfile
import warnings

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
FIXTURES = ROOT / "tests" / "fixtures" / "operators"
FOLDER = ROOT / "target" / "random"
OPSETS = [10, 11, 12, 13, 13, 14, 15, 16, 17, 17, 18, 18, 19, 20, 21, 22, 23]
MOST_ELEMENTS, LARGEST, SECONDS = 1500, 1e3, 60
TYPES = [np.float32] * 8 + [np.float64, np.float16, np.int64, np.int32, np.uint8, np.int8, np.bool_]


class Skip(Exception):
    """A recipe that no value suits."""


def session(model):
    import onnxruntime as ort
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    ort.set_default_logger_severity(4)
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def info(name, array):
    from onnx import helper
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), list(array.shape))


class Network:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.opset = int(self.rng.choice(OPSETS))
        self.values, self.inputs, self.constants, self.nodes, self.names = {}, {}, {}, [], 0
        shape = self.shape()
        for _ in range(self.below(3) + 1):
            name = self.name("x")
            self.values[name] = self.inputs[name] = self.array(self.pick(TYPES), shape if self.chance(60) else self.shape())

    # chance
    def below(self, n):
        return int(self.rng.integers(n))

    def between(self, low, high):
        return int(self.rng.integers(low, high + 1))

    def pick(self, items):
        return items[self.below(len(items))]

    def chance(self, percent):
        return self.below(100) < percent

    def some(self, items):
        return [item for item in items if self.chance(50)]

    def flag(self):
        return self.below(2)

    def shape(self, rank=None):
        rank = self.pick([1, 2, 2, 3, 3, 4, 4, 4]) if rank is None else rank
        while True:
            shape = [self.pick([1, 2, 3, 4, 5, 6, 7, 8, 9]) for _ in range(rank)]
            if np.prod(shape) <= MOST_ELEMENTS:
                return shape

    def array(self, dtype, shape, low=-1.0, high=1.0):
        dtype = np.dtype(dtype)
        if dtype == np.bool_:
            return self.rng.integers(0, 2, shape).astype(dtype)
        if dtype.kind in "iu":
            return self.rng.integers(0 if dtype.kind == "u" else -4, 7, shape).astype(dtype)
        return self.rng.uniform(low, high, shape).astype(dtype)

    # values
    def name(self, letter="v"):
        self.names += 1
        return f"{letter}{self.names}"

    def value(self, kinds="fiub", rank=None, dtype=None, least=0):
        """A value: of kinds of element types, a rank, a type; later ones more often. Failing that, a new input."""
        fits = [n for n, v in self.values.items() if isinstance(v, np.ndarray) and v.dtype.kind in kinds and v.ndim >= least
                and (rank is None or v.ndim == rank) and (dtype is None or v.dtype == dtype)]
        if fits and self.chance(90):
            return self.pick(fits[-3:] if self.chance(60) else fits)
        types = {"f": np.float32, "i": np.int64, "u": np.uint8, "b": np.bool_}
        return self.input(self.array(dtype or types[kinds[0]], self.shape(max(rank or 0, least) or None)))

    def input(self, array):
        name = self.name("x")
        self.values[name] = self.inputs[name] = np.asarray(array)
        return name

    def f(self, rank=None, least=0):
        return self.value("f", rank, np.float32 if self.chance(90) else None, least)

    def const(self, array):
        name = self.name("c")
        self.constants[name] = np.asarray(array)
        return name

    def ints(self, values):
        return self.const(np.array(values, np.int64))

    def of(self, name):
        return self.values.get(name, self.constants.get(name))

    def like(self, name, broadcast=True):
        """A value or a constant that broadcasts to a value."""
        x = self.of(name)
        alike = [n for n, v in self.values.items() if isinstance(v, np.ndarray) and v.dtype == x.dtype and v.shape == x.shape]
        if self.chance(50):
            return self.pick(alike)
        shape = list(x.shape)
        if broadcast:
            shape = [1 if self.chance(25) else d for d in shape[self.below(len(shape) + 1):]]
        return self.const(self.array(x.dtype, shape))

    def vector(self, name, axis, low=-1.0, high=1.0):
        return self.const(self.array(self.of(name).dtype, [self.of(name).shape[axis]], low, high))

    def axis(self, name):
        rank = self.of(name).ndim
        if rank == 0:
            raise Skip
        return self.between(-rank, rank - 1)

    def axes(self, name):
        return self.some(range(self.of(name).ndim))

    # growth
    def model(self, nodes, feeds, outputs, constants=None):
        from onnx import ValueInfoProto, helper, numpy_helper
        constants = self.constants if constants is None else constants
        graph = helper.make_graph(nodes, "random", [info(n, a) for n, a in feeds.items()],
                                  [ValueInfoProto(name=n) for n in outputs],
                                  [numpy_helper.from_array(a, n) for n, a in constants.items()])
        opsets = [helper.make_opsetid("", self.opset), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=9)

    def grow(self):
        from onnx import helper
        names = sorted(RECIPES)
        constants, inputs, values = dict(self.constants), dict(self.inputs), dict(self.values)
        try:
            op = self.pick(names)
            since, until, domain, recipe = RECIPES[op]
            if not since <= self.opset <= until:
                raise Skip
            operands, attributes, count = recipe(self)
            outputs = [self.name() for _ in range(count)]
            node = helper.make_node(op.split(":")[0], operands, outputs, domain=domain, **attributes)
            read = set(operands) | {n for g in attributes.values() if hasattr(g, "node") for m in g.node for n in m.input}
            feeds = {n: v for n, v in self.values.items() if n in read}
            used = {n: v for n, v in self.constants.items() if n in read}
            results = session(self.model([node], feeds, outputs, used)).run(None, feeds)
            if any(not small(r) for r in results):
                raise Skip
            self.nodes.append(node)
            self.values.update(zip(outputs, results))
            return True
        except Exception as reason:  # ONNX Runtime refuses with exceptions of many types
            REFUSED[op, str(reason)[:150]] += 1
            self.constants, self.inputs, self.values = constants, inputs, values
            return False

    def finish(self, count):
        for _ in range(count * 8):
            if len(self.nodes) == count:
                break
            self.grow()
        if not self.nodes:
            return None
        made = [o for n in self.nodes for o in n.output if o]
        read = {i for n in self.nodes for i in n.input}
        outputs = [o for o in made if o not in read or self.chance(15)]
        captured = {i for n in self.nodes for a in n.attribute if a.HasField("g") for m in a.g.node for i in m.input}
        used = {n for node in self.nodes for n in node.input} | captured
        self.constants = {n: a for n, a in self.constants.items() if n in used}
        self.inputs = {n: a for n, a in self.inputs.items() if n in used}
        model = self.model(self.nodes, self.inputs, outputs)
        for output in model.graph.output:
            output.CopyFrom(info(output.name, self.values[output.name]))
        return model


REFUSED = collections.Counter()


def small(value):
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "fiub" or value.size > MOST_ELEMENTS or value.size == 0:
        return False
    sizes = np.abs(value.astype(np.float64))
    if not np.all(sizes <= LARGEST):
        return False
    # what is left of terms that cancel is noise
    return value.dtype.kind != "f" or not np.any((sizes > 0) & (sizes < 1e-6 * np.max(sizes, initial=1e-3)))


RECIPES = {}


def recipe(names, since=1, until=99, domain=""):
    def add(function):
        for name in names.split():
            RECIPES[name + (":m" if domain else "")] = (since, until, domain, lambda g, name=name: normal(function(g, name)))
        return function
    return add


def normal(made):
    """Operands, attributes and the number of results; a list has neither attributes nor more than one result."""
    made = made if isinstance(made, tuple) else (made,)
    return tuple(list(made) + [{}, 1][len(made) - 1:])


@recipe("Abs Ceil Floor Neg Relu Sign Round Sqrt Exp Log Sigmoid Tanh Erf Reciprocal Sin Cos Tan Asin Acos Atan Sinh Cosh "
        "Asinh Acosh Atanh Softplus Softsign HardSwish Identity Mish IsNaN IsInf Not BitwiseNot Shape Size NonZero Det Gelu "
        "Elu Selu Celu LeakyRelu ThresholdedRelu HardSigmoid Shrink GlobalAveragePool GlobalMaxPool Swish")
def _(g, name):
    kinds = {"Not": "b", "BitwiseNot": "iu", "Identity": "fiub", "Shape": "fiub", "Abs": "fi", "Neg": "fi", "Sign": "fi"}
    attributes = {}
    if name in ("Elu", "Celu", "LeakyRelu", "ThresholdedRelu", "HardSigmoid", "Selu", "Swish") and g.chance(50):
        attributes["alpha"] = g.pick([0.1, 0.5, 1.0, 2.0])
    if name == "Gelu":
        attributes["approximate"] = g.pick(["none", "tanh"])
    if name == "Shrink":
        attributes.update(lambd=g.pick([0.1, 0.5]), bias=g.pick([0.0, 0.25]))
    if name == "Shape" and g.opset >= 15 and g.chance(60):
        attributes.update(start=g.between(-3, 2), end=g.between(-2, 4))
    # ONNX Runtime takes a number for a vector where it looks for what is not zero
    x = g.f(least=int(name == "NonZero")) if name not in kinds else g.value(kinds[name])
    return [x], attributes


@recipe("Add Sub Mul Div Pow Min Max Equal Less Greater LessOrEqual GreaterOrEqual PRelu Mod Mean Sum And Or Xor "
        "BitwiseAnd BitwiseOr BitwiseXor BitShift")
def _(g, name):
    kinds = "b" if name in ("And", "Or", "Xor") else "iu" if name.startswith("Bit") else "fiu"
    x = g.value(kinds) if g.chance(40) else g.f() if "f" in kinds else g.value(kinds)
    operands = [x, g.like(x)]
    if name in ("Min", "Max", "Mean", "Sum") and g.chance(40):
        operands.append(g.like(x))
    elif g.chance(30) and name not in ("PRelu", "Div", "Mod", "Pow", "BitShift"):
        operands.reverse()
    attributes = {}
    if name == "Mod" and g.of(x).dtype.kind == "f":
        attributes["fmod"] = 1
    if name == "BitShift":
        attributes["direction"] = g.pick(["LEFT", "RIGHT"])
    return operands, attributes


@recipe("Softmax LogSoftmax Hardmax Flatten LpNormalization ArgMax ArgMin Unique Compress Trilu CumSum TopK Split Concat "
        "Gather GatherElements ScatterElements OneHot ReverseSequence")
def _(g, name):
    x = g.value("fi", least=1) if g.chance(30) else g.f(least=1)
    a, axis = g.of(x), g.axis(x)
    size = a.shape[axis]
    if name in ("Softmax", "LogSoftmax", "Hardmax", "Flatten"):
        return [x], {"axis": axis}
    if name == "LpNormalization":
        return [x], {"axis": axis, "p": g.pick([1, 2])}
    if name in ("ArgMax", "ArgMin"):
        last = {"select_last_index": g.flag()} if g.opset >= 12 else {}
        return [x], {"axis": axis, "keepdims": g.flag(), **last}
    if name == "Unique":
        return [x], {"axis": axis} if g.chance(50) else {}, 4
    if name == "Compress":
        return [x, g.const(g.array(np.bool_, [size]))], {"axis": axis}
    if name == "Trilu":
        return [x, g.const(np.int64(g.between(-2, 2)))] if g.chance(60) else [x], {"upper": g.flag()}
    if name == "CumSum":
        return [x, g.const(np.int64(axis))], {"exclusive": g.flag(), "reverse": g.flag()}
    if name == "TopK":
        return [x, g.ints([g.between(1, size)])], {"axis": axis, "largest": g.flag()} if g.opset >= 11 else {"axis": axis}, 2
    if name == "Split":
        if size < 2:
            raise Skip
        first = g.between(1, size - 1)
        if g.opset < 13:
            return [x], {"axis": axis, "split": [first, size - first]}, 2
        return [x, g.ints([first, size - first])], {"axis": axis}, 2
    if name == "Concat":
        shape = list(a.shape)
        shape[axis] = g.between(1, 4)
        return g.pick([[x, x], [x, g.const(g.array(a.dtype, shape))], [g.const(g.array(a.dtype, shape)), x, x]]), {"axis": axis}
    index = lambda shape: g.rng.integers(-size if g.opset >= 11 else 0, size, shape).astype(np.int64)
    if name == "Gather":
        indices = index(g.pick([[], [1], [3], [2, 2]]))
        return [x, g.const(indices) if g.chance(60) else g.input(indices)], {"axis": axis}
    if name == "GatherElements":
        shape = list(a.shape)
        shape[axis] = g.between(1, 4)
        return [x, g.const(index(shape)) if g.chance(60) else g.input(index(shape))], {"axis": axis}
    if name == "ScatterElements":
        shape = list(a.shape)
        shape[axis] = g.between(1, size)
        order = np.argsort(g.rng.random(a.shape), axis)
        indices = np.take(order, range(shape[axis]), axis).astype(np.int64)
        reduction = {"reduction": g.pick(["none", "add", "mul", "min", "max"])} if g.opset >= 18 else {}
        return [x, g.const(indices) if g.chance(60) else g.input(indices), g.const(g.array(a.dtype, shape))], {"axis": axis, **reduction}
    if name == "OneHot":
        i = g.input(index([g.between(1, 5)]))
        return [i, g.const(np.int64(size)), g.const(g.array(np.float32, [2]))], {"axis": g.pick([-1, 0, 1])}
    if a.ndim < 2:
        raise Skip
    lengths = g.rng.integers(1, a.shape[0] + 1, [a.shape[1]]).astype(np.int64)
    return [x, g.const(lengths)], {"time_axis": 0, "batch_axis": 1}


@recipe("ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceSumSquare")
def _(g, name):
    x = g.value("fi") if g.chance(25) else g.f()
    axes, attributes = g.axes(x), {"keepdims": g.flag()}
    axes = [a - g.of(x).ndim if g.chance(30) else a for a in axes]
    if g.opset >= (13 if name == "ReduceSum" else 18):
        if g.chance(20):
            attributes["noop_with_empty_axes"] = 1
        return [x, g.ints(axes)] if axes else [x], attributes
    return [x], {**attributes, **({"axes": axes} if axes else {})}


@recipe("Transpose Reshape Squeeze Unsqueeze Expand Tile Pad Slice DepthToSpace SpaceToDepth CenterCropPad EyeLike")
def _(g, name):
    x = g.value("fiub")
    a = g.of(x)
    shape, rank = list(a.shape), a.ndim
    if name == "Transpose":
        return [x], {"perm": [int(p) for p in g.rng.permutation(rank)]}
    if name == "Reshape":
        merged = [shape, [-1], [a.size], shape[::-1], [0] + [-1] if rank > 1 else [-1], [1] + shape, shape[:1] + [1, -1]]
        return [x, g.ints(g.pick(merged))]
    if name in ("Squeeze", "Unsqueeze"):
        axes = [i for i, d in enumerate(shape) if d == 1] if name == "Squeeze" else sorted(g.some(range(rank + 1))[:1] or [0])
        if g.opset >= 13:
            return [x, g.ints(axes)] if axes else [x]
        return [x], {"axes": axes} if axes else {}
    if name == "Expand":
        return [x, g.ints([g.between(1, 3) if d == 1 else d for d in [1] * g.flag() + shape])]
    if name == "Tile":
        return [x, g.ints([g.between(1, 3) if g.chance(40) else 1 for _ in shape])]
    if name == "Pad":
        mode = g.pick(["constant", "constant", "reflect", "edge"] + (["wrap"] if g.opset >= 19 else []))
        pads = [g.between(-1 if mode == "constant" else 0, 2) for _ in range(2 * rank)]
        if g.opset < 11:
            return [x], {"mode": mode, "pads": pads}
        return [x, g.ints(pads)] + ([g.const(g.array(a.dtype, []))] if mode == "constant" and g.chance(50) else []), {"mode": mode}
    if name == "Slice":
        axes = g.axes(x)
        if not axes:
            raise Skip
        steps = [g.pick([1, 1, 2, -1, -2]) for _ in axes]
        starts = [g.between(-d, d) if s > 0 else d - 1 for s, d in zip(steps, (shape[i] for i in axes))]
        ends = [g.pick([g.between(-1, shape[i] + 2), 2**31 if s > 0 else -2**31]) for s, i in zip(steps, axes)]
        return [x, g.ints(starts), g.ints(ends), g.ints(axes), g.ints(steps)]
    if name == "CenterCropPad":
        axes = g.axes(x) or [0]
        return [x, g.ints([g.between(1, 9) for _ in axes])], {"axes": axes}
    if name == "EyeLike":
        return [g.value("fi", rank=2)], {"k": g.between(-1, 1)}
    b = g.pick([2, 2, 3])
    shape = [g.between(1, 2), b * b * g.between(1, 2), g.between(1, 3), g.between(1, 3)]
    if name == "DepthToSpace":
        return [g.input(g.array(np.float32, shape))], {"blocksize": b, **({"mode": g.pick(["DCR", "CRD"])} if g.opset >= 11 else {})}
    return [g.input(g.array(np.float32, [shape[0], g.between(1, 3), b * shape[2], b * shape[3]]))], {"blocksize": b}


@recipe("Where Cast CastLike Clip Range ConstantOfShape GatherND ScatterND Einsum Dropout QuantizeLinear DequantizeLinear "
        "DynamicQuantizeLinear MatMulInteger HannWindow HammingWindow BlackmanWindow NonMaxSuppression")
def _(g, name):
    if name == "Where":
        x = g.value("fi")
        return [g.input(g.array(np.bool_, g.of(x).shape)), x, g.like(x)]
    if name == "Cast":
        x = g.value("fiub")
        # what does not fit an integer is not defined
        fits = g.of(x).dtype.kind != "f" or np.all(g.of(x) >= 0)
        return [x], {"to": g.pick([1, 6, 7, 9, 10, 11] + [2] * int(fits))}
    if name == "CastLike":
        return [g.value("fiub"), g.value("fiub")]
    if name == "Clip":
        x = g.f()
        if g.opset < 11:
            return [x], {"min": -0.5, "max": 0.5}
        low, high = (g.const(np.array(v, g.of(x).dtype)) for v in (-0.5, 0.4))
        return g.pick([[x, low, high], [x, low], [x, "", high], [x]])
    if name == "Range":
        return [g.const(np.array(v, np.int64)) for v in (g.between(-3, 3), g.between(4, 9), g.between(1, 3))]
    if name == "ConstantOfShape":
        from onnx import numpy_helper
        return [g.ints(g.shape())], {"value": numpy_helper.from_array(g.array(g.pick(TYPES), [1]))}
    if name in ("GatherND", "ScatterND"):
        x = g.f(least=2)
        a = g.of(x)
        depth, count = g.between(1, a.ndim), g.between(1, 4)
        if name == "GatherND":
            indices = np.stack([g.rng.integers(-d, d, [count]) for d in a.shape[:depth]], -1).astype(np.int64)
            return [x, g.const(indices) if g.chance(50) else g.input(indices)]
        count = min(count, int(np.prod(a.shape[:depth])))
        flat = g.rng.permutation(int(np.prod(a.shape[:depth])))[:count]
        indices = np.stack(np.unravel_index(flat, a.shape[:depth]), -1).astype(np.int64)
        reduction = {"reduction": g.pick(["none", "add", "mul", "min", "max"])} if g.opset >= 18 else {}
        return [x, g.const(indices) if g.chance(50) else g.input(indices), g.const(g.array(a.dtype, [count, *a.shape[depth:]]))], reduction
    if name == "Einsum":
        m, n, k, b = (g.between(1, 5) for _ in range(4))
        a = lambda *s: g.input(g.array(np.float32, s)) if g.chance(60) else g.const(g.array(np.float32, s))
        return g.pick([lambda: ([a(m, n)], {"equation": "ij->ji"}), lambda: ([a(m, k), a(k, n)], {"equation": "ik,kj->ij"}),
                       lambda: ([a(b, m, k), a(b, n, k)], {"equation": "bik,bjk->bij"}), lambda: ([a(n, n)], {"equation": "ii->i"}),
                       lambda: ([a(m, n)], {"equation": "ij->"}), lambda: ([a(m), a(n)], {"equation": "i,j"}),
                       lambda: ([a(b, m, n, k)], {"equation": "...ij->...ji"}),
                       lambda: ([a(b, m, k), a(k, n)], {"equation": "...k,kn->...n"})])()
    if name == "Dropout":
        return [g.f()], {}, 2 if g.opset >= 12 else 1
    if name in ("QuantizeLinear", "DequantizeLinear"):
        kind = g.pick([np.uint8, np.int8])
        x = g.f(least=1) if name == "QuantizeLinear" else g.input(g.array(kind, g.shape()))
        axis = g.axis(x)
        size = [] if g.opset < 13 or g.chance(50) else [g.of(x).shape[axis]]
        scale, zero = g.const(g.array(np.float32, size, 0.01, 0.1)), g.const(g.array(kind, size))
        return [x, scale, zero], {"axis": axis} if size else {}
    if name == "DynamicQuantizeLinear":
        return [g.value("f", dtype=np.float32)], {}, 3
    if name == "MatMulInteger":
        m, k, n = (g.between(1, 7) for _ in range(3))
        a, b = g.input(g.array(np.uint8, [m, k])), g.const(g.array(g.pick([np.uint8, np.int8]), [k, n]))
        return g.pick([[a, b], [a, b, g.const(np.uint8(2))], [a, b, g.const(np.uint8(1)), g.const(np.array(1, g.of(b).dtype))]])
    if name == "NonMaxSuppression":
        boxes = g.input(np.sort(g.array(np.float32, [1, 6, 4], 0, 1)))
        return [boxes, g.input(g.array(np.float32, [1, 2, 6], 0, 1)), g.ints([3]), g.const(np.float32([0.5]))]
    return [g.const(np.int64(g.between(1, 9)))], {"periodic": g.flag()}


def window(g, spatial, shape):
    kernel = [g.between(1, min(3, d)) for d in shape[2:]]
    attributes = {"kernel_shape": kernel}
    if g.chance(60):
        attributes["strides"] = [g.between(1, 2) for _ in range(spatial)]
    mode = g.below(4)
    if mode == 0:
        attributes["auto_pad"] = g.pick(["SAME_UPPER", "SAME_LOWER", "VALID"])
    elif mode == 1:
        attributes["pads"] = [g.between(0, k - 1) for k in kernel * 2]
    return attributes, kernel


@recipe("Conv ConvTranspose MaxPool AveragePool LpPool LRN BatchNormalization InstanceNormalization GroupNormalization "
        "Resize GridSample MeanVarianceNormalization GlobalLpPool ConvInteger QLinearConv")
def _(g, name):
    spatial = g.pick([1, 2, 2, 2, 3])
    x = g.f(spatial + 2)
    if g.of(x).dtype != np.float32 or g.chance(40):
        shape = [g.between(1, 2), g.pick([1, 2, 3, 4, 6, 8]), *(g.between(2, 9) for _ in range(spatial))]
        while np.prod(shape) > MOST_ELEMENTS:
            shape[-1] = max(2, shape[-1] // 2)
            shape[1] = max(1, shape[1] // 2)
        x = g.input(g.array(np.float32, shape))
    a = g.of(x)
    channels = a.shape[1]
    if name in ("Conv", "ConvInteger", "QLinearConv", "ConvTranspose"):
        attributes, kernel = window(g, spatial, a.shape)
        group = g.pick([d for d in range(1, channels + 1) if channels % d == 0])
        filters = group * g.between(1, 3)
        attributes["group"] = group
        if g.chance(30) and "auto_pad" not in attributes:
            attributes["dilations"] = [g.between(1, 2) for _ in kernel]
        weights = [filters, channels // group, *kernel] if name != "ConvTranspose" else [channels, g.between(1, 3), *kernel]
        if name == "ConvInteger":
            return [g.input(g.array(np.uint8, a.shape)), g.const(g.array(np.uint8, weights)), g.const(np.uint8(2))], attributes
        if name == "QLinearConv":
            s = lambda: g.const(np.float32(g.rng.uniform(0.02, 0.1)))
            return [g.input(g.array(np.uint8, a.shape)), s(), g.const(np.uint8(2)), g.const(g.array(np.int8, weights)), s(),
                    g.const(np.int8(0)), s(), g.const(np.uint8(100))], attributes
        if name == "ConvTranspose":
            if g.chance(30) and "strides" in attributes:
                attributes["output_padding"] = [g.below(s) for s in attributes["strides"]]
            filters = weights[1] * group
        bias = [g.const(g.array(np.float32, [filters]))] if g.chance(50) else []
        w = g.array(np.float32, weights)
        return [x, g.const(w) if g.chance(80) else g.input(w), *bias], attributes
    if name in ("MaxPool", "AveragePool", "LpPool"):
        attributes, _ = window(g, spatial, a.shape)
        if name == "MaxPool" and g.opset >= 10 and g.chance(40) and "auto_pad" not in attributes:
            attributes["dilations"] = [g.between(1, 2) for _ in range(spatial)]
        if name != "LpPool" and g.chance(40) and "auto_pad" not in attributes:
            attributes["ceil_mode"] = 1
        if name == "AveragePool" and g.chance(50):
            attributes["count_include_pad"] = 1
        return [x], attributes, 2 if name == "MaxPool" and g.chance(20) and "ceil_mode" not in attributes else 1
    if name == "MeanVarianceNormalization":
        return [x], {"axes": sorted({0, *g.axes(x)})}
    if name == "LRN":
        return [x], {"size": g.pick([1, 3, 5]), "alpha": 0.1, "beta": 0.75, "bias": 1.0}
    if name == "BatchNormalization":
        return [x, g.vector(x, 1), g.vector(x, 1), g.vector(x, 1), g.vector(x, 1, 0.5, 2.0)], {"epsilon": 1e-3}
    if name == "InstanceNormalization":
        return [x, g.vector(x, 1), g.vector(x, 1)], {"epsilon": 1e-2}
    if name == "GroupNormalization":
        groups = g.pick([d for d in range(1, channels + 1) if channels % d == 0])
        size = channels if g.opset >= 21 else groups
        return [x, *(g.const(g.array(np.float32, [size])) for _ in range(2))], {"num_groups": groups, "epsilon": 1e-2}
    if name == "GridSample":
        if spatial != 2:
            raise Skip
        grid = g.input(g.array(np.float32, [a.shape[0], g.between(1, 4), g.between(1, 4), 2], -1.2, 1.2))
        modes = ["linear", "nearest", "cubic"] if g.opset >= 20 else ["bilinear", "nearest", "bicubic"]
        return [x, grid], {"mode": g.pick(modes), "padding_mode": g.pick(["zeros", "border", "reflection"]), "align_corners": g.flag()}
    if name == "Resize":
        mode = g.pick(["nearest", "linear", "cubic"] if spatial == 2 else ["nearest", "linear"])
        factors = [1, 1, *(g.pick([0.5, 1, 2, 1.5, 3]) for _ in range(spatial))]
        if g.opset < 11:
            return [x, g.const(np.float32(factors))], {"mode": g.pick(["nearest", "linear"])}
        attributes = {"mode": mode, "coordinate_transformation_mode": g.pick(
            ["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"])}
        if mode == "nearest":
            attributes["nearest_mode"] = g.pick(["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"])
        if g.opset >= 18 and mode != "nearest" and g.chance(30):
            attributes["antialias"] = 1
        # ONNX Runtime aligns corners of whole sizes, the standard those of the product with the scale
        if g.chance(50) and attributes["coordinate_transformation_mode"] != "align_corners":
            return [x, "", g.const(np.float32(factors))], attributes
        return [x, "", "", g.ints([a.shape[0], channels, *(g.between(1, 9) for _ in range(spatial))])], attributes
    return [x]


@recipe("MatMul Gemm LayerNormalization RMSNormalization Attention RotaryEmbedding DFT LSTM GRU RNN MaxRoiPool RoiAlign If "
        "Loop Scan AffineGrid Col2Im")
def _(g, name):
    from onnx import helper
    if name == "MatMul":
        x = g.value("f", least=1)
        k, n = g.of(x).shape[-1], g.between(1, 9)
        shape = g.pick([[k, n], [k], [*g.of(x).shape[:-2], k, n]])
        w = g.array(g.of(x).dtype, shape)
        return [x, g.const(w) if g.chance(70) else g.input(w)]
    if name == "Gemm":
        x = g.f(2)
        m, k = g.of(x).shape
        ta, tb, n = g.flag(), g.flag(), g.between(1, 9)
        m, k = (k, m) if ta else (m, k)
        bias = g.pick([[], [g.const(g.array(g.of(x).dtype, s)) for s in [g.pick([[n], [m, n], [1, n], [m, 1], [1]])]]])
        if g.opset < 11 and not bias:
            raise Skip
        return [x, g.const(g.array(g.of(x).dtype, [n, k] if tb else [k, n])), *bias], {
            "transA": ta, "transB": tb, "alpha": g.pick([1.0, 0.5]), "beta": g.pick([1.0, 2.0])}
    if name in ("LayerNormalization", "RMSNormalization"):
        x = g.f(least=1)
        axis = g.axis(x)
        shape = g.of(x).shape[axis:]
        c = [g.const(g.array(g.of(x).dtype, shape)) for _ in range(1 + (name[0] == "L" and g.flag()))]
        return [x, *c], {"axis": axis, "epsilon": 1e-2}
    if name == "Attention":
        b, h, s, t, d = g.between(1, 2), g.pick([2, 4]), g.between(1, 5), g.between(1, 6), g.pick([4, 8])
        kv = g.pick([h, h, 1])
        q, k, v = (g.input(g.array(np.float32, [b, n, l, d])) for n, l in ((h, s), (kv, t), (kv, t)))
        mask = [g.input(g.array(g.pick([np.float32]), [s, t]))] if g.chance(50) else []
        return [q, k, v, *mask], {"is_causal": g.flag()} if not mask else {}
    if name == "RotaryEmbedding":
        b, h, s, d = g.between(1, 2), g.between(1, 3), g.between(1, 4), g.pick([4, 8])
        x = g.input(g.array(np.float32, [b, h, s, d]))
        return [x, *(g.const(g.array(np.float32, [b, s, d // 2])) for _ in range(2))], {"interleaved": g.flag()}
    if name == "DFT":
        x = g.input(g.array(np.float32, [g.between(1, 2), g.between(2, 9), g.pick([1, 2])]))
        one = g.flag() if g.of(x).shape[-1] == 1 else 0
        return ([x], {"axis": 1, "onesided": one}) if g.opset < 20 else ([x, "", g.const(np.int64(1))], {"onesided": one})
    if name in ("LSTM", "GRU", "RNN"):
        t, b, i, h = (g.between(1, 4) for _ in range(4))
        direction = g.pick(["forward", "reverse", "bidirectional"])
        d, n = 1 + (direction == "bidirectional"), {"LSTM": 4, "GRU": 3, "RNN": 1}[name]
        c = lambda *s: g.const(g.array(np.float32, s))
        operands = [g.input(g.array(np.float32, [t, b, i])), c(d, n * h, i), c(d, n * h, h)]
        if g.chance(60):
            operands.append(c(d, 2 * n * h))
            if g.chance(50):
                operands += [g.const(g.rng.integers(1, t + 1, [b]).astype(np.int32)) if g.chance(50) else "", c(d, b, h)]
        attributes = {"hidden_size": h, "direction": direction}
        if name == "GRU":
            attributes["linear_before_reset"] = g.flag()
        return operands, attributes, 3 if name == "LSTM" else 2
    if name in ("MaxRoiPool", "RoiAlign"):
        x = g.input(g.array(np.float32, [1, g.between(1, 3), 6, 7]))
        rois = np.float32([[0, 0, 4, 4], [1, 1, 5, 5.5]])
        if name == "MaxRoiPool":
            return [x, g.const(np.hstack([np.zeros([2, 1], np.float32), rois]))], {"pooled_shape": [2, 2], "spatial_scale": 1.0}
        ctm = {"coordinate_transformation_mode": g.pick(["half_pixel", "output_half_pixel"])} if g.opset >= 16 else {}
        return [x, g.const(rois), g.const(np.zeros([2], np.int64))], {
            "output_height": 2, "output_width": 3, "sampling_ratio": g.pick([0, 2]), "mode": "avg", **ctm}
    if name == "AffineGrid":
        return [g.input(g.array(np.float32, [1, 2, 3])), g.ints([1, 1, g.between(2, 4), g.between(2, 4)])], {"align_corners": g.flag()}
    if name == "Col2Im":
        return [g.input(g.array(np.float32, [1, 4 * g.between(1, 2), 9])), g.ints([4, 4]), g.ints([2, 2])]
    # graphs inside
    x = g.f(least=1)
    a = g.of(x)
    u, v, w = (g.name("b") for _ in range(3))
    node = lambda op, i, o: helper.make_node(op, i, [o])
    declare = lambda n, t=a: info(n, np.zeros(t.shape, t.dtype))
    if name == "If":
        branches = [helper.make_graph([node(g.pick(["Relu", "Neg", "Exp", "Sigmoid"]), [x], o)], "inside", [], [declare(o)]) for o in (u, v)]
        condition = np.bool_(g.flag())
        return [g.const(condition) if g.chance(50) else g.input(condition)], {"then_branch": branches[0], "else_branch": branches[1]}
    if name == "Loop":
        i, c, s, kept, doubled = (g.name("b") for _ in range(5))
        scalar = lambda n, t: info(n, np.zeros([], t))
        body = helper.make_graph([node("Identity", [c], kept), node(g.pick(["Tanh", "Neg", "Sigmoid"]), [s], u), node("Add", [u, x], doubled)],
                                 "inside", [scalar(i, np.int64), scalar(c, np.bool_), declare(s)], [scalar(kept, np.bool_), declare(u), declare(doubled)])
        times = np.int64(g.between(1, 4))
        return [g.const(times) if g.chance(60) else g.input(times), "", g.like(x, False)], {"body": body}, 2
    row = a[0]
    body = helper.make_graph([node("Add", [u, v], w), node("Tanh", [w], w + "t")], "inside", [declare(u, row), declare(v, row)],
                             [declare(w, row), declare(w + "t", row)])
    return [g.const(g.array(a.dtype, row.shape)), x], {"body": body, "num_scan_inputs": 1}, 2


@recipe("BiasGelu FastGelu QuickGelu FusedMatMul SkipLayerNormalization QLinearAdd QLinearMul "
        "FusedConv FusedGemm MultiHeadAttention DynamicQuantizeMatMul MatMulIntegerToFloat QLinearSigmoid QLinearLeakyRelu", 1, 99, "com.microsoft")
def _(g, name):
    x = g.input(g.array(np.float32, [g.between(1, 2), g.between(1, 5), 2 * g.between(1, 4)]))
    a = g.of(x)
    size = a.shape[-1]
    if name in ("BiasGelu", "FastGelu"):
        return [x, g.vector(x, -1)]
    if name == "QuickGelu":
        return [x], {"alpha": g.pick([1.0, 1.702])}
    if name == "FusedMatMul":
        tb = g.flag()
        return [x, g.const(g.array(np.float32, [5, size] if tb else [size, 5]))], {"transB": tb, "alpha": 0.5}
    if name == "SkipLayerNormalization":
        return [x, g.like(x, False), g.vector(x, -1), g.vector(x, -1)], {"epsilon": 1e-2}
    if name.startswith("QLinear"):
        q = lambda: [g.const(np.float32(g.rng.uniform(0.02, 0.1))), g.const(np.uint8(g.between(0, 20)))]
        u = lambda: g.input(g.array(np.uint8, a.shape))
        if name in ("QLinearAdd", "QLinearMul"):
            return [u(), *q(), u(), *q(), *q()]
        return [u(), *q(), *q()], {"alpha": 0.1} if name == "QLinearLeakyRelu" else {}
    if name == "FusedConv":
        x = g.input(g.array(np.float32, [1, 3, 5, 6]))
        return [x, g.const(g.array(np.float32, [4, 3, 3, 3]))], {"activation": g.pick(["Relu", "Tanh", "Sigmoid"]), "kernel_shape": [3, 3]}
    if name == "FusedGemm":
        return [g.input(g.array(np.float32, [3, 4])), g.const(g.array(np.float32, [4, 5])), g.const(g.array(np.float32, [5]))], {
            "activation": g.pick(["Relu", "Tanh", "Sigmoid"])}
    if name == "MultiHeadAttention":
        return [x, g.input(g.array(np.float32, a.shape)), g.input(g.array(np.float32, a.shape))], {"num_heads": 2}
    if name == "DynamicQuantizeMatMul":
        return [x, g.const(g.array(np.uint8, [size, 4])), g.const(np.float32([0.05])), g.const(np.uint8([3]))]
    return [g.input(g.array(np.uint8, [3, 4])), g.const(g.array(np.uint8, [4, 5])), g.const(np.float32([0.05])),
            g.const(np.float32([0.03])), g.const(np.uint8([1])), g.const(np.uint8([2]))]


def make(seed):
    """A model, its inputs, ONNX Runtime's outputs, and for each the elements that rounding does not decide."""
    network = Network(seed)
    model = network.finish(network.between(3, 12))
    if model is None:
        return None
    try:
        whole = session(model)
        outputs = whole.run(None, network.inputs)
        stable = [np.ones(o.shape, bool) for o in outputs]
        for _ in range(3):
            nudge = lambda a: (a * (1 + 3e-6 * network.rng.standard_normal(a.shape))).astype(a.dtype)
            nudged = {n: nudge(a) if a.dtype.kind == "f" else a for n, a in network.inputs.items()}
            for i, other in enumerate(whole.run(None, nudged)):
                if other.shape != outputs[i].shape:
                    return None
                stable[i] &= close(other, outputs[i])
    except Exception as reason:
        REFUSED["whole", str(reason)[:150]] += 1
        return None
    return model, network.inputs, outputs, stable


def close(found, expected):
    if expected.dtype.kind in "biu":
        return found == expected
    scale = max(float(np.max(np.abs(expected.astype(np.float64)), initial=0)), 1e-3)
    tolerance = 2e-2 if expected.dtype == np.float16 else 2e-3
    difference = np.abs(found.astype(np.float64) - expected.astype(np.float64))
    return difference <= tolerance * np.minimum(scale, np.abs(expected.astype(np.float64)) + 0.05 * scale) + 1e-6


def compare(seed, program):
    """Why the program disagrees on the network of a seed, or nothing; `None` where there is no network."""
    import onnx
    made = make(seed)
    if made is None:
        return None
    model, inputs, outputs, stable = made
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        onnx.save(model, folder / "model.onnx")
        command = [program, "run", folder / "model.onnx", "--threads", "1", "--quiet", "--save", folder]
        for name, array in inputs.items():
            np.save(folder / f"{name}.npy", array)
            command += ["--input", f"{name}={folder / name}.npy"]
        why = ""
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
            if done.returncode != 0:
                why = done.stderr.strip() or f"exit code {done.returncode}"
        except subprocess.TimeoutExpired:
            why = f"no result in {SECONDS} s"
        for i, (expected, sure) in enumerate(zip(outputs, stable)):
            if why:
                break
            found = np.load(folder / f"output_{i}.npy")
            if (found.shape, found.dtype) != (expected.shape, expected.dtype):
                why = f"output {i}: {found.dtype} {found.shape}, not {expected.dtype} {expected.shape}"
            elif not np.all(close(found, expected) | ~sure):
                at = np.argwhere(~(close(found, expected) | ~sure))[0]
                why = f"output {i} ({model.graph.output[i].name}) at {at.tolist()}: {found[tuple(at)]}, not {expected[tuple(at)]}"
        if why:
            keep(f"{seed}", model, inputs, outputs, FOLDER)
    return why


def keep(name, model, inputs, outputs, folder):
    import onnx
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(model, folder / f"{name}.onnx")
    with open(folder / f"{name}.npy", "wb") as file:
        for array in [*inputs.values(), *outputs]:
            np.save(file, array)


def depends_on_data(graph, inputs):
    """Whether a shape or a number of steps follows from data."""
    dynamic = {"NonZero", "Unique", "Compress", "NonMaxSuppression"}
    return any(n.op_type in dynamic or n.op_type == "Loop" and n.input[0] in inputs for n in graph.node)


def write(count, seed):
    """Writes fixtures: the smallest networks among many, all of whose elements are decided, so that every operator is met."""
    found = []
    for number in range(count * 8):
        made = make(seed * 1_000_000 + number)
        if made and all(s.all() for s in made[3]) and not depends_on_data(made[0].graph, made[1]):
            size = made[0].ByteSize() + sum(a.nbytes + 128 for a in [*made[1].values(), *made[2]])
            found.append((size, number, made))
    chosen, met = [], set()
    for size, number, made in sorted(found, key=lambda f: f[0]):
        old = made[0].opset_import[0].version < 17
        operators = {(n.op_type, old and n.op_type == "LayerNormalization") for n in made[0].graph.node}
        if size < 6000 and len(made[0].graph.node) >= 3 and operators - met and len(chosen) < count:
            met |= operators
            chosen.append(size)
            keep(f"random_{number:03}", made[0], made[1], made[2], FIXTURES)
    print(f"{len(chosen)} networks, {sum(chosen)} bytes, {len(met)} operators")


def report(count, seed, program, jobs):
    """Compares fresh networks; returns the number of those that disagree."""
    warnings.filterwarnings("ignore")
    seeds = range(seed * 1_000_000, seed * 1_000_000 + count)
    with concurrent.futures.ProcessPoolExecutor(jobs) as pool:
        results = dict(zip(seeds, pool.map(compare, seeds, [program] * count, chunksize=4)))
    wrong = {s: why for s, why in results.items() if why}
    for number, why in wrong.items():
        print(f"{number}: {why}")
    made = sum(why is not None for why in results.values())
    print(f"{made} networks from seed {seed}, {len(wrong)} disagree with ONNX Runtime or are refused; these are in {FOLDER}")
    return len(wrong)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", default=100, type=int)
    parser.add_argument("--seed", default=1, type=int)
    parser.add_argument("--write", type=int, help="write so many fixtures")
    parser.add_argument("--program", default=ROOT / "target" / "release" / "tilewright", type=pathlib.Path)
    parser.add_argument("--jobs", default=2, type=int)
    arguments = parser.parse_args()
    sys.path.insert(0, str(ROOT / "benches"))
    import environment
    environment.enter(["onnxruntime"])
    if arguments.write:
        write(arguments.write, arguments.seed)
    else:
        sys.exit(bool(report(arguments.count, arguments.seed, arguments.program.resolve(), arguments.jobs)))


if __name__ == "__main__":
    main()
