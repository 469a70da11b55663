#!/usr/bin/env python3
"""Measure models with dynamic dimensions beside ONNX Runtime with dynamic axes, one thread; write target/bench/shapes.json.

Three questions, each contestant a process of its own, in turn: the time to the first result at a length that was not seen before (BERT-base);
resident memory after many lengths; 512 steps of a small decoder with a key-value cache.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

import environment
from environment import BUILT, ROOT, TARGET, VENV, say

FOLDER = TARGET / "shapes"
LENGTHS = [128, 77, 100, 64, 31, 16, 5, 1, 300, 129, 90, 250]
STEPS = 512


def resident_mib():
    status = pathlib.Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1024


def session(path):
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime, onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def peer_lengths(lengths):
    """Runs as a child: a line for each length, as the example `bindings` prints them."""
    import numpy
    _, model = session(FOLDER / "bert_dynamic.onnx")
    for length in lengths:
        ids = numpy.ones((1, length), numpy.int64)
        times = []
        for _ in range(3):
            start = time.perf_counter()
            model.run(None, {"input_ids": ids, "attention_mask": ids})
            times.append((time.perf_counter() - start) * 1e3)
        print(json.dumps({"size": length, "ready_ms": 0.0, "first_run_ms": times[0], "run_ms": min(times[1:]), "resident_mib": resident_mib()}))


def peer_steps():
    """Runs as a child: keys and values stay with ONNX Runtime from step to step."""
    import numpy
    onnxruntime, model = session(FOLDER / "decoder.onnx")
    names = [i.name for i in model.get_inputs() if i.name != "input_ids"]
    outputs = [o.name for o in model.get_outputs()]
    value = onnxruntime.OrtValue.ortvalue_from_numpy
    state = {name: value(numpy.zeros((1, 4, 0, 64), numpy.float32)) for name in names}
    ids = value(numpy.ones((1, 1), numpy.int64))
    times = []
    for _ in range(STEPS):
        start = time.perf_counter()
        binding = model.io_binding()
        for name, tensor in {"input_ids": ids, **state}.items():
            binding.bind_ortvalue_input(name, tensor)
        for name in outputs:
            binding.bind_output(name)
        model.run_with_iobinding(binding)
        results = dict(zip(outputs, binding.get_outputs()))
        state = {name: results["present" + name[len("past"):]] for name in names}
        times.append((time.perf_counter() - start) * 1e3)
    print(json.dumps({"total_ms": sum(times), "median_ms": statistics.median(times), "min_ms": min(times)}))


def lines(command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    if done.returncode != 0:
        sys.exit(f"bench: {' '.join(map(str, command))}: {done.stderr.strip().splitlines()[-1:]}")
    return done.stdout.splitlines()


def our_steps(program):
    text = lines([program, "bench", FOLDER / "decoder.onnx", "--grow", "past", "--state", "past.*=present.*", "--steps", STEPS,
                  "--threads", 1, "--quiet"])
    words = " ".join(text).replace(",", "").split()
    after = lambda word: float(words[words.index(word) + 1])
    return {"total_ms": after("in"), "median_ms": after("median"), "min_ms": after("min"), "compilations": int(words[words.index("compilations") - 1])}


def best(runs, key):
    values = [run[key] for run in runs]
    return min(values), statistics.median(values)


def report(lengths, steps):
    """Lines of text: least and median of the launches."""
    for place in range(len(LENGTHS)):
        sizes = {name: [run[place] for run in runs] for name, runs in lengths.items()}
        cells = []
        for name, runs in sizes.items():
            first = best([{"ms": run["ready_ms"] + run["first_run_ms"]} for run in runs], "ms")
            again, ready = best(runs, "run_ms"), best(runs, "ready_ms")
            cells.append(f"{name} first {first[0]:.1f}/{first[1]:.1f} ms (ready in {ready[0]:.1f}/{ready[1]:.1f}), again {again[0]:.1f}/{again[1]:.1f}")
        yield f"length {LENGTHS[place]:4}: " + "; ".join(cells)
    for name, runs in lengths.items():
        one, all_ = (statistics.median(run[place]["resident_mib"] for run in runs) for place in (0, -1))
        yield f"memory: {name} {one:.0f} MiB with one length, {all_:.0f} MiB with {len(LENGTHS)} ({all_ / one:.2f} times)"
    for name, runs in steps.items():
        total, median = best(runs, "total_ms"), best(runs, "median_ms")
        compiled = f", {runs[0]['compilations']} compilations" if "compilations" in runs[0] else ""
        yield f"{STEPS} steps: {name} {total[0]:.0f}/{total[1]:.0f} ms, a step {median[0]:.3f}/{median[1]:.3f} ms{compiled}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--launches", type=int, default=3, help="how often every contestant is started [3]")
    parser.add_argument("--tilewright", default=str(BUILT / "release"), help="folder of the program and of the example `bindings`")
    parser.add_argument("--child", choices=["lengths", "steps"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        return peer_lengths(LENGTHS) if options.child == "lengths" else peer_steps()
    environment.enter(["onnxruntime"])
    folder = pathlib.Path(options.tilewright)
    try:
        import onnxruntime
        peer = f"onnxruntime {onnxruntime.__version__}"
    except ImportError:
        peer = None
        say("onnxruntime is not here: measuring tilewright alone")
    if not (FOLDER / "decoder.onnx").exists():
        say("making the models")
        import dynamic_models
        dynamic_models.main(FOLDER)
    lengths, steps = {"tilewright": []}, {"tilewright": []}
    if peer:
        lengths[peer], steps[peer] = [], []
    for launch in range(options.launches):
        say(f"launch {launch + 1} of {options.launches}")
        ours = [folder / "examples" / "bindings", FOLDER / "bert_dynamic.onnx", 1, "length", ",".join(map(str, LENGTHS)), "batch=1"]
        lengths["tilewright"].append([json.loads(line) for line in lines(ours)][1:])
        steps["tilewright"].append(our_steps(folder / "tilewright"))
        if peer:
            child = [VENV / "bin" / "python", __file__, "--child"]
            lengths[peer].append([json.loads(line) for line in lines([*child, "lengths"])])
            steps[peer].append(json.loads(lines([*child, "steps"])[0]))
    print("\n".join(report(lengths, steps)))
    (TARGET / "shapes.json").write_text(json.dumps({"lengths": lengths, "steps": steps}, indent=1))


if __name__ == "__main__":
    main()
