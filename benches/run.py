#!/usr/bin/env python3
"""Measure tilewright against its peers, in turn, on the same inputs; write target/bench/report.{json,md,html}.

Suites: networks, int8, architectures, operators, algorithms, products, gemm, polybench, programs, loops, quotients, schedules, compile, memory; dynamic dimensions and
predictions have programs of their own, benches/shapes.py and benches/model.py. WORD selects rows by a part of their name. What cannot be measured here is named and left
out; a contestant whose outputs differ from tilewright's ends its row with a message. Ctrl-C keeps what is finished.
benches/method.py says what the numbers mean.
"""
import argparse
import json
import os
import pathlib
import platform
import signal
import subprocess
import sys
import time

if sys.version_info < (3, 9):
    sys.exit("bench: Python 3.9 or newer is needed; this is %d.%d: choose another with PYTHON=" % sys.version_info[:2])

import algorithms  # noqa: E402
import environment  # noqa: E402
from environment import BUILT, ROOT, TARGET, say  # noqa: E402


def wrong(message):
    """Wrong use ends here."""
    say(message)
    sys.exit(2)


def arguments():
    from suites import SUITES
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", default=os.environ.get("SUITE") or ",".join(suite for suite in SUITES if not variants_of(suite)),
                        help="suites by name, with commas [default: $SUITE or every suite without variants of tilewright, that is all but algorithms, products and quotients]")
    parser.add_argument("--peers", default=os.environ.get("PEERS") or "",
                        help="peers by name, with commas, 'all' or 'none' [default: $PEERS or those of the suite]")
    parser.add_argument("--threads", default=os.environ.get("THREADS"),
                        help="thread counts, with commas [default: $THREADS or those of the suite]")
    parser.add_argument("--launches", type=int, default=5, help="how often every contestant is started [5]")
    parser.add_argument("--rounds", type=int, default=5, help="turns of every contestant in a launch [5]")
    parser.add_argument("--seconds", type=float, default=0.1, help="length of a turn [0.1]")
    parser.add_argument("--patience", type=float, default=90, help="how long rows with wide intervals may be measured on at the end, in seconds [90]")
    parser.add_argument("--tilewright", default=str(BUILT / "release" / "tilewright"), help="program to measure")
    parser.add_argument("--against", action="append", default=[], metavar="NAME=PROGRAM", help="another build of tilewright")
    parser.add_argument("--target", help="compile for this target instead of the host's best")
    parser.add_argument("--output", type=pathlib.Path, default=TARGET, help="folder of the reports [target/bench]")
    parser.add_argument("--check", action="store_true", help="only say whether suites, peers and rows exist; needs nothing built")
    parser.add_argument("words", nargs="*", metavar="WORD", help="only rows with one of these in their names [default: $ROWS or all]")
    parser.error = wrong
    options = parser.parse_args()
    options.words = options.words or [word for word in os.environ.get("ROWS", "").replace(",", " ").split()]
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
    if not options.patience >= 0:
        parser.error("--patience must not be negative")
    pairs = [pair.partition("=")[::2] for pair in options.against]
    for name, program in pairs:
        if not name or not program or name in ["tilewright", *known] or [n for n, _ in pairs].count(name) > 1:
            parser.error(f"--against {name}={program}: NAME=PROGRAM is wanted, with a name that no other contestant has")
    options.against = dict(pairs)
    for program in [options.tilewright, *options.against.values()] if not options.check else []:
        if not os.access(program, os.X_OK) or not pathlib.Path(program).is_file():
            parser.error(f"there is no program {program}; build it with: cargo build --release")
    return options


def peers_of(suite, options):
    from suites import SUITES
    return SUITES[suite]["peers"] if options.peers is None else options.peers


def variants_of(suite):
    from suites import SUITES
    return SUITES[suite].get("variants", {})


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
    if algorithms.has_choice(row):
        text += f"  {algorithms.choice_text(row)}"
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
    return {"processor": model, "python": platform.python_version(), "cores": os.cpu_count(), "system": f"{platform.system()} {platform.machine()}",
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
    """The suites of an earlier run of the same revision on the same machine."""
    try:
        before = json.loads((options.output / "report.json").read_text())
        same = ("processor", "cores", "system", "rustc", "revision")
        if options.against or machine["changed"] or any(before["machine"][key] != machine[key] for key in (*same, "changed")):
            return []
        return [part for part in before["suites"] if "method" in part]
    except (OSError, ValueError, KeyError):
        return []


def plan(options):
    """(suite, rows, groups of thread counts that are measured together) for each suite; wrong use when words choose nothing."""
    from contestants import Peer
    from suites import SUITES
    planned = []
    for suite in options.suites:
        every = SUITES[suite]["rows"]()
        chosen = [(name, make) for name, make in every if not options.words or any(w in name for w in options.words)]
        counts = options.threads or SUITES[suite]["threads"]
        together = any(Peer(peer).serial for peer in peers_of(suite, options))
        planned.append((suite, chosen, [counts] if together else [[count] for count in counts]))
    if not any(chosen for _, chosen, _ in planned):
        names = [name for suite in options.suites for name, _ in SUITES[suite]["rows"]()]
        wrong(f"no row has {' or '.join(options.words)} in its name; there are {', '.join(dict.fromkeys(names))}")
    return planned


def place(part, row):
    """Puts a row where an earlier one of its name and threads was, or at the end."""
    at = [i for i, old in enumerate(part["rows"]) if (old["name"], old["threads"]) == (row["name"], row["threads"])]
    first = at[0] if at else len(part["rows"])
    part["rows"][first:first + 1] = [row]


def part_of(report, suite, metric, names, options):
    """The part of the report for a suite: an earlier one where some of its rows are measured again in the same way."""
    from suites import SUITES
    how = method_of(options)
    for part in report["suites"]:
        if part["suite"] == suite and options.words and part["method"] == how:
            part["peers"] = list(dict.fromkeys(part["peers"] + names))
            return part
    report["suites"] = [part for part in report["suites"] if part["suite"] != suite]
    part = {"suite": suite, "title": SUITES[suite]["title"], "metric": metric, "method": how, "peers": names, "rows": []}
    report["suites"].append(part)
    report["suites"].sort(key=lambda part: list(SUITES).index(part["suite"]))
    return part


def method_of(options):
    import method
    return {"launches": options.launches, "rounds": options.rounds, "seconds": options.seconds, "interval": method.INTERVAL}


class Run:
    """Fills the report, row by row."""

    def __init__(self, options, report, planned, save):
        from contestants import Tilewright
        extra = ["--target", options.target] if options.target else []
        self.ours = [Tilewright("tilewright", options.tilewright, extra)]
        self.ours += [Tilewright(name, program, extra) for name, program in options.against.items()]
        self.options, self.report, self.planned, self.save = options, report, planned, save
        self.bar = Bar(sum(len(chosen) * len(groups) for _, chosen, groups in planned))

    def run(self):
        from suites import SUITES
        done = []
        try:
            for suite, chosen, groups in self.planned:
                metric, peers = SUITES[suite].get("metric", "latency_ms"), peers_of(suite, self.options)
                part = part_of(self.report, suite, metric, [c.name for c in self.ours[1:]] + [*variants_of(suite), *peers], self.options)
                self.bar.say(f"{part['title']}: {'MiB' if metric == 'memory_bytes' else 'ms'}, and how many times as much the others take")
                for name, make in chosen:
                    for counts in groups:
                        measurement = self.begin(part, name, make, counts, peers)
                        if measurement:
                            self.keep(part, measurement)
                            done.append((part, measurement))
                        self.bar.step()
            self.go_on(done)
            for part in self.report["suites"]:
                for text in algorithms.lines(part):
                    self.bar.say(text)
        finally:
            self.bar.close()

    def begin(self, part, name, make, counts, peers):
        """The measurement of a workload; none where it cannot be made here."""
        from contestants import Peer
        from measure import Measurement
        from suites import Missing
        try:
            workload = {**make(), "tilewright": self.options.tilewright}
        except (Missing, ImportError) as reason:
            self.report["skipped"].append({"what": f"{part['suite']}, {name}", "why": str(reason)})
            self.bar.say(f"{name:24} left out: {reason}")
            return None
        variants = [self.variant(key, extra) for key, extra in variants_of(part["suite"]).items()]
        taking_part = self.ours + variants + [peer for peer in map(Peer, peers) if peer.takes(workload)]
        return Measurement(workload, counts, taking_part, self.options, part["metric"])

    def variant(self, name, extra):
        """The build that is measured, with further options."""
        from contestants import Tilewright
        made = Tilewright(name, self.options.tilewright, [*self.ours[0].extra, *extra])
        # Another algorithm may round as much as the bound of its error allows.
        made.tolerance = algorithms.TOLERANCE
        return made

    def keep(self, part, measurement, launches=None):
        """The rows after so many launches."""
        import method
        from contestants import Failure
        try:
            rows = measurement.run(launches)
        except Failure as failure:
            rows = [{**row, "error": str(failure)} for row in measurement.rows.values()]
        for row in rows:
            place(part, row)
            self.bar.say(line(row, part["peers"], part["metric"]))
        method.one_limit(part["rows"])
        self.save()

    def go_on(self, done):
        """Further launches for the rows with the widest intervals, while there is time."""
        import method
        end = time.monotonic() + self.options.patience
        while True:
            left = [(part, m) for part, m in done if m.width() > method.WIDE and m.launches < method.MOST * self.options.launches
                    and method.FURTHER * m.seconds <= end - time.monotonic()]
            if not left:
                return
            self.keep(*max(left, key=lambda pair: pair[1].width()), method.FURTHER)


def main():
    options = arguments()
    planned = plan(options)
    if options.check:
        return
    # To be told to end is to be interrupted: what is finished is kept.
    for told in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(told, signal.default_int_handler)
    TARGET.mkdir(parents=True, exist_ok=True)
    options.output.mkdir(parents=True, exist_ok=True)
    environment.enter(dict.fromkeys(peer for suite in options.suites for peer in peers_of(suite, options)))
    say("measuring the limits of this processor")
    here = machine(options)
    report = {"date": time.strftime("%Y-%m-%d"), "machine": here, "suites": measured_before(options, here), "skipped": [], "interrupted": False}

    def save():
        part = options.output / "report.json.part"
        part.write_text(json.dumps(report, indent=1) + "\n")
        part.rename(options.output / "report.json")

    try:
        Run(options, report, planned, save).run()
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
    stopped = [f"{row['name']} {row['threads']}T" for row in rows if "error" in row]
    if stopped:
        say(f"{len(stopped)} of {len(rows)} rows were stopped: {', '.join(stopped)}")
    sys.exit(130 if report["interrupted"] else 1 if stopped else 0)


if __name__ == "__main__":
    try:
        main()
    except OSError as error:
        sys.exit(f"bench: {error.filename or 'a file cannot be written'}: {error.strerror or error}")
    except KeyboardInterrupt:
        sys.exit("bench: interrupted")
