#!/usr/bin/env python3
"""Layers for which algorithms compete, and how near to the fastest one the choice is.

datasets/convolutions.csv has the layers: those of the networks of models.json, and of published lists. A layer is
(channels, height, width, filters, window's height and width, padding of both), with strides, dilations and groups of 1, and batch 1.

usage: algorithms.py NAME...      prints the rows of networks of models.json, by name (needs onnx); for new networks
"""
import csv
import json
import pathlib
import statistics
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TABLE = ROOT / "datasets" / "convolutions.csv"
# Windows that have transforms and occur in networks; fewest channels and filters.
WINDOWS = [(3, 3), (1, 3), (3, 1), (5, 5), (1, 7), (7, 1)]
LEAST_CHANNELS = 8
# Contestant -> its options; the choice is tilewright's without. The bound of the error excludes none.
VARIANTS = {name: ["--algorithm", name] for name in ("direct", "winograd-2", "winograd-4", "winograd-6", "strassen")}
OF_CONVOLUTIONS = {name: options for name, options in VARIANTS.items() if name != "strassen"}
OF_PRODUCTS = {name: VARIANTS[name] for name in ("direct", "strassen")}
# Rows, columns and steps of products with constant weights: squares, and layers of Llama-2-7B over 512 tokens.
PRODUCTS = [(2048, 2048, 2048), (3072, 3072, 3072), (512, 4096, 4096), (512, 11008, 4096), (512, 4096, 11008)]
OPTIONS = ["--max-error", "1"]
# Of the largest value: outputs by different algorithms are compared to find wrong ones, not to measure their rounding.
TOLERANCE = 0.05
# A choice is near where it takes at most this share longer than the fastest.
NEAR = 0.05


def rows():
    """The table, as dictionaries."""
    lines = TABLE.read_text().splitlines()
    return list(csv.DictReader(line for line in lines if not line.startswith("#")))


def geometry(row):
    """The layer of a row."""
    p = dict(word.split("=") for word in row["shape"].split())
    return tuple(int(p[key]) for key in ("c", "h", "w", "f", "kh", "kw", "ph", "pw"))


def text(origin, layer, source):
    """A line of the table."""
    c, h, w, f, kh, kw, ph, pw = layer
    name = f"{origin}_{c}x{h}x{w}_{f}_{kh}x{kw}" + ("" if (ph, pw) == (kh // 2, kw // 2) else "_valid" if ph == pw == 0 else f"_pad{ph}x{pw}")
    return f"{name},conv,c={c} h={h} w={w} f={f} kh={kh} kw={kw} ph={ph} pw={pw} stride=1 groups=1,{source}"


def layers_of(model, inputs):
    """The layers of an ONNX model whose inputs have these shapes, each once."""
    import onnx
    graph = model.graph
    for value in graph.input:
        if value.name in inputs:
            dims = [onnx.TensorShapeProto.Dimension(dim_value=n) for n in inputs[value.name]]
            del value.type.tensor_type.shape.dim[:]
            value.type.tensor_type.shape.dim.extend(dims)
    del graph.value_info[:]
    for value in graph.output:
        value.type.tensor_type.ClearField("shape")
    graph = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    shapes = {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in (*graph.input, *graph.value_info)}
    shapes.update({i.name: list(i.dims) for i in graph.initializer})
    found = []
    for node in graph.node:
        if node.op_type != "Conv" or len(shapes.get(node.input[0], [])) != 4 or len(shapes.get(node.input[1], [])) != 4:
            continue
        given = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        (_, c, h, w), (f, _, kh, kw) = shapes[node.input[0]], shapes[node.input[1]]
        top, left, bottom, right = given.get("pads", [0] * 4)
        plain = all(n == 1 for key in ("strides", "dilations") for n in given.get(key, [1])) and given.get("group", 1) == 1
        even = (top, left) == (bottom, right) and given.get("auto_pad", b"NOTSET") == b"NOTSET"
        layer = (c, h, w, f, kh, kw, top, left)
        if plain and even and (kh, kw) in WINDOWS and min(c, f) >= LEAST_CHANNELS and min(h, w) > 0 and layer not in found:
            found.append(layer)
    return found


def layers_of_network(name):
    """The layers of a network of models.json; nothing where it is not fetched."""
    import onnx
    model = json.loads((ROOT / "datasets" / "models.json").read_text())[name]
    path = ROOT / model["file"]
    return layers_of(onnx.load(path, load_external_data=False), model["inputs"]) if path.exists() else []


def chosen(row):
    """The algorithm that a measured row's tilewright chose; direct where no other competed."""
    layers = (row["detail"].get("algorithms") or {}).get("layers", [])
    return layers[0]["chosen"]["algorithm"] if layers else "direct"


def distance(row):
    """How much longer the choice takes than the fastest algorithm, as a share of that one's time. The same code under another
    name says nothing."""
    others = [r["ratio"] for name, r in row["ratios"].items() if name in VARIANTS and name != chosen(row)]
    return max(0.0, 1 / min(others) - 1) if others else 0.0


def has_choice(row):
    """Returns true if a row compares algorithms."""
    return "error" not in row and "detail" in row and any(name in VARIANTS for name in row["ratios"])


def choice_text(row):
    """What was chosen, and how far it is from the fastest."""
    return f"chose {chosen(row)}, {100 * distance(row):.1f} % from the fastest"


def lines(part):
    """Of each number of threads: how many choices are near the fastest, and the farthest one."""
    out = []
    every = [row for row in part["rows"] if has_choice(row)]
    for threads in sorted({row["threads"] for row in every}):
        some = [row for row in every if row["threads"] == threads]
        near = sum(distance(row) <= NEAR for row in some)
        worst = max(some, key=distance)
        mean = statistics.fmean(map(distance, some))
        kinds = {name: sum(chosen(row) == name for row in some) for name in VARIANTS}
        taken = ", ".join(f"{name} {count}" for name, count in kinds.items() if count)
        out.append(f"On {threads} thread{'s' * (threads != 1)} the choice is within {100 * NEAR:.0f} % of the fastest algorithm in {near} of {len(some)} layers "
                   f"({100 * near / len(some):.0f} %), {100 * mean:.1f} % from it on average, at worst {100 * distance(worst):.1f} % ({worst['name']}); chosen: {taken}.")
    return out


if __name__ == "__main__":
    for network in sys.argv[1:]:
        print("\n".join(text(network, layer, network) for layer in layers_of_network(network)))
