#!/usr/bin/env python3
"""Compare what tilewright computes with what ONNX Runtime computes, on the same seeded inputs.

usage: compare_onnxruntime.py [--tilewright PROGRAM] [--targets T,T] [--threads 1,2] [--seed S] [MODEL...]
                                                                        (needs onnx, onnxruntime, numpy)

MODEL is a name of datasets/models.json or an ONNX file; all names when none is given. For each target: the largest absolute
difference over the largest absolute value (integers must be equal), and whether 1, 2 and a second time 2 threads agree to the bit.
"""
import argparse
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "datasets"))
import models  # noqa: E402
from method import distance  # noqa: E402

TOLERANCE = 1e-3


def host_targets(program):
    """The targets that `tilewright targets` marks as this host's."""
    lines = subprocess.run([program, "targets"], check=True, capture_output=True, text=True).stdout.splitlines()
    return [line.split()[0] for line in lines if "runs here" in line]


def run(program, path, arrays, folder, target, threads):
    command = [program, "run", str(path), "--quiet", "--threads", str(threads), "--target", target, "--save", str(folder)]
    for name, array in arrays.items():
        file = folder / f"input_{len(command)}.npy"
        np.save(file, array)
        command += ["--input", f"{name}={file}"]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        lines = result.stderr.strip().splitlines() or [f"exit code {result.returncode}"]
        raise RuntimeError(lines[-1])
    return [np.load(folder / f"output_{i}.npy") for i in range(len(list(folder.glob("output_*.npy"))))]


def difference(ours, theirs):
    """As method.distance; infinite when types or shapes differ."""
    if ours.dtype != theirs.dtype or ours.shape != theirs.shape:
        return np.inf
    return distance(ours, theirs)


def compare(name, options, targets):
    if name in models.MODELS:
        path, row = models.path_with_weights(name), models.MODELS[name]
        if path is None:
            print(f"{name:24} not fetched")
            return True
    else:
        path, row = pathlib.Path(name), {}
    session = models.session(path, threads=2)
    arrays = models.inputs(session, row.get("inputs"), row.get("bounds"), options.seed)
    expected = session.run(None, arrays)
    good = True
    for target in targets:
        began = time.time()
        try:
            results = []
            for threads in (*options.threads, options.threads[-1]):
                with tempfile.TemporaryDirectory() as folder:
                    results.append(run(options.tilewright, path, arrays, pathlib.Path(folder), target, threads))
        except RuntimeError as error:
            print(f"{path.stem:24} {target:16} FAILED {error}")
            good = False
            continue
        worst = max(map(difference, results[0], expected)) if len(results[0]) == len(expected) else np.inf
        same = all(a.tobytes() == b.tobytes() for other in results[1:] for a, b in zip(results[0], other))
        verdict = "ok" if worst <= TOLERANCE and same else "WRONG"
        good &= verdict == "ok"
        print(f"{path.stem:24} {target:16} {verdict:6} difference {worst:.1e}  bits {'same' if same else 'DIFFER'}"
              f"  {time.time() - began:.1f} s", flush=True)
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tilewright", default=str(ROOT / "target" / "release" / "tilewright"))
    parser.add_argument("--targets", help="all that run here")
    parser.add_argument("--threads", default="1,2", type=lambda text: [int(t) for t in text.split(",")])
    parser.add_argument("--seed", default=0, type=int)
    parser.add_argument("models", nargs="*")
    options = parser.parse_args()
    targets = options.targets.split(",") if options.targets else host_targets(options.tilewright)
    results = [compare(name, options, targets) for name in options.models or models.MODELS]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
