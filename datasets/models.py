"""The models of models.json for Python scripts: files with weights, seeded inputs, ONNX Runtime sessions."""
import json
import pathlib
import sys

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODELS = json.loads((ROOT / "datasets" / "models.json").read_text())


def mix(z):
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def seeded(dtype, shape, seed, position, bound=2):
    """The contents that tilewright gives to an input: see src/runtime/random.rs."""
    with np.errstate(over="ignore"):
        start = mix(np.array([seed], np.uint64) ^ mix(np.array([position], np.uint64)))[0]
        i = np.arange(1, int(np.prod(shape)) + 1, dtype=np.uint64)
        u = mix(start + i * np.uint64(0x9E3779B97F4A7C15))
    dtype = np.dtype(dtype)
    if dtype.kind == "f":
        return ((u >> np.uint64(40)).astype(np.float32) * np.float32(2.0 / 2**24) - np.float32(1)).astype(dtype).reshape(shape)
    return (u % np.uint64(2 if dtype == np.bool_ else bound)).astype(dtype).reshape(shape)


def path_with_weights(name):
    """A file that any program can load; None when a pretrained model has not been fetched."""
    source = ROOT / MODELS[name]["file"]
    if source.parent.name != "networks":
        return source if source.exists() else None
    target = ROOT / "target" / "models" / source.name
    if not target.exists():
        import onnx
        from materialize import materialize
        target.parent.mkdir(parents=True, exist_ok=True)
        print(f"models: filling {name} with its weights", file=sys.stderr)
        part = target.with_suffix(".part")
        onnx.save(materialize(source), part)
        part.rename(target)
    return target


def session(path, threads=1, optimize=True):
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    if not optimize:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


TYPES = {"tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(int64)": np.int64, "tensor(int32)": np.int32,
         "tensor(bool)": np.bool_, "tensor(uint8)": np.uint8}


def inputs(session, shapes=None, bounds=None, seed=0):
    """Seeded inputs of an ONNX Runtime session; dynamic dimensions not given by `shapes` are 1."""
    given = shapes or {}
    return {spec.name: seeded(TYPES[spec.type], given.get(spec.name) or [d if isinstance(d, int) and d > 0 else 1 for d in spec.shape],
                              seed, position, (bounds or {}).get(spec.name, 2))
            for position, spec in enumerate(session.get_inputs())}
