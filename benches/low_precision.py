"""Products with operands of 16 and 8 bits: ONNX files of one node, with seeded operands.

Products have a constant second operand or, where the name ends in `given`, none; results have 16 or 8 bits. Those of bf16 and of 8 bits are summed in 32 bits,
those of f16 in f16, which `--accumulate f16` allows. One row is multiplied by weights of 8 bits with a scale for each
column and by weights of 4 bits with a scale for each block of 32 terms, as MatMulNBits has them: with activations in f32, and in 8 bits (accuracy level 4).
"""
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDER = ROOT / "target" / "bench" / "low_precision"
sys.path.insert(0, str(ROOT / "datasets"))

# M, N, K
PRODUCTS = [(1024, 1024, 1024), (128, 3072, 768), (49, 512, 4608)]
ROW = (1, 4096, 4096)
BLOCK = 32


def bf16(array):
    """The two bytes of each number, rounded to the nearest, ties to even; without a type, as NumPy saves those of ml_dtypes."""
    import numpy
    bits = numpy.ascontiguousarray(array, numpy.float32).view(numpy.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(numpy.uint16).view("V2")


def save(name, node, inputs, output, weights, domains=()):
    """The file of one node, or of several in a list. inputs, output: (name, type of ONNX, shape)."""
    from onnx import helper, save as write
    FOLDER.mkdir(parents=True, exist_ok=True)
    value = lambda key, kind, shape: helper.make_tensor_value_info(key, kind, shape)
    nodes = node if isinstance(node, list) else [node]
    graph = helper.make_graph(nodes, name, [value(*i) for i in inputs], [value(*output)], weights)
    opsets = [helper.make_opsetid("", 21), *(helper.make_opsetid(domain, 1) for domain in domains)]
    path = FOLDER / f"{name}.onnx"
    write(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
    return {"name": name, "path": str(path)}


def numbers(position, *shape):
    from models import seeded
    import numpy
    return seeded(numpy.float32, shape, 1, position)


def integers(position, kind, bound, *shape):
    """From 0 to bound - 1; of a signed type around 0."""
    from models import seeded
    import numpy
    drawn = seeded(numpy.int64, shape, 1, position, bound)
    return (drawn - (bound // 2 if numpy.dtype(kind).kind == "i" else 0)).astype(kind)


def halves(name, m, n, k, kind, given):
    """A product of bf16 that is summed in f32, or of f16 that is summed in f16."""
    from onnx import TensorProto, helper
    import numpy
    number, stored = {"bf16": (TensorProto.BFLOAT16, bf16), "f16": (TensorProto.FLOAT16, lambda a: a.astype(numpy.float16))}[kind]
    a, b = stored(numbers(0, m, k)), stored(numbers(1, k, n))
    weights = [] if given else [helper.make_tensor("b", number, [k, n], b.tobytes(), raw=True)]
    inputs = [("a", number, [m, k]), ("b", number, [k, n])]
    made = save(name, helper.make_node("MatMul", ["a", "b"], ["c"]), inputs[:2 if given else 1], ("c", number, [m, n]), weights)
    arrays = {"a": a, "b": b} if given else {"a": a}
    options = {"options": ["--accumulate", "f16"]} if kind == "f16" else {}
    return {**made, "kind": kind, "arrays": arrays, "tolerance": 1e-2, **options}


def bytes_of(name, m, n, k):
    """A product of u8 and i8 with a result of u8; both zero points of activations are 128."""
    from onnx import TensorProto, helper, numpy_helper
    import numpy
    scalar = lambda key, x, kind: numpy_helper.from_array(numpy.array(x, kind), key)
    weights = [numpy_helper.from_array(integers(1, numpy.int8, 255, k, n), "b"), scalar("as", 0.02, numpy.float32), scalar("az", 128, numpy.uint8),
               scalar("bs", 0.01, numpy.float32), scalar("bz", 0, numpy.int8), scalar("cs", 0.5, numpy.float32), scalar("cz", 128, numpy.uint8)]
    node = helper.make_node("QLinearMatMul", ["a", "as", "az", "b", "bs", "bz", "cs", "cz"], ["c"])
    made = save(name, node, [("a", TensorProto.UINT8, [m, k])], ("c", TensorProto.UINT8, [m, n]), weights)
    return {**made, "kind": "integers", "arrays": {"a": integers(0, numpy.uint8, 256, m, k)}, "rounded": True, "tolerance": 1e-2}


def weights_of_bytes(name, m, n, k):
    from onnx import TensorProto, helper, numpy_helper
    import numpy
    weights = [numpy_helper.from_array(integers(1, numpy.int8, 255, k, n), "w"), numpy_helper.from_array(numpy.abs(numbers(2, n)) / 127, "s")]
    nodes = [helper.make_node("DequantizeLinear", ["w", "s"], ["b"], axis=1), helper.make_node("MatMul", ["a", "b"], ["c"])]
    made = save(name, nodes, [("a", TensorProto.FLOAT, [m, k])], ("c", TensorProto.FLOAT, [m, n]), weights)
    return {**made, "kind": "weights", "arrays": {"a": numbers(0, m, k)}, "bytes": n * k}


def weights_of_nibbles(name, m, n, k, level):
    """Weights of 4 bits by columns, two in a byte, with the middle 8 as zero."""
    from onnx import TensorProto, helper, numpy_helper
    import numpy
    blocks = k // BLOCK
    weights = [numpy_helper.from_array(integers(1, numpy.uint8, 256, n, blocks, BLOCK // 2), "w"),
               numpy_helper.from_array(numpy.abs(numbers(2, n, blocks)) / 8, "s")]
    node = helper.make_node("MatMulNBits", ["a", "w", "s"], ["c"], domain="com.microsoft", K=k, N=n, bits=4, block_size=BLOCK, accuracy_level=level)
    made = save(name, node, [("a", TensorProto.FLOAT, [m, k])], ("c", TensorProto.FLOAT, [m, n]), weights, ["com.microsoft"])
    # Activations are rounded to 8 bits.
    tolerance = {"tolerance": 2e-2} if level == 4 else {}
    return {**made, "kind": "weights", "arrays": {"a": numbers(0, m, k)}, "bytes": n * k // 2 + 4 * n * blocks, **tolerance}


def rows():
    """(name, function that makes the workload with its inputs as arrays)."""
    made = []

    def add(kind, make, shape, *more, suffix=""):
        name = f"{kind}_{'x'.join(map(str, shape))}{suffix}"
        made.append((name, lambda: make(name, *shape, *more)))

    for kind in ("bf16", "f16"):
        for given in (False, True):
            for shape in PRODUCTS:
                add(kind, halves, shape, kind, given, suffix="_given" if given else "")
    for shape in PRODUCTS:
        add("u8i8", bytes_of, shape)
    add("i8_weights", weights_of_bytes, ROW)
    add("i4_weights", weights_of_nibbles, ROW, 0)
    add("i4_weights_level4", weights_of_nibbles, ROW, 4)
    return made
