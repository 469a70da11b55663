"""Suites of workloads.

A workload is {name, kind, path, inputs: {name: .npy file}, dims, options, tolerance, rounded, judged}: integers that are `rounded` may differ by a step;
of one that is `judged` the report has how far outputs are from the graph as it is written. Kinds: "onnx" is any ONNX file, "product" one that
holds a single f32 matrix product, "bf16", "f16", "integers" one with a product of such operands, "weights" one with a product by `bytes` bytes of
narrow weights, "tile" a program of the text language, "schedule" one with a schedule by hand. Making one may fail for want of a package or a file;
then its reason is yielded instead.
"""
import csv
import json
import pathlib
import re
import sys

import algorithms
import architectures
import low_precision

ROOT = pathlib.Path(__file__).resolve().parent.parent
TARGET = ROOT / "target" / "bench"
sys.path.insert(0, str(ROOT / "datasets"))

# M, N, K
PRODUCTS = [(64, 64, 64), (128, 128, 128), (256, 256, 256), (512, 512, 512), (1024, 1024, 1024), (2048, 2048, 2048),
            (128, 3072, 768), (49, 512, 4608), (12544, 64, 147), (1, 4096, 4096)]


class Missing(Exception):
    """The reason why a workload cannot be made here."""


def save_inputs(name, arrays):
    import numpy
    folder = TARGET / "inputs"
    folder.mkdir(parents=True, exist_ok=True)
    files = {}
    for i, (key, array) in enumerate(arrays.items()):
        files[key] = str(folder / f"{name}.{i}.npy")
        try:
            numpy.save(files[key], array)
        except OSError as error:
            raise Missing(f"{files[key]} cannot be written: {error}") from error
    return files


def network(name):
    """A network of models.json, filled with weights, and its inputs."""
    try:
        import onnx
        from models import MODELS, path_with_weights, seeded
    except ImportError as error:
        # Tilewright fills weights and inputs by itself.
        source = ROOT / json.loads((ROOT / "datasets" / "models.json").read_text())[name]["file"]
        if not source.exists():
            raise Missing(f"{source.name} is not fetched (make models), and {error.name} is not installed") from error
        return {"name": name, "kind": "onnx", "path": str(source), "inputs": {}}
    row, path = MODELS[name], path_with_weights(name)
    if path is None:
        raise Missing("not fetched (make models)")
    types = {i.name: onnx.helper.tensor_dtype_to_np_dtype(i.type.tensor_type.elem_type)
             for i in onnx.load(path, load_external_data=False).graph.input}
    arrays = {key: seeded(types[key], shape, 0, position, row.get("bounds", {}).get(key, 2))
              for position, (key, shape) in enumerate(row["inputs"].items())}
    return {"name": name, "kind": "onnx", "path": str(path), "inputs": save_inputs(name, arrays)}


def network_rows():
    names = json.loads((ROOT / "datasets" / "models.json").read_text())
    return [(name, lambda name=name: network(name)) for name in names if not name.endswith("_features")]


def quantised(name):
    """A network of models.json as ONNX Runtime's tool quantises it: benches/quantise.py."""
    try:
        from quantise import quantise
        from models import MODELS
        workload = network(name)
        path = quantise(name, pathlib.Path(workload["path"]), MODELS[name].get("bounds"))
    except ImportError as error:
        raise Missing(f"{error.name} is not installed") from error
    except ValueError as error:
        raise Missing(f"ONNX Runtime's tool refuses it: {error}") from error
    # A number near the middle of two steps becomes either, in any of the programs.
    return {**workload, "name": f"{name}_int8", "path": str(path), "tolerance": 5e-2, "judged": True}


def in_bf16(name):
    """A network of models.json whose products and convolutions may take operands of bf16."""
    return {**network(name), "name": f"{name}_bf16", "options": ["--precision", "bf16"], "tolerance": 5e-2, "judged": True}


def low_precision_product(make):
    workload = make()
    arrays = workload.pop("arrays")
    return {**workload, "inputs": save_inputs(workload["name"], arrays)}


def architecture(name):
    """A network of architectures.py and its inputs."""
    import onnx
    from models import seeded
    model, inputs = architectures.model(name)
    folder = TARGET / "architectures"
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(model, folder / f"{name}.onnx")
    arrays = {key: seeded(dtype, shape, 0, i, below) for i, (key, (dtype, shape, below)) in enumerate(inputs.items())}
    workload = {"name": name, "kind": "onnx", "path": str(folder / f"{name}.onnx"), "inputs": save_inputs(name, arrays)}
    return {**workload, "tolerance": 1e-2} if name in architectures.ROUNDED else workload


def architecture_rows():
    return [(name, lambda name=name: architecture(name)) for name in architectures.ARCHITECTURES]


def program_rows(folder, size):
    """The loop programs of a folder of datasets/ with one of their sets of sizes."""
    workload = lambda path: {"name": path.stem, "kind": "tile", "path": str(path), "inputs": {}, "options": ["--size", size]}
    paths = sorted((ROOT / "datasets" / folder).glob("*.tile"))
    return [(path.stem, lambda path=path: workload(path)) for path in paths]


def dividing_rows():
    """The loop programs of f32 that divide or take roots once their arrays have values."""
    def divides(path):
        code = "\n".join(line for line in path.read_text().splitlines() if not line.lstrip().startswith("#"))
        body = re.sub(r"init \{.*?\n    \}", "", code, flags=re.S)
        return "f32" in body and re.search(r" / |sqrt\(", body)
    folders = [ROOT / "datasets" / folder for folder in ("programs", "loops")]
    dividing = {path.stem for folder in folders for path in folder.glob("*.tile") if divides(path)}
    rows = [row for folder in ("programs", "loops") for row in program_rows(folder, "LARGE") if row[0] in dividing]
    # tables of other suites have the programs by their own names
    return [(f"{name}_quotients", lambda name=name, make=make: {**make(), "name": f"{name}_quotients"}) for name, make in rows]


# Inputs of the programs that have a schedule in Halide, whose adapter takes arrays from files.
SCHEDULED_INPUTS = {"halide_blur": {"In": [2050, 2050]}, "tvm_matmul": {"A": [512, 512], "B": [512, 512]}}


def scheduled(path, schedule):
    """A program of the library of schedules; tilewright takes the ILP's, the contestant by_hand this one."""
    workload = {"name": f"{path.stem}.{schedule}", "kind": "schedule", "path": str(path), "inputs": {}, "options": ["--size", "LARGE"],
                "program": path.stem, "schedule": schedule}
    if path.stem in SCHEDULED_INPUTS:
        import numpy
        from models import seeded
        arrays = {key: seeded(numpy.float32, shape, 0, position) for position, (key, shape) in enumerate(SCHEDULED_INPUTS[path.stem].items())}
        workload["inputs"] = save_inputs(path.stem, arrays)
    return workload


def schedule_rows():
    paths = sorted((ROOT / "datasets" / "schedules").glob("*.tile"))
    pairs = [(path, name) for path in paths for name in re.findall(r"^schedule (\w+) for", path.read_text(), re.M)]
    return [(f"{path.stem}.{name}", lambda path=path, name=name: scheduled(path, name)) for path, name in pairs]


def save_model(name, kind, nodes, inputs, output, weights=()):
    """An ONNX file of a few nodes. inputs: name -> shape; weights: name -> array."""
    from models import seeded
    from onnx import TensorProto, helper, numpy_helper, save, shape_inference
    import numpy
    folder = TARGET / "operators"
    folder.mkdir(parents=True, exist_ok=True)
    tensor = lambda key, shape: helper.make_tensor_value_info(key, TensorProto.FLOAT, shape)
    graph = helper.make_graph(nodes, name, [tensor(key, shape) for key, shape in inputs.items()], [tensor(output, None)],
                              [numpy_helper.from_array(array, key) for key, array in dict(weights).items()])
    path = folder / f"{name}.onnx"
    save(shape_inference.infer_shapes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)), path)
    arrays = {key: seeded(numpy.float32, shape, 0, position) for position, (key, shape) in enumerate(inputs.items())}
    return {"name": name, "kind": kind, "path": str(path), "inputs": save_inputs(name, arrays)}


def weight(seed, *shape):
    from models import seeded
    import numpy
    return seeded(numpy.float32, shape, 1, seed)


def product(m, n, k):
    from onnx import helper
    node = helper.make_node("MatMul", ["a", "b"], ["c"])
    return save_model(f"product_{m}x{n}x{k}", "product", [node], {"a": [m, k], "b": [k, n]}, "c")


def pads(p):
    pad = p.get("pad", 0)
    return [int(p.get(side, pad)) for side in ("ph", "pw")] * 2


def conv(name, p):
    from onnx import helper
    c, f, groups = (int(p[key]) for key in ("c", "f", "groups"))
    window = [int(p[side if side in p else "k"]) for side in ("kh", "kw")]
    dilation = int(p.get("dilation", 1))
    node = helper.make_node("Conv", ["x", "w", "b"], ["y"], pads=pads(p), strides=[int(p["stride"])] * 2, group=groups,
                            dilations=[dilation] * 2)
    weights = {"w": weight(0, f, c // groups, *window), "b": weight(1, f)}
    return save_model(name, "onnx", [node], {"x": [1, c, int(p["h"]), int(p["w"])]}, "y", weights)


def conv_transpose(name, p):
    from onnx import helper
    c, f, k = (int(p[key]) for key in ("c", "f", "k"))
    node = helper.make_node("ConvTranspose", ["x", "w", "b"], ["y"], pads=pads(p), strides=[int(p["stride"])] * 2)
    return save_model(name, "onnx", [node], {"x": [1, c, int(p["h"]), int(p["w"])]}, "y", {"w": weight(0, c, f, k, k), "b": weight(1, f)})


def dense(name, p):
    from onnx import helper
    m, n, k = (int(p[key]) for key in "mnk")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Add", ["p", "b"], ["y"])]
    return save_model(name, "onnx", nodes, {"x": [m, k]}, "y", {"w": weight(0, k, n), "b": weight(1, n)})


def constant_product(m, n, k):
    return {**dense(f"dense_{m}x{n}x{k}", {"m": m, "n": n, "k": k}), "options": algorithms.OPTIONS}


def batch_product(name, p):
    from onnx import helper
    batch, m, n, k = (int(p[key]) for key in ("batch", "m", "n", "k"))
    if p["transposed"] == "0":
        return save_model(name, "onnx", [helper.make_node("MatMul", ["a", "b"], ["c"])], {"a": [batch, m, k], "b": [batch, k, n]}, "c")
    nodes = [helper.make_node("Transpose", ["b"], ["t"], perm=[0, 2, 1]), helper.make_node("MatMul", ["a", "t"], ["c"])]
    return save_model(name, "onnx", nodes, {"a": [batch, m, k], "b": [batch, n, k]}, "c")


def rows(op, *weights, **attributes):
    """An operator on rows x columns, with vectors of weights as long as a row."""
    def make(name, p):
        from onnx import helper
        shape = [int(p["rows"]), int(p["columns"])]
        names = [f"w{i}" for i in weights]
        node = helper.make_node(op, ["x", *names], ["y"], **attributes)
        return save_model(name, "onnx", [node], {"x": shape}, "y", {key: weight(i, shape[1]) for i, key in enumerate(names)})
    return make


def image(op, **attributes):
    """An operator on one image."""
    def make(name, p):
        from onnx import helper
        more = {"kernel_shape": [int(p["k"])] * 2, "strides": [int(p["stride"])] * 2, "pads": pads(p)} if "k" in p else {}
        node = helper.make_node(op, ["x"], ["y"], **attributes, **more)
        return save_model(name, "onnx", [node], {"x": [1, int(p["c"]), int(p["h"]), int(p["w"])]}, "y")
    return make


def add_relu(name, p):
    from onnx import helper
    shape = [1, int(p["c"]), int(p["h"]), int(p["w"])]
    nodes = [helper.make_node("Add", ["a", "b"], ["s"]), helper.make_node("Relu", ["s"], ["y"])]
    return save_model(name, "onnx", nodes, {"a": shape, "b": shape}, "y")


def transpose(name, p):
    from onnx import helper
    node = helper.make_node("Transpose", ["x"], ["y"], perm=[int(i) for i in p["order"].split(",")])
    return save_model(name, "onnx", [node], {"x": [int(n) for n in p["shape"].split("x")]}, "y")


OPERATORS = {"conv": conv, "conv_transpose": conv_transpose, "dense": dense, "batch_product": batch_product,
             "softmax": rows("Softmax", axis=-1), "layer_norm": rows("LayerNormalization", 0, 1, axis=-1), "gelu": rows("Gelu"),
             "add_relu": add_relu, "max_pool": image("MaxPool"), "global_mean": image("GlobalAveragePool"), "transpose": transpose}


def operator_rows():
    lines = (ROOT / "datasets" / "operators.csv").read_text().splitlines()
    return list(csv.DictReader(line for line in lines if not line.startswith("#")))


def algorithm_rows():
    return [(row["name"], lambda row=row: {**operator(row), "options": algorithms.OPTIONS}) for row in algorithms.rows()]


def operator(row):
    return OPERATORS[row["operator"]](row["name"], dict(word.split("=") for word in row["shape"].split()))


# Suite -> what it is, its default peers, thread counts, and its workloads as (name, function that makes it). Variants are contestants too:
# tilewright with these options.
SUITES = {
    "networks": {
        "title": "Networks, batch 1, f32", "peers": ["onnxruntime", "openvino"], "threads": [1, 2],
        "rows": network_rows},
    "int8": {
        "title": "Networks quantised by ONNX Runtime's tool: static, a scale for each filter, batch 1", "peers": ["onnxruntime", "openvino"], "threads": [1, 2],
        "rows": lambda: [(f"{name}_int8", lambda name=name: quantised(name)) for name, _ in network_rows()]},
    "bf16": {
        "title": "Networks, batch 1, f32 with leave to compute in bf16", "peers": ["openvino_bf16"], "threads": [1, 2],
        "rows": lambda: [(f"{name}_bf16", lambda name=name: in_bf16(name)) for name, _ in network_rows()]},
    "low_precision": {
        "title": "Products with operands of 16 and 8 bits, and one row by weights of 8 and 4 bits", "peers": ["onnxruntime", "openvino", "openvino_bf16", "vector_sum"], "threads": [1],
        "rows": lambda: [(name, lambda make=make: low_precision_product(make)) for name, make in low_precision.rows()]},
    "architectures": {
        "title": "Published architectures with seeded weights: sound, text, detectors, quantised and half precision", "peers": ["onnxruntime"], "threads": [1],
        "rows": architecture_rows},
    "operators": {
        "title": "Single operators of published networks, f32, constant weights", "peers": ["onnxruntime", "openvino"], "threads": [1],
        "rows": lambda: [(row["name"], lambda row=row: operator(row)) for row in operator_rows()]},
    "algorithms": {
        "title": "Algorithms of convolutions beside the chosen one, f32, constant weights", "peers": [], "threads": [1, 2],
        "variants": algorithms.OF_CONVOLUTIONS, "rows": algorithm_rows},
    "products": {
        "title": "Algorithms of products beside the chosen one, f32, constant weights", "peers": [], "threads": [1, 2],
        "variants": algorithms.OF_PRODUCTS, "rows": lambda: [(f"dense_{m}x{n}x{k}", lambda s=(m, n, k): constant_product(*s)) for m, n, k in algorithms.PRODUCTS]},
    "gemm": {
        "title": "Matrix products, f32, both operands given at run time", "peers": ["onnxruntime", "openvino", "mkl"], "threads": [1, 2],
        "rows": lambda: [(f"product_{m}x{n}x{k}", lambda s=(m, n, k): product(*s)) for m, n, k in PRODUCTS]},
    "polybench": {
        "title": "PolyBench/C 4.2.1, LARGE, f64", "peers": ["gcc", "polly"], "threads": [1, 2],
        "rows": lambda: program_rows("polybench", "LARGE")},
    "programs": {
        "title": "Dynamic programs, recurrences, stencils in place, gathers and pictures as loops, LARGE", "peers": ["gcc_fast", "untransformed"], "threads": [1, 2],
        "rows": lambda: program_rows("programs", "LARGE")},
    "loops": {
        "title": "Loop programs of many fields, LARGE", "peers": ["gcc_fast", "untransformed"], "threads": [1, 2],
        "rows": lambda: program_rows("loops", "LARGE")},
    "quotients": {
        "title": "Loop programs that divide in f32, exactly and approximately, LARGE", "peers": ["gcc_fast"], "threads": [1],
        "variants": {"approximate": ["--quotients", "approximate"]}, "rows": dividing_rows},
    "schedules": {
        "title": "Schedules by hand beside the ILP's, f32", "peers": ["by_hand", "halide"], "threads": [1, 2],
        "rows": schedule_rows},
    "compile": {
        "title": "From a network's file to the first result: loading, compiling, one run", "peers": ["onnxruntime", "openvino"], "threads": [1], "metric": "prepare_ms",
        "rows": network_rows},
    "memory": {
        "title": "Memory of the whole process, loading and running a network", "peers": ["onnxruntime", "openvino"], "threads": [1],
        "metric": "memory_bytes",
        "rows": network_rows},
}
