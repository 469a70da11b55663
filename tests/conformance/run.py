"""Runs ONNX's backend suite (node, simple, pytorch-converted, pytorch-operator) through `tilewright run` and prints how many
cases of each group pass, and a reason for each that fails.

    make conformance [CASES=lstm]     cases whose name contains a text
"""
import argparse
import collections
import concurrent.futures
import json
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "benches"))
import environment  # noqa: E402

# The tolerance of a value: absolute plus relative to the expected one.
ABSOLUTE, RELATIVE = 1e-5, 1e-3
SECONDS = 60
FOLDER = ROOT / "target" / "conformance"


def value(path, info):
    """The NumPy value of a file, by the declared type."""
    import onnx
    from onnx import numpy_helper
    kind = info.type
    if kind.HasField("sequence_type"):
        return numpy_helper.to_list(onnx.SequenceProto.FromString(path.read_bytes()))
    if kind.HasField("optional_type"):
        return numpy_helper.to_optional(onnx.OptionalProto.FromString(path.read_bytes()))
    return numpy_helper.to_array(onnx.TensorProto.FromString(path.read_bytes()))


def difference(found, expected):
    """Why two values differ, or nothing."""
    import numpy as np
    if found is None or expected is None:
        return "" if found is expected else "one value is absent"
    if isinstance(expected, list):
        if not isinstance(found, list) or len(found) != len(expected):
            return "sequences of different lengths"
        return next((why for why in map(difference, found, expected) if why), "")
    if found.dtype != expected.dtype:
        return f"elements of {found.dtype}, not {expected.dtype}"
    if found.shape != expected.shape:
        return f"shape {found.shape}, not {expected.shape}"
    if expected.dtype.kind in "biu":
        same = np.array_equal(found, expected)
    else:
        numbers = [a.astype(np.complex128 if a.dtype.kind == "c" else np.float64) for a in (found, expected)]
        same = np.allclose(*numbers, rtol=RELATIVE, atol=ABSOLUTE, equal_nan=True)
    return "" if same else "wrong values"


def run(case, program):
    """Why a case fails, or nothing."""
    import onnx
    model = onnx.ModelProto.FromString((case / "model.onnx").read_bytes())
    stored = {tensor.name for tensor in model.graph.initializer}
    inputs = [info for info in model.graph.input if info.name not in stored]
    for data in sorted(case.glob("test_data_set_*")):
        with tempfile.TemporaryDirectory() as folder:
            command = [program, "run", case / "model.onnx", "--threads", "1", "--quiet", "--save", folder, "--format", "pb"]
            files = sorted(data.glob("input_*.pb"), key=lambda p: int(p.stem.split("_")[1]))
            for info, path in zip(inputs, files):
                command += ["--input", f"{info.name}={path}"]
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
            except subprocess.TimeoutExpired:
                return f"no result in {SECONDS} s"
            if done.returncode != 0:
                return done.stderr.strip() or f"exit code {done.returncode}"
            for i, info in enumerate(model.graph.output):
                expected = data / f"output_{i}.pb"
                if expected.exists():
                    why = difference(value(pathlib.Path(folder) / f"output_{i}.pb", info), value(expected, info))
                    if why:
                        return f"output `{info.name}`: {why}"
    return ""


def kind(reason):
    """The part of a reason that does not depend on the case."""
    return re.sub(r"`[^`]*`|/\S+|\[[^]]*\]|\d+", "…", reason.replace("tilewright: ", ""))[:120]


def report(results):
    """The table, the reasons by their number, and the reason of each case that fails."""
    groups = collections.defaultdict(lambda: [0, 0])
    for case, reason in results.items():
        groups[case.split("/")[0]][0] += not reason
        groups[case.split("/")[0]][1] += 1
    lines = [f"{group:20} {passed:5} of {count:5}" for group, (passed, count) in groups.items()]
    lines.append(f"{'all':20} {sum(not r for r in results.values()):5} of {len(results):5}")
    lines += [f"{case}: {reason}" for case, reason in results.items() if reason]
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", default="", help="only cases whose name contains this text")
    parser.add_argument("--program", default=ROOT / "target" / "release" / "tilewright", type=pathlib.Path)
    parser.add_argument("--jobs", default=2, type=int)
    arguments = parser.parse_args()
    environment.enter(["onnxruntime"])
    import generate
    import tqdm
    generate.generate(FOLDER)
    cases = [c for group in generate.GROUPS for c in sorted((FOLDER / group).glob("test_*")) if arguments.cases in c.name]
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        reasons = list(tqdm.tqdm(pool.map(lambda case: run(case, arguments.program), cases), total=len(cases)))
    results = {f"{case.parent.name}/{case.name}": reason for case, reason in zip(cases, reasons)}
    if not arguments.cases:
        (FOLDER / "results.json").write_text(json.dumps(results, indent=1))
    print("\n".join(report(results)))


if __name__ == "__main__":
    main()
