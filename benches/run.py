#!/usr/bin/env python3
"""Measure tilewright against its peers, in turn, on the same inputs; write target/bench/report.{json,md,html}.

Suites: networks, operators, gemm, polybench, schedules, compile, memory. WORD selects rows by a part of their name. What cannot be
measured here is named and left out; a contestant whose outputs differ from tilewright's ends its row with a message. Ctrl-C
keeps what is finished. benches/method.py says what the numbers mean.
"""
import argparse
import json
import os
import pathlib
import platform
import subprocess
import sys
import time

import environment
from environment import ROOT, TARGET, say


def arguments():
    from suites import SUITES
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", default=os.environ.get("SUITE") or ",".join(SUITES),
                        help="suites by name, with commas [default: $SUITE or every suite]")
    parser.add_argument("--peers", default=os.environ.get("PEERS") or "",
                        help="peers by name, with commas, 'all' or 'none' [default: $PEERS or those of the suite]")
    parser.add_argument("--threads", help="thread counts, with commas [default: those of the suite]")
    parser.add_argument("--launches", type=int, default=3, help="how often every contestant is started [3]")
    parser.add_argument("--rounds", type=int, default=4, help="turns of every contestant in a launch [4]")
    parser.add_argument("--seconds", type=float, default=0.25, help="length of a turn [0.25]")
    parser.add_argument("--tilewright", default=str(ROOT / "target" / "release" / "tilewright"), help="program to measure")
    parser.add_argument("--against", action="append", default=[], metavar="NAME=PROGRAM", help="another build of tilewright")
    parser.add_argument("--target", help="compile for this target instead of the host's best")
    parser.add_argument("--output", type=pathlib.Path, default=TARGET, help="folder of the reports [target/bench]")
    parser.add_argument("words", nargs="*")
    options = parser.parse_args()
    options.suites = list(dict.fromkeys(options.suite.split(",")))
    for suite in options.suites:
        if suite not in SUITES:
            parser.error(f"no suite '{suite}'; there are {', '.join(SUITES)}")
    known = environment.names()
    options.peers = {"": None, "all": known, "none": []}.get(options.peers, options.peers.split(","))
    for peer in options.peers or []:
        if peer not in known:
            parser.error(f"no peer '{peer}'; there are {', '.join(known)}")
    try:
        options.threads = [int(t) for t in options.threads.split(",")] if options.threads else None
    except ValueError:
        parser.error(f"--threads {options.threads}: numbers with commas are wanted")
    if options.launches < 1 or options.rounds < 1 or not options.seconds > 0 or any(t < 1 for t in options.threads or []):
        parser.error("launches, rounds, seconds and threads must be positive")
    if not pathlib.Path(options.tilewright).is_file():
        parser.error(f"there is no {options.tilewright}; build it with: cargo build --release")
    return options


def peers_of(suite, options):
    from suites import SUITES
    return SUITES[suite]["peers"] if options.peers is None else options.peers


def measure(workload, threads, contestants, options, metric):
    """One row. The first contestant is the one that all others are compared with."""
    import method
    from contestants import Failure, difference
    row = {"name": workload["name"], "threads": threads, "contestants": {}, "skipped": {}, "ratios": {}, "disturbed": []}
    names = [c.name for c in contestants]
    turns, every = {name: [] for name in names}, {name: [] for name in names}
    prepare, memory, versions = ({name: [] for name in names} for _ in range(3))
    launches, rounds = {"latency_ms": (options.launches, options.rounds), "prepare_ms": (2 * options.launches - 1, 1)}.get(metric, (1, 1))
    load, cpu = method.Load(), 0.0
    begin = sum(os.times()[:2])
    for launch in range(launches):
        alive = {}
        try:
            for contestant in contestants:
                if contestant.name in row["skipped"]:
                    continue
                folder = TARGET / "outputs" / f"{workload['name']}.{contestant.name}"
                try:
                    alive[contestant.name] = contestant.start(workload, threads, folder)
                except Failure as failure:
                    if contestant.name == names[0] or launch > 0:
                        row["error"] = f"{contestant.name}: {failure}"
                        return row
                    row["skipped"][contestant.name] = str(failure)
            if launch == 0:
                ours = alive[names[0]].outputs() if len(alive) > 1 else None
                for contestant in contestants[1:]:
                    if contestant.name in alive:
                        gap = difference(ours, alive[contestant.name].outputs())
                        if isinstance(gap, str) or gap > contestant.tolerance:
                            gap = gap if isinstance(gap, str) else f"by {gap:.2g} of the largest value"
                            row["error"] = f"outputs of {names[0]} and {contestant.name} differ: {gap}; not timed"
                            return row
            for name in alive:
                turns[name].append([])
            for _ in range(rounds):
                for name, process in alive.items():
                    latencies = process.turn(options.seconds if metric == "latency_ms" else 0.01)
                    every[name] += latencies
                    turns[name][-1].append(method.quantile(latencies, 0.5))
            for name, process in alive.items():
                cpu += process.cpu_seconds()
                prepare[name].append(process.prepare_ms)
                memory[name].append(process.peak_memory())
                versions[name] = process.version
        except Failure as failure:
            row["error"] = f"a contestant ended while it was measured: {failure}"
            return row
        finally:
            for process in alive.values():
                process.close()
    taking_part = [name for name in names if turns[name]]
    turns = {name: turns[name] for name in taking_part}
    series = {"latency_ms": turns, "prepare_ms": {n: [[t] for t in prepare[n]] for n in taking_part},
              "memory_bytes": {n: [[b or 1 for b in memory[n]]] for n in taking_part}}[metric]
    for name in taking_part:
        row["contestants"][name] = {"version": versions[name], "latency_ms": method.summary(every[name]),
                                    "prepare_ms": method.summary(prepare[name]), "memory_bytes": memory[name][0]}
        if name != names[0]:
            row["ratios"][name] = method.ratio(series[name], series[names[0]])
    if metric == "latency_ms":
        others = load.others(cpu + sum(os.times()[:2]) - begin)
        row["disturbed"] = method.marks(others, method.drift(turns))
        detail = contestants[0].detail(workload, threads)
        row["detail"] = {key: detail[key] for key in ("target", "gflops", "peak_gflops", "flops", "least_bytes", "peak_memory_bytes", "kernels")}
        row["detail"]["gflops"] = detail["flops"] / row["contestants"][names[0]]["latency_ms"]["median"] / 1e6
    return row


def line(row, peers, metric):
    """A row as text."""
    label = f"{row['name']:24} {row['threads']}T"
    if "error" in row:
        return f"{label}  STOPPED  {row['error']}"
    unit = 1 / 2**20 if metric == "memory_bytes" else 1
    value = lambda c: (c[metric] if metric == "memory_bytes" else c[metric]["median"]) * unit
    text = f"{label} {value(row['contestants']['tilewright']):9.3f}"
    for peer in peers:
        if peer in row["ratios"]:
            r = row["ratios"][peer]
            text += f"  {peer} {value(row['contestants'][peer]):9.3f} x{r['ratio']:.2f} [{r['low']:.2f}, {r['high']:.2f}]"
        elif peer in row["skipped"]:
            text += f"  {peer} left out: {row['skipped'][peer][:60]}"
    return text + ("  DISTURBED" if row["disturbed"] else "")


def command_output(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, cwd=ROOT).stdout.strip()
    except OSError:
        return ""


def machine(options):
    cpu = pathlib.Path("/proc/cpuinfo")
    lines = cpu.read_text().splitlines() if cpu.exists() else []
    model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())
    limits = command_output(options.tilewright, "targets", "--measure", "--json", "--quiet")
    return {"processor": model, "cores": os.cpu_count(), "system": f"{platform.system()} {platform.machine()}",
            "rustc": command_output("rustc", "--version"), "revision": command_output("git", "rev-parse", "--short=12", "HEAD"),
            "changed": bool(command_output("git", "status", "--porcelain", "--untracked-files=no")),
            "limits": json.loads(limits) if limits.startswith("[") else []}


class Bar:
    """Progress with the remaining time; plain lines where tqdm is not installed."""

    def __init__(self, total):
        try:
            from tqdm import tqdm
            self.bar = tqdm(total=total, unit="row", file=sys.stderr, dynamic_ncols=True, disable=None)
        except ImportError:
            self.bar = None

    def say(self, text):
        (self.bar.write(text, file=sys.stdout) if self.bar else print(text))
        sys.stdout.flush()

    def step(self):
        if self.bar:
            self.bar.update()

    def close(self):
        if self.bar:
            self.bar.close()


def measured_before(options, machine):
    """The suites of an earlier run of the same revision on the same machine that are not measured again."""
    try:
        before = json.loads((options.output / "report.json").read_text())
        same = ("processor", "cores", "system", "rustc", "revision")
        if options.against or machine["changed"] or any(before["machine"][key] != machine[key] for key in (*same, "changed")):
            return []
        return [part for part in before["suites"] if part["suite"] not in options.suites]
    except (OSError, ValueError, KeyError):
        return []


def run(options, report, save):
    """Fills the report, row by row."""
    from contestants import Failure, Peer, Tilewright
    from suites import SUITES, Missing
    extra = ["--target", options.target] if options.target else []
    ours = [Tilewright("tilewright", options.tilewright, extra)]
    ours += [Tilewright(*pair.split("=", 1), extra) for pair in options.against]
    planned = []
    for suite in options.suites:
        chosen = [(name, make) for name, make in SUITES[suite]["rows"]() if not options.words or any(w in name for w in options.words)]
        planned.append((suite, chosen, options.threads or SUITES[suite]["threads"]))
    bar = Bar(sum(len(chosen) * len(threads) for _, chosen, threads in planned))
    try:
        for suite, chosen, thread_counts in planned:
            metric, peers = SUITES[suite].get("metric", "latency_ms"), peers_of(suite, options)
            part = {"suite": suite, "title": SUITES[suite]["title"], "metric": metric, "peers": [c.name for c in ours[1:]] + peers, "rows": []}
            report["suites"].append(part)
            bar.say(f"{SUITES[suite]['title']}: {'MiB' if metric == 'memory_bytes' else 'ms'}, and how many times as much the others take")
            for name, make in chosen:
                for threads in thread_counts:
                    try:
                        workload = {**make(), "tilewright": options.tilewright}
                    except (Missing, ImportError) as reason:
                        report["skipped"].append({"what": name, "why": str(reason)})
                        bar.say(f"{name:24} left out: {reason}")
                        bar.step()
                        continue
                    taking_part = ours + [peer for peer in map(Peer, peers) if peer.takes(workload)]
                    try:
                        row = measure(workload, threads, taking_part, options, metric)
                    except Failure as failure:
                        row = {"name": name, "threads": threads, "error": str(failure)}
                    part["rows"].append(row)
                    save()
                    bar.say(line(row, part["peers"], metric))
                    bar.step()
    finally:
        bar.close()


def main():
    options = arguments()
    TARGET.mkdir(parents=True, exist_ok=True)
    options.output.mkdir(parents=True, exist_ok=True)
    environment.enter(dict.fromkeys(peer for suite in options.suites for peer in peers_of(suite, options)))
    say("measuring what the processor can do")
    here = machine(options)
    report = {"date": time.strftime("%Y-%m-%d"), "machine": here, "suites": measured_before(options, here), "skipped": [], "interrupted": False,
              "method": {"launches": options.launches, "rounds": options.rounds, "seconds": options.seconds}}

    def save():
        part = options.output / "report.json.part"
        part.write_text(json.dumps(report, indent=1) + "\n")
        part.rename(options.output / "report.json")

    try:
        run(options, report, save)
    except KeyboardInterrupt:
        report["interrupted"] = True
        say("interrupted; what is finished is kept")
    save()
    from report import write
    for path in write(report, options.output):
        print(f"written: {os.path.relpath(path)}")
    rows = [row for part in report["suites"] for row in part["rows"]]
    disturbed = sum(bool(row.get("disturbed")) for row in rows)
    if disturbed:
        say(f"the machine was not quiet during {disturbed} of {len(rows)} rows; they are marked")
    sys.exit(130 if report["interrupted"] else any("error" in row for row in rows))


if __name__ == "__main__":
    try:
        main()
    except OSError as error:
        sys.exit(f"bench: {error.filename or 'the report'}: {error.strerror}")
    except KeyboardInterrupt:
        sys.exit("bench: interrupted before the first row")
