"""One workload, measured for some thread counts: contestants launched, outputs compared, then turns (benches/method.py says why).

A contestant that cannot start, crashes or gives no answer leaves its row, by name and with the reason. The row stops where it is
tilewright, the first contestant, or where outputs differ. One that runs on one thread whatever it is asked for takes part once,
beside all thread counts.
"""
import math
import os
import time

import method
from contestants import Failure, cores, difference, on_core
from environment import TARGET


# Outputs may differ by this many times what other roundings change in a peer's own.
SPREADS = 10

# Where a peer is farther from the workload as it is written than the tolerance, outputs may be this many times as far from that.
FARTHER = 2


class Log:
    """Results of the launches of one contestant on some threads."""

    def __init__(self):
        self.turns, self.latencies, self.prepare, self.memory, self.version = [], [], [], [], ""

    def series(self, metric):
        """Values that ratios are computed from: [launch][turn]."""
        return {"latency_ms": self.turns, "prepare_ms": [[ms] for ms in self.prepare], "memory_bytes": [[b or 1] for b in self.memory]}[metric]


class Measurement:
    """Rows of a workload under way, one for each thread count. The first contestant is the one that all others are compared with. A seat is
    (name, threads)."""

    def __init__(self, workload, counts, contestants, options, metric):
        self.workload, self.options, self.metric = workload, options, metric
        self.contestants, self.first = {c.name: c for c in contestants}, contestants[0].name
        self.rows = {threads: {"name": workload["name"], "threads": threads, "contestants": {}, "skipped": {}, "ratios": {}, "disturbed": [], "notes": []}
                     for threads in counts}
        self.logs = {(c.name, threads): Log() for threads in counts for c in contestants if threads == counts[0] or not c.serial}
        self.launches, self.seconds = 0, 0.0
        # Of all cores: what others used, and how long it was.
        self.others = [0.0, 0.0]

    def seat(self, name, threads):
        """Where a contestant sits for the row of a thread count."""
        return (name, min(self.rows) if self.contestants[name].serial else threads)

    def rows_of(self, seat):
        return [row for threads, row in self.rows.items() if self.seat(seat[0], threads) == seat]

    def leave(self, seat, why):
        """This contestant is measured no longer; nor is anybody for a row without the first."""
        for row in self.rows_of(seat):
            if seat[0] == self.first:
                row.setdefault("error", f"{seat[0]}: {why}")
            else:
                row["skipped"][seat[0]] = why
        if seat[0] != self.first:
            self.logs.pop(seat, None)
        self.drop_idle()

    def drop_idle(self):
        for seat in list(self.logs):
            if all("error" in row for row in self.rows_of(seat)):
                del self.logs[seat]

    def start(self, alive):
        """Starts all; those of one thread on the same core, so that what slows it down slows them all."""
        core = cores()[self.launches % len(cores())]
        for seat in list(self.logs):
            if seat in self.logs:
                name, threads = seat
                folder = TARGET / "outputs" / f"{self.workload['name']}.{name}.{threads}"
                try:
                    with on_core(core if threads == 1 and self.metric == "latency_ms" else None):
                        alive[seat] = self.contestants[name].start(self.workload, threads, folder)
                except Failure as failure:
                    self.leave(seat, str(failure))

    def gap(self, alive, row, name):
        """How the outputs of a contestant differ from those of the first, in words; nothing where they agree."""
        process = alive[self.seat(name, row["threads"])]
        gap = difference(alive[(self.first, row["threads"])].outputs(), process.outputs(), self.workload.get("rounded", False))
        if isinstance(gap, str):
            return gap
        tolerance = max(self.contestants[name].tolerance, self.workload.get("tolerance", 0))
        if not gap <= tolerance and self.contestants[name].has_other:
            spread = self.spread(process, name, row["threads"])
            if gap <= SPREADS * spread:
                row["notes"].append(f"ill-conditioned: {name} with and without fused multiply-adds differs by {spread:.2g} of the largest value, "
                                    f"{self.first} from it by {gap:.2g}")
                return ""
        if gap == math.inf:
            return "in integers, or in where they are finite"
        return "" if gap <= tolerance else f"by {gap:.2g} of the largest value"

    def spread(self, process, name, threads):
        """Difference that other roundings make in the outputs of a contestant."""
        folder = TARGET / "outputs" / f"{self.workload['name']}.{name}.{threads}.other"
        other = self.contestants[name].start(self.workload, threads, folder, "Other")
        try:
            spread = difference(process.outputs(), other.outputs())
        finally:
            other.close()
        return 0.0 if isinstance(spread, str) else spread

    def distances(self, alive, row, seats):
        """Of each contestant's outputs from those of the workload as it is written, by the peer that evaluates it so; and the name of this peer.
        None where there is no such peer."""
        name = next((name for name, seat in seats.items() if self.contestants[name].has_definition and seat in alive and seat in self.logs), None)
        if name is None:
            return None
        folder = TARGET / "outputs" / f"{self.workload['name']}.{name}.{row['threads']}.definition"
        written = self.contestants[name].start(self.workload, row["threads"], folder, "Definition")
        try:
            outputs = written.outputs()
            there = {self.first: (self.first, row["threads"]), **seats}
            return {who: difference(outputs, alive[seat].outputs()) for who, seat in there.items() if seat in alive and seat in self.logs}, name
        finally:
            written.close()

    def by_definition(self, distances, name):
        """The contestants whose outputs are about as far from the workload as it is written as those of the peer that evaluates it so, which is
        farther from it than the tolerance; and a sentence with these distances. None where this peer is nearer."""
        own = distances[name]
        tolerance = max(self.contestants[name].tolerance, self.workload.get("tolerance", 0))
        if isinstance(own, str) or not tolerance < own < math.inf:
            return None
        near = [who for who, distance in distances.items() if not isinstance(distance, str) and distance <= FARTHER * own]
        said = ", ".join(f"{who} by {distances[who]:.2g}" for who in near)
        return near, f"ill-conditioned: outputs differ from those of the graph as it is written, without optimizations, in parts of the largest value: {said}"

    def compare_outputs(self, alive):
        """Stops the rows in which no other agrees with the first; one that differs where another agrees leaves by itself."""
        for row in list(self.rows.values()):
            seats = {name: self.seat(name, row["threads"]) for name, c in self.contestants.items() if name != self.first and c.compared}
            if (self.first, row["threads"]) not in alive:
                continue
            gaps = {}
            for name, seat in seats.items():
                if seat in alive and seat in self.logs:
                    try:
                        gaps[name] = self.gap(alive, row, name)
                    except Failure as failure:
                        self.leave(seat, str(failure))
            differing = {name: gap for name, gap in gaps.items() if gap}
            try:
                found = self.distances(alive, row, seats) if differing or self.workload.get("judged") else None
            except Failure:
                found = None
            judged = self.by_definition(*found) if found and differing else None
            if found and self.workload.get("judged"):
                row["distances"] = {who: distance for who, distance in found[0].items() if not isinstance(distance, str) and distance < math.inf}
            if judged and self.first in judged[0]:
                row["notes"].append(judged[1])
                differing = {name: gap for name, gap in differing.items() if name not in judged[0]}
                gaps = {self.first: "", **gaps}
            if differing and len(differing) == len(gaps):
                said = "; ".join(f"from {name}'s {gap}" for name, gap in differing.items())
                row["error"] = f"outputs of {self.first} differ {said}; not timed"
            for name, gap in differing.items() if len(differing) < len(gaps) else []:
                self.leave(seats[name], f"its outputs differ from all others: {gap}; not timed")
        self.drop_idle()

    def launch(self, alive):
        """One launch of all; returns the rounds it had."""
        self.start(alive)
        if self.launches == 0:
            self.compare_outputs(alive)
        alive_now = lambda: [(seat, process) for seat, process in alive.items() if seat in self.logs]
        slowest = max((process.first_ms for _, process in alive_now()), default=0.0)
        rounds = method.rounds_of(slowest, self.options.rounds if self.metric == "latency_ms" else 1, self.options.seconds)
        for seat, process in alive_now():
            self.logs[seat].turns.append([])
        for _ in range(max(1, rounds)):
            for seat, process in alive_now():
                if seat not in self.logs:
                    continue
                try:
                    # A run that takes as long as all turns of a launch is not repeated.
                    latencies = [process.first_ms] if rounds == 0 and process.first_ms >= 1e3 * self.options.seconds else \
                        process.turn(self.options.seconds if self.metric == "latency_ms" else 0.01)
                except Failure as failure:
                    self.leave(seat, f"ended while it was measured: {failure}")
                    continue
                log = self.logs[seat]
                log.latencies += latencies
                log.turns[-1].append(method.quantile(latencies, 0.5))
        for seat, process in alive_now():
            log = self.logs[seat]
            log.prepare.append(process.prepare_ms)
            log.memory.append(process.peak_memory() if self.contestants[seat[0]].in_process else None)
            log.version = process.version
        return rounds

    def run(self, launches=None):
        """As many launches, beside those before; as many as the row should have where no number is given."""
        wanted = launches or self.options.launches
        while wanted:
            load, own, started, alive = method.Load(), -sum(os.times()[:2]), time.monotonic(), {}
            try:
                long = self.launch(alive) == 0
            finally:
                own += sum(process.cpu_seconds() for process in alive.values()) + sum(os.times()[:2])
                for process in alive.values():
                    process.close()
            self.others = [sum(both) for both in zip(self.others, load.others(own))]
            self.seconds = time.monotonic() - started
            if self.launches == 0 and launches is None:
                wanted = method.launches_of(self.seconds, wanted, long)
            self.launches += 1
            wanted -= 1
        for row in self.rows.values():
            if "error" not in row:
                self.finish(row)
        return list(self.rows.values())

    def width(self):
        """Of the widest interval."""
        return max((method.width(row["ratios"].values()) for row in self.rows.values() if "error" not in row), default=0.0)

    def finish(self, row):
        """Fills a row from the logs."""
        row["contestants"], row["ratios"] = {}, {}
        seats = {name: self.seat(name, row["threads"]) for name in self.contestants}
        logs = {name: self.logs[seat] for name, seat in seats.items() if seat in self.logs}
        ours = logs[self.first]
        for name, log in logs.items():
            row["contestants"][name] = {"version": log.version, "latency_ms": method.summary(log.latencies), "turns_ms": log.turns,
                                        "prepare_ms": method.summary(log.prepare), "memory_bytes": log.memory[0]}
            if name != self.first:
                row["ratios"][name] = method.ratio(log.series(self.metric), ours.series(self.metric))
        if self.metric == "latency_ms":
            drift = method.drift({name: log.turns for name, log in logs.items()})
            used, whole = self.others
            row["disturbed"] = method.marks(used / whole if whole else 0.0, drift)
            if "detail" not in row:
                detail = self.contestants[self.first].detail(self.workload, row["threads"])
                row["detail"] = {key: detail[key] for key in ("target", "peak_gflops", "peak_dtype", "flops", "least_bytes", "peak_memory_bytes", "stages", "kernels", "algorithms")
                                 if key in detail}
                row["detail"]["kernel_count"] = len(detail["kernels"])
                row["detail"]["row_peak_gflops"] = detail["peak_gflops"]
            row["detail"]["gflops"] = row["detail"]["flops"] / row["contestants"][self.first]["latency_ms"]["median"] / 1e6
