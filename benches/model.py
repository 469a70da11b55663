#!/usr/bin/env python3
"""Compare the predicted time of every kernel with its measured time, one thread; write target/bench/model.json.

Networks, PolyBench and the programs of datasets/programs and datasets/loops, each compiled for this processor. The figure of a kernel is measured over predicted:
above 1 it takes longer than the model of cost says. Kernels below MICROSECONDS are left out: what they take is the clock's noise.
"""
import argparse
import json
import pathlib
import statistics
import subprocess

import environment
import suites
from environment import BUILT, TARGET, say

MICROSECONDS = 5
QUANTILES = [5, 25, 50, 75, 95]
WORST = 8


def groups(words):
    """Title -> (name, arguments of `tilewright bench`) of what is measured."""
    chosen = lambda name: not words or any(word in name for word in words)
    networks = [(name, make) for name, make in suites.network_rows() if chosen(name)]
    programs = [row for folder in ("polybench", "programs", "loops") for row in suites.program_rows(folder, "LARGE") if chosen(row[0])]
    return {"kernels of networks": networks, "loop programs": programs}


def kernels(program, workload, seconds):
    """The kernels of a workload, with their predicted and measured times in microseconds."""
    inputs = [word for name, path in workload["inputs"].items() for word in ("--input", f"{name}={path}")]
    command = [program, "bench", workload["path"], "--threads", "1", "--json", "--quiet", "--seconds", str(seconds), *inputs, *workload.get("options", [])]
    said = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if said.returncode != 0:
        raise suites.Missing((said.stderr.strip().splitlines() or ["no message"])[-1])
    found = json.loads(said.stdout)["kernels"]
    rows = [{"kernel": k["name"], "predicted_us": k["predicted_us"], "measured_us": k["us"]} for k in found if not k["opaque"]]
    return [row for row in rows if row["measured_us"] >= MICROSECONDS and row["predicted_us"] > 0]


def ratio(row):
    return row["measured_us"] / row["predicted_us"]


def quantile(values, percent):
    values = sorted(values)
    return values[min(len(values) - 1, len(values) * percent // 100)]


def report(rows_of):
    """Lines of text: for each group its quantiles and the kernels that are predicted worst."""
    for title, rows in rows_of.items():
        if not rows:
            continue
        ratios = [ratio(row) for row in rows]
        # the time that a kernel is off by, in both directions, as a factor
        factor = statistics.median(max(r, 1 / r) for r in ratios)
        figures = ", ".join(f"{percent} % {quantile(ratios, percent):.2f}" for percent in QUANTILES)
        yield f"{title}: {len(rows)}, measured over predicted: {figures}; median factor {factor:.2f}"
        for row in sorted(rows, key=lambda row: -max(ratio(row), 1 / ratio(row)))[:WORST]:
            yield f"  {ratio(row):7.2f}  {row['measured_us']:12.1f} us  {row['workload']}: {row['kernel']}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tilewright", default=str(BUILT / "release" / "tilewright"), help="program to measure")
    parser.add_argument("--seconds", type=float, default=0.3, help="how long each workload is measured [0.3]")
    parser.add_argument("words", nargs="*", metavar="WORD", help="only workloads with one of these in their names")
    options = parser.parse_args()
    environment.enter([])
    rows_of = {}
    for title, workloads in groups(options.words).items():
        rows_of[title] = rows = []
        for name, make in workloads:
            say(name)
            try:
                found = kernels(options.tilewright, make(), options.seconds)
            except suites.Missing as why:
                say(f"{name} is left out: {why}")
                continue
            rows.extend({"workload": name, **row} for row in found)
    print("\n".join(report(rows_of)))
    TARGET.mkdir(parents=True, exist_ok=True)
    pathlib.Path(TARGET / "model.json").write_text(json.dumps(rows_of, indent=1))


if __name__ == "__main__":
    main()
