#!/usr/bin/env python3
"""Measure tilewright against its peers, in turn, on the same inputs; print a table and write target/bench/report.json.

usage: run.py [--tilewright PROGRAM] [--rounds 3] [--seconds 1] [--threads 1,2] [--peers onnxruntime,openvino] [WORD...]

WORD selects models and matrix products by a part of their name. A round measures each program for --seconds before the next
round begins, so that a drift of the clock meets all of them; the table shows the minimum and the median over all rounds and,
for each peer, its minimum over tilewright's: above 1 tilewright is faster. The peers live in an environment of their own,
target/bench/venv, made at the first use; one that cannot be installed is named and left out.
"""
import argparse
import json
import os
import pathlib
import platform
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
TARGET = ROOT / "target" / "bench"
VENV = TARGET / "venv"
# M, N, K
PRODUCTS = [(64, 64, 64), (128, 128, 128), (256, 256, 256), (512, 512, 512), (1024, 1024, 1024), (2048, 2048, 2048),
            (128, 3072, 768), (49, 512, 4608), (12544, 64, 147), (1, 4096, 4096)]


def enter_environment():
    """Makes the environment of the peers if need be, and starts this script again inside."""
    python = VENV / "bin" / "python"
    if sys.prefix == str(VENV):
        return
    wanted = (ROOT / "benches" / "requirements.txt").read_text()
    stamp = VENV / "requirements.txt"
    if not python.exists():
        print("bench: making an environment for the peers", file=sys.stderr)
        if subprocess.run([sys.executable, "-m", "venv", str(VENV)]).returncode != 0:
            sys.exit("bench: python cannot make environments: install python3-venv")
    if not stamp.exists() or stamp.read_text() != wanted:
        for line in wanted.split():
            print(f"bench: installing {line}", file=sys.stderr)
            command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", line]
            if subprocess.run(command).returncode != 0:
                print(f"bench: {line} cannot be installed and is left out", file=sys.stderr)
        stamp.write_text(wanted)
    os.execv(python, [str(python), __file__, *sys.argv[1:]])


class OnnxRuntime:
    def __init__(self, path, threads, arrays):
        from models import session
        self.session, self.arrays = session(path, threads), arrays

    def run(self):
        self.session.run(None, self.arrays)


class OpenVino:
    def __init__(self, path, threads, arrays):
        import openvino
        core = openvino.Core()
        model = core.read_model(path)
        model.reshape({name: list(array.shape) for name, array in arrays.items()})
        options = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
        self.request = core.compile_model(model, "CPU", options).create_infer_request()
        for name, array in arrays.items():
            self.request.set_tensor(name, openvino.Tensor(array))

    def run(self):
        self.request.infer()


PEERS = {"onnxruntime": OnnxRuntime, "openvino": OpenVino}


def repeat(run, seconds):
    """Latencies in ms for this long, after two runs to warm up."""
    run(), run()
    times, end = [], time.perf_counter() + seconds
    while len(times) < 3 or time.perf_counter() < end:
        begin = time.perf_counter()
        run()
        times.append((time.perf_counter() - begin) * 1e3)
    return min(times), sorted(times)[len(times) // 2]


def tilewright(program, path, threads, inputs, seconds):
    """What `tilewright bench` measures, in a process of its own."""
    command = [program, "bench", str(path), "--quiet", "--json", "--threads", str(threads), "--seconds", str(seconds)]
    result = subprocess.run(command + inputs, capture_output=True, text=True)
    if result.returncode != 0:
        raise RuntimeError((result.stderr.strip().splitlines() or ["no message"])[-1])
    return json.loads(result.stdout)


def save_inputs(name, arrays):
    import numpy
    arguments = []
    for i, (key, array) in enumerate(arrays.items()):
        file = TARGET / f"{name}.{i}.npy"
        numpy.save(file, array)
        arguments += ["--input", f"{key}={file}"]
    return arguments


def measure(name, path, arrays, threads, options):
    """Rows of one model: program -> minimum and median in ms, and what tilewright says of itself."""
    arguments = save_inputs(name, arrays)
    peers, skipped = {}, {}
    for peer in options.peers:
        try:
            peers[peer] = PEERS[peer](path, threads, arrays)
        except Exception as error:
            skipped[peer] = f"{type(error).__name__}: {error}".splitlines()[0]
    ours, times = [], {peer: [] for peer in ["tilewright", *peers]}
    for _ in range(options.rounds):
        ours.append(tilewright(options.tilewright, path, threads, arguments, options.seconds))
        times["tilewright"].append((ours[-1]["latency_ms"]["min"], ours[-1]["latency_ms"]["median"]))
        for peer, runner in peers.items():
            times[peer].append(repeat(runner.run, options.seconds))
    latencies = {who: {"min": min(t[0] for t in ts), "median": sorted(t[1] for t in ts)[len(ts) // 2]}
                 for who, ts in times.items()}
    best = min(ours, key=lambda o: o["latency_ms"]["min"])
    return {"model": name, "threads": threads, "latency_ms": latencies, "skipped": skipped,
            "compile_ms": min(o["compile_ms"] for o in ours), "tilewright": best}


def product_model(m, n, k):
    """An ONNX file with one matrix product."""
    from onnx import TensorProto, helper, save
    path = TARGET / f"matmul_{m}x{n}x{k}.onnx"
    tensor = lambda name, *shape: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
    graph = helper.make_graph([helper.make_node("MatMul", ["a", "b"], ["c"])], path.stem, [tensor("a", m, k), tensor("b", k, n)],
                              [tensor("c", m, n)])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def workloads(words):
    """Name, file, inputs of everything that is measured."""
    import numpy
    from models import MODELS, path_with_weights, seeded
    chosen = lambda name: not words or any(word in name for word in words)
    for name, row in MODELS.items():
        if not chosen(name) or name.endswith("_features"):
            continue
        path = path_with_weights(name)
        if path is None:
            print(f"{name}: not fetched (make models)")
            continue
        import onnx
        types = {i.name: onnx.helper.tensor_dtype_to_np_dtype(i.type.tensor_type.elem_type)
                 for i in onnx.load(path, load_external_data=False).graph.input}
        yield name, path, {key: seeded(types[key], shape, 0, position, row.get("bounds", {}).get(key, 2))
                           for position, (key, shape) in enumerate(row["inputs"].items())}
    for m, n, k in PRODUCTS:
        name = f"matmul_{m}x{n}x{k}"
        if chosen(name):
            yield name, product_model(m, n, k), {"a": seeded(numpy.float32, (m, k), 0, 0), "b": seeded(numpy.float32, (k, n), 0, 1)}


def show(row, peers):
    ours = row["latency_ms"]["tilewright"]
    line = f"{row['model']:24} {row['threads']}T {ours['min']:9.3f} {ours['median']:9.3f} {row['tilewright']['gflops']:7.1f} {row['compile_ms']:8.0f}"
    for peer in peers:
        if peer in row["latency_ms"]:
            theirs = row["latency_ms"][peer]
            line += f"  | {theirs['min']:9.3f} {theirs['median']:9.3f} {theirs['min'] / ours['min']:6.2f}"
        else:
            line += f"  | {row['skipped'][peer][:27]:27}"
    print(line, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tilewright", default=str(ROOT / "target" / "release" / "tilewright"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--threads", default="1,2", type=lambda text: [int(t) for t in text.split(",")])
    parser.add_argument("--peers", default="onnxruntime,openvino", type=lambda text: text.split(",") if text else [])
    parser.add_argument("words", nargs="*")
    options = parser.parse_args()
    unknown = [peer for peer in options.peers if peer not in PEERS]
    if unknown:
        parser.error(f"no peer {unknown[0]}; there are {', '.join(PEERS)}")
    TARGET.mkdir(parents=True, exist_ok=True)
    enter_environment()
    sys.path.insert(0, str(ROOT / "datasets"))
    print(f"{'':28}{'tilewright ms':>19} {'GFLOP/s':>7} {'compile':>8}" + "".join(f"  | {peer + ' ms':>19} {'ratio':>6}" for peer in options.peers))
    print(f"{'':28}{'minimum':>9} {'median':>9} {'':>7} {'ms':>8}" + "".join(f"  | {'minimum':>9} {'median':>9} {'':>6}" for _ in options.peers))
    rows, failed = [], False
    for name, path, arrays in workloads(options.words):
        for threads in options.threads:
            try:
                rows.append(measure(name, path, arrays, threads, options))
                show(rows[-1], options.peers)
            except RuntimeError as error:
                failed = True
                print(f"{name:24} {threads}T FAILED {error}", flush=True)
    limit = subprocess.run([options.tilewright, "targets", "--measure", "--json"], capture_output=True, text=True)
    limits = json.loads(limit.stdout) if limit.returncode == 0 else None
    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), platform.machine()) \
        if pathlib.Path("/proc/cpuinfo").exists() else platform.processor()
    report = {"date": time.strftime("%Y-%m-%d"), "processor": cpu, "cores": os.cpu_count(), "limits": limits,
              "rounds": options.rounds, "seconds": options.seconds, "rows": rows}
    (TARGET / "report.json").write_text(json.dumps(report, indent=1) + "\n")
    print(f"written: {(TARGET / 'report.json').relative_to(ROOT)}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
