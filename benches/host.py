#!/usr/bin/env python3
"""One peer in a process of its own: `host.py PEER WORKLOAD.json THREADS OUTPUTS [Contestant|Other|Definition]`.

It speaks like `tilewright bench --interactive`: a first line of JSON when all is ready, then for each line of standard input, a
number of seconds, one line of JSON with the latencies in ms. The outputs of one run are saved as OUTPUTS/output_0.npy, ...

An adapter, peers/NAME.py, has

    REQUIRES = ["package"]           packages of peers/requirements.txt
    KINDS = {"onnx", "product"}      workloads that it can run (see suites.py)
    SERIAL = False                   whether it runs on one thread whatever it is asked for; then it is measured once for all counts
    IN_PROCESS = True                whether it runs in this process, so that the memory of the process is its memory
    COMPARED = True                  whether its outputs are those of the workload
    TOLERANCE = 1e-3                 largest difference of its outputs, as a share of the largest value; 1e-3 when not given
    def version(): ...               what is measured
    class Contestant:
        def __init__(self, workload, threads): ...    prepares; counted as its compile time
        def run(self): ...                            runs once; returns a list of ms if it measures itself, otherwise nothing
        def outputs(self): ...                        a list of arrays

and, where rounding may matter more than the tolerance,

    class Other: ...                 a Contestant that evaluates the same with other roundings, which is not timed
    class Definition: ...            a Contestant that evaluates the workload as it is written, without optimizations, which is not timed

or, in place of version and Contestant, `command(workload_file, threads, outputs)`: a program that speaks as above by itself.
"""
import importlib
import json
import os
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))


def timed(run):
    """Milliseconds of one run, or of those that it measured itself."""
    begin = time.perf_counter()
    own = run()
    return [(time.perf_counter() - begin) * 1e3] if own is None else own


def latencies(run, seconds):
    """Of each run for this long. The first run warms up; it counts only where it alone takes as long."""
    start = time.perf_counter()
    times = timed(run)
    if time.perf_counter() - start >= seconds:
        return times
    times, start = [], time.perf_counter()
    while not times or time.perf_counter() - start < seconds:
        times += timed(run)
    return times


def main():
    peer, workload, threads, folder, which = (*sys.argv[1:], "Contestant")[:5]
    # Libraries print to standard error, so that their output does not mix with the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    answer = lambda value: print(json.dumps(value), file=answers, flush=True)
    try:
        adapter = importlib.import_module(f"peers.{peer}")
        version = adapter.version()
        start = time.perf_counter()
        contestant = getattr(adapter, which)(json.loads(pathlib.Path(workload).read_text()), int(threads))
        first_ms = timed(contestant.run)[0]
        prepare_ms = (time.perf_counter() - start) * 1e3
        import numpy
        pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
        for i, array in enumerate(contestant.outputs()):
            numpy.save(pathlib.Path(folder) / f"output_{i}.npy", array)
    except ModuleNotFoundError as error:
        answer({"error": f"{error.name} is not installed"})
        sys.exit(1)
    except Exception as error:
        answer({"error": (f"{type(error).__name__}: {error}".strip().splitlines() or ["no message"])[0]})
        sys.exit(1)
    answer({"version": version, "prepare_ms": prepare_ms, "first_ms": first_ms})
    for line in sys.stdin:
        answer(latencies(contestant.run, float(line)))


if __name__ == "__main__":
    main()
