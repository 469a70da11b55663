#!/usr/bin/env python3
"""Guard against slower code and slower compiling, whatever the speed of the machine: instructions that valgrind counts.

usage: guard.py [--tilewright PROGRAM] [--write] [NAME...]           NAME is run/gemm, network/resnet18, compile/shuffle_net ...: all but large networks by default

Counted is the build of the dev profile (cargo build), on one thread, for AVX2, the widest that valgrind knows. A kernel is compiled
first and counted alone: 12 runs less 2, by 10. Of a network one run is counted, the generated code alone; large networks, which take
minutes, are counted when they are named. For compiling it is the whole process, which depends on the compiler that built it: such a row is judged only by the rustc that made the baseline. Counts repeat exactly: random numbers of the system are constant
(they seed hash tables), and the calibration of a clock in a library is left out. benches/guard.json is the baseline; --write makes
it anew. A row fails when it grows by more than the tolerance below.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import queue
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILT = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
BASELINE = ROOT / "benches" / "guard.json"
TARGET = "x86-64-avx2"
OPERATORS = "tests/fixtures/operators/"
RUN = {"gemm": ["datasets/polybench/gemm.tile", "--size", "SMALL"],
       "jacobi_2d": ["datasets/polybench/jacobi-2d.tile", "--size", "SMALL"],
       "cholesky": ["datasets/polybench/cholesky.tile", "--size", "SMALL"],
       "softmax": ["datasets/schedules/softmax.tile", "--dim", "M=64", "--dim", "N=100"],
       "convolution": ["datasets/schedules/direct_convolution.tile", "--size", "SMALL"],
       "hand_written_product": ["datasets/schedules/tvm_matmul.tile", "--size", "SMALL", "--schedule", "tiled_8x8x8_vectorized"]}
COMPILE = {"shuffle_net": [OPERATORS + "network_shuffle_net_11.onnx"],
           "causal_decoder": [OPERATORS + "network_causal_decoder_12.onnx"],
           "heat_3d": ["datasets/polybench/heat-3d.tile", "--size", "SMALL"]}
NETWORK = {path.stem: [path.relative_to(ROOT)] for path in sorted((ROOT / "datasets" / "networks").glob("*.onnx"))}
# Minutes each.
LARGE = {f"network/{name}" for name in ("bert_base_s128", "densenet121", "resnet50", "vit_b_16", "vit_b_16_features")}
TOLERANCE = {"run": 0.005, "network": 0.005, "compile": 0.02}
SLACK = 200  # instructions: waiting for threads and the clock differ by some
# Function that is not counted: it spins until a clock is steady.
LEFT_OUT = "quanta::instant::Instant::now"
CONSTANT_RANDOM = """
#include <string.h>
#include <sys/types.h>
ssize_t getrandom(void *to, size_t bytes, unsigned flags) { (void)flags; memset(to, 7, bytes); return (ssize_t)bytes; }
"""


class Failure(Exception):
    """The reason why a row cannot be counted."""


def run(command, said=""):
    result = subprocess.run([str(word) for word in command], input=said, capture_output=True, text=True, cwd=ROOT)
    if result.returncode != 0:
        raise Failure(f"{command[0]}: " + (result.stderr.strip().splitlines() or ["no message"])[-1])
    return result.stdout


def constant_random(folder):
    """A library whose random numbers are constant."""
    source, library = folder / "random.c", folder / "random.so"
    source.write_text(CONSTANT_RANDOM)
    run([shutil.which("cc") or "gcc", "-shared", "-fPIC", "-O1", source, "-o", library])
    return library


def instructions(listing, name):
    """The counts of the lines of callgrind_annotate with this name."""
    return [int(n.replace(",", "")) for n in re.findall(rf"^ *([\d,]+) \([ \d.]+%\) +{name}", listing, re.M)]


class Counter:
    """Counts instructions of one program on one core, with scratch files in a folder."""

    def __init__(self, program, folder, random, core):
        self.program, self.folder, self.random, self.core = program, folder, random, core

    def listing(self, arguments, said=""):
        """Instructions of a process, function by function; generated code has no name."""
        out = self.folder / "callgrind.out"
        command = ["env", f"LD_PRELOAD={self.random}", "valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", self.program, *arguments]
        run([*(["taskset", "-c", str(self.core)] if shutil.which("taskset") else []), *command], said)
        return run(["callgrind_annotate", "--inclusive=yes", "--threshold=100", "--auto=no", out])

    def count(self, arguments, said=""):
        """Instructions of a process, without what is left out."""
        listing = self.listing(arguments, said)
        return sum(instructions(listing, r"PROGRAM TOTALS")) - sum(instructions(listing, rf"\S*{LEFT_OUT}\b"))

    def module(self, model):
        """A compiled module; it is made for one schedule and one set of sizes."""
        module = self.folder / "module.tw"
        run([self.program, "compile", *model, "--quiet", "--target", TARGET, "-o", module])
        return ["bench", module, "--quiet", "--interactive", "--threads", "1"]

    def run(self, model):
        bench = self.module(model)
        # Waiting for threads and for the clock adds some, so that the least of three counts.
        few, many = (min(self.count(bench, f"{n} runs\n") for _ in range(3)) for n in (2, 12))
        return (many - few) // 10

    def network(self, model):
        # With nothing on standard input, the run that precedes all requests is the only one.
        return sum(instructions(self.listing(self.module(model)), r"\?\?\?:0x[0-9a-f]+ \[\?\?\?\]"))

    def compile(self, model):
        return self.count(["compile", *model, "--quiet", "--target", TARGET, "-o", self.folder / "module.tw"])


def judge(kind, before, now, same_compiler):
    """Returns the verdict on a row, and True if it fails."""
    if before is None:
        return "has no baseline: run with --write", True
    if kind == "compile" and not same_compiler:
        return "not judged: the baseline was made by another rustc", False
    growth, allowed = now / before - 1, TOLERANCE[kind] + SLACK / before
    if growth > allowed:
        return f"{100 * growth:+.2f} %: MORE than the {100 * allowed:.1f} % that are let through", True
    hint = "; fewer: --write makes it the baseline" if growth < -allowed else ""
    return f"{100 * growth:+.2f} %{hint}", False


def rows():
    """The model of each row."""
    kinds = {"run": RUN, "compile": COMPILE, "network": NETWORK}
    return {f"{kind}/{name}": model for kind, models in kinds.items() for name, model in models.items()}


def counts(program, folder, rows):
    """The name and the instructions of each row, in order; one row at a time on each core."""
    random = constant_random(folder)
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
    free = queue.SimpleQueue()
    for core in cores:
        free.put(core)

    def count(name, model):
        core = free.get()
        scratch = folder / str(core)
        scratch.mkdir(exist_ok=True)
        try:
            return getattr(Counter(program, scratch, random, core), name.split("/")[0])(model)
        finally:
            free.put(core)

    with concurrent.futures.ThreadPoolExecutor(len(cores)) as pool:
        yield from zip(rows, pool.map(count, rows.keys(), rows.values()))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tilewright", type=pathlib.Path, default=BUILT / "debug" / "tilewright", help="program to count")
    parser.add_argument("--write", action="store_true", help="make what is counted the baseline")
    parser.add_argument("names", nargs="*", metavar="NAME")
    options = parser.parse_args()
    every = rows()
    for name in options.names:
        if name not in every:
            parser.error(f"no '{name}'; there are {', '.join(every)}")
    if missing := [tool for tool in ("valgrind", "callgrind_annotate") if not shutil.which(tool)]:
        print(f"guard: skipped: {' and '.join(missing)} not installed")
        return
    if not options.tilewright.is_file():
        parser.error(f"there is no {options.tilewright}; build it with: cargo build")
    baseline = json.loads(BASELINE.read_text()) if BASELINE.exists() else {"rustc": "", "instructions": {}}
    rustc = run(["rustc", "--version"]).split(" (")[0].strip()
    bad = False
    with tempfile.TemporaryDirectory() as folder:
        for name, now in counts(options.tilewright.resolve(), pathlib.Path(folder), {name: every[name] for name in options.names or every if options.names or name not in LARGE}):
            kind = name.split("/")[0]
            said, wrong = judge(kind, baseline["instructions"].get(name), now, rustc == baseline["rustc"])
            if options.write:
                baseline["instructions"][name], said, wrong = now, "written", False
            bad |= wrong
            print(f"guard: {name:26} {now:>13,} instructions  {said}", flush=True)
    if options.write:
        baseline["rustc"] = rustc
        BASELINE.write_text(json.dumps(baseline, indent=1) + "\n")
    if bad:
        sys.exit("guard: where the growth is meant, run benches/guard.py --write and say why in the commit")


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        sys.exit(f"guard: {failure}")
