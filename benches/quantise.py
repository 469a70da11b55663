#!/usr/bin/env python3
"""Make int8 files of networks with ONNX Runtime's own tool: QDQ nodes, weights signed with a scale for each filter, activations unsigned.

Scales of activations come from calibration: inputs from a seed, as benches and tests use them, so that the same file results
every time. `python benches/quantise.py NAME... [--signed]` prints the files, which are in target/bench/int8.
"""
import argparse
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDER = ROOT / "target" / "bench" / "int8"
# Inputs that the ranges of activations are taken from.
CALIBRATION = 4


def inputs_of(path):
    """Name, type and shape of the inputs of a file without dynamic dimensions."""
    import onnx
    graph = onnx.load(path, load_external_data=False).graph
    weights = {t.name for t in graph.initializer}
    tensor = lambda i: i.type.tensor_type
    shape = lambda i: [d.dim_value or 1 for d in tensor(i).shape.dim]
    return [(i.name, onnx.helper.tensor_dtype_to_np_dtype(tensor(i).elem_type), shape(i)) for i in graph.input if i.name not in weights]


def in_opset(path, least=13, wanted=17):
    """The file itself, or a copy in a later operator set where a scale for each filter does not exist in its own."""
    import onnx
    import onnx.version_converter
    model = onnx.load(path)
    if max(o.version for o in model.opset_import if o.domain in ("", "ai.onnx")) >= least:
        return path
    copy = FOLDER / f"{path.stem}.opset{wanted}.onnx"
    onnx.save(onnx.version_converter.convert_version(model, wanted), copy)
    return copy


def quantise(name, path, bounds=None, signed=False, calibration=None):
    """The int8 file of the network in `path`; made anew where the network is newer. The ranges of activations are those of `calibration`, a
    list of inputs by name, or else of inputs from seeds."""
    from models import seeded
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process
    made = FOLDER / f"{name}{'.signed' if signed else ''}.onnx"
    if made.exists() and made.stat().st_mtime > max(path.stat().st_mtime, pathlib.Path(__file__).stat().st_mtime):
        return made
    FOLDER.mkdir(parents=True, exist_ok=True)
    prepared = FOLDER / f"{name}.prepared.onnx"
    quant_pre_process(str(in_opset(path)), str(prepared), skip_symbolic_shape=True)

    class Seeded(CalibrationDataReader):
        def __init__(self):
            below = lambda key: (bounds or {}).get(key, 2)
            draw = lambda run: {key: seeded(dtype, shape, 1 + run, place, below(key))
                                for place, (key, dtype, shape) in enumerate(inputs_of(path))}
            self.runs = iter(calibration or [draw(run) for run in range(CALIBRATION)])

        def get_next(self):
            return next(self.runs, None)

    unfinished = FOLDER / f"{made.name}.unfinished"
    quantize_static(str(prepared), str(unfinished), Seeded(), quant_format=QuantFormat.QDQ, per_channel=True,
                    activation_type=QuantType.QInt8 if signed else QuantType.QUInt8, weight_type=QuantType.QInt8)
    prepared.unlink()
    unfinished.rename(made)
    return made


def main():
    sys.path.insert(0, str(ROOT / "datasets"))
    from models import MODELS, path_with_weights
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", metavar="NAME", choices=list(MODELS), help="networks of datasets/models.json")
    parser.add_argument("--signed", action="store_true", help="signed activations too")
    options = parser.parse_args()
    for name in options.names:
        path = path_with_weights(name)
        if path is None:
            sys.exit(f"quantise: {name} is not fetched (make models)")
        print(quantise(name, pathlib.Path(path), MODELS[name].get("bounds"), options.signed))


if __name__ == "__main__":
    main()
