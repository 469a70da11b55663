#!/usr/bin/env python3
"""Guard against slower code, independent of the machine's speed: what valgrind counts, against benches/guard.json.

usage: guard.py [--tilewright PROGRAM] [--write] [NAME...]

For kernels, compiled for AVX2 (the widest that valgrind knows), the estimated cycles of one run: instructions, 10 for each miss
of the first cache and 100 for each of the last, in caches of fixed sizes. For compiling, the instructions of the whole process,
which depend on the compiler that built it, so its version is recorded. --write takes what is counted as the new baseline.
"""
import argparse
import json
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
BASELINE = ROOT / "benches" / "guard.json"
TARGET = "x86-64-avx2"
CACHES = ["--cache-sim=yes", "--I1=32768,8,64", "--D1=32768,8,64", "--LL=16777216,16,64"]
RUN = {"mobilenet_v2": ["datasets/networks/mobilenet_v2.onnx"], "squeezenet1_1": ["datasets/networks/squeezenet1_1.onnx"],
       "gemm": ["datasets/polybench/gemm.tile", "--size", "SMALL"], "jacobi_2d": ["datasets/polybench/jacobi-2d.tile", "--size", "SMALL"]}
COMPILE = {"mobilenet_v2": ["datasets/networks/mobilenet_v2.onnx"], "resnet18": ["datasets/networks/resnet18.onnx"]}
# Greatest growth that is let through.
TOLERANCE = {"run": 0.03, "compile": 0.05}


def valgrind(arguments, said=""):
    """Event counts of a process."""
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", *CACHES, *arguments]
    result = subprocess.run(command, input=said, capture_output=True, text=True, cwd=ROOT)
    if result.returncode != 0:
        sys.exit(f"guard: {' '.join(arguments)}: " + (result.stderr.strip().splitlines() or ["no message"])[-1])
    events = re.search(r"Events +: (.*)", result.stderr)[1].split()
    counts = re.search(r"Collected : (.*)", result.stderr)[1].split()
    return dict(zip(events, map(int, counts)))


def cycles(counts):
    near = sum(counts[event] for event in ("I1mr", "D1mr", "D1mw"))
    far = sum(counts[event] for event in ("ILmr", "DLmr", "DLmw"))
    return counts["Ir"] + 10 * near + 100 * far


def count_run(program, model):
    """Estimated cycles of one run: twelve runs less two, by ten."""
    command = [program, "bench", *model, "--quiet", "--interactive", "--threads", "1", "--target", TARGET]
    few, many = (cycles(valgrind(command, f"{runs} runs\n")) for runs in (2, 12))
    return (many - few) // 10


def count_compile(program, model):
    return valgrind([program, "compile", *model, "--quiet", "--target", TARGET, "-o", "/dev/null"])["Ir"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tilewright", default=str(ROOT / "target" / "release" / "tilewright"))
    parser.add_argument("--write", action="store_true")
    parser.add_argument("names", nargs="*", help="run/NAME or compile/NAME [all]")
    options = parser.parse_args()
    every = {f"run/{name}": (count_run, model) for name, model in RUN.items()}
    every.update({f"compile/{name}": (count_compile, model) for name, model in COMPILE.items()})
    for name in options.names:
        if name not in every:
            parser.error(f"no '{name}'; there are {', '.join(every)}")
    if not shutil.which("valgrind"):
        sys.exit("guard: valgrind is not installed")
    baseline = json.loads(BASELINE.read_text()) if BASELINE.exists() else {"rustc": "", "counts": {}}
    rustc = subprocess.run(["rustc", "--version"], capture_output=True, text=True).stdout.split(" (")[0].strip()
    worse = False
    for name in options.names or every:
        count, model = every[name]
        now, before = count(options.tilewright, model), baseline["counts"].get(name)
        kind = name.split("/")[0]
        if before is None or options.write:
            word = "written" if options.write else "has no baseline: run with --write"
            worse |= not options.write
        elif kind == "compile" and rustc != baseline["rustc"]:
            word = f"not judged: the baseline is of {baseline['rustc']}, this is {rustc}"
        else:
            growth = now / before - 1
            bad = growth > TOLERANCE[kind]
            worse |= bad
            word = f"{100 * growth:+.1f} %" + (f": SLOWER than the {100 * TOLERANCE[kind]:.0f} % that are let through" if bad else "")
        print(f"guard: {name:24} {now:>14,}  {word}", flush=True)
        if options.write:
            baseline["counts"][name] = now
    if options.write:
        baseline["rustc"] = rustc
        BASELINE.write_text(json.dumps(baseline, indent=1) + "\n")
    if worse:
        print("guard: if the growth is meant, run benches/guard.py --write and say why in the commit", file=sys.stderr)
    sys.exit(worse)


if __name__ == "__main__":
    main()
