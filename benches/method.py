"""From latencies to what is claimed: quantiles, ratios with intervals, and whether the machine was quiet.

A row launches every contestant anew `launches` times, and each launch goes through `rounds` in which the contestants take turns
(A B C A B C ...), so that a drift of the clock meets all of them. A turn's time is its median latency. The ratio of two
contestants is the median, over all turns, of the ratio of their times in the same round; its interval is the middle 95 % of that
median over resamples, launches first and then the rounds of each (bootstrap with two levels, Davison and Hinkley 1997, 3.8):
what differs from one start of a program to the next counts, and not just what differs within one.
"""
import os
import pathlib
import random
import statistics

RESAMPLES = 1000
# Share of the machine that others may take, and spread of what all contestants have in common, before a row is marked.
QUIET_SHARE = 0.05
QUIET_DRIFT = 0.10


def quantile(values, share):
    values = sorted(values)
    position = share * (len(values) - 1)
    low = int(position)
    high = min(low + 1, len(values) - 1)
    return values[low] + (values[high] - values[low]) * (position - low)


def summary(latencies):
    """Of all latencies in ms."""
    return {"min": min(latencies), "median": quantile(latencies, 0.5), "q1": quantile(latencies, 0.25),
            "q3": quantile(latencies, 0.75), "runs": len(latencies)}


def ratio(theirs, ours, seed=0):
    """Their time over ours, of turns[launch][round]: the median with its interval."""
    pairs = [[t / o for t, o in zip(*launch)] for launch in zip(theirs, ours)]
    flat = [value for launch in pairs for value in launch]
    generator, medians = random.Random(seed), []
    for _ in range(RESAMPLES):
        drawn = []
        for launch in generator.choices(pairs, k=len(pairs)):
            drawn += generator.choices(launch, k=len(launch))
        medians.append(statistics.median(drawn))
    return {"ratio": statistics.median(flat), "low": quantile(medians, 0.025), "high": quantile(medians, 0.975)}


def distance(ours, theirs):
    """Largest difference of two arrays of one shape as a share of the largest value; infinite where integers differ or one is
    finite and the other is not."""
    import numpy
    if ours.dtype.kind in "iub" and theirs.dtype.kind in "iub":
        return 0.0 if numpy.array_equal(ours, theirs) else numpy.inf
    finite = numpy.isfinite(theirs)
    if not numpy.array_equal(numpy.isfinite(ours), finite):
        return numpy.inf
    scale = numpy.abs(theirs[finite].astype(numpy.float64)).max(initial=0.0)
    worst = numpy.abs(ours[finite].astype(numpy.float64) - theirs[finite]).max(initial=0.0)
    return float(worst / scale if scale > 0 else worst)


def drift(turns):
    """Spread of the speed that all contestants of a row share: turns[contestant][launch][round]."""
    factors = []
    flat = [[time for launch in launches for time in launch] for launches in turns.values()]
    centers = [statistics.median(times) for times in flat]
    for times in zip(*flat):
        factors.append(statistics.geometric_mean([time / center for time, center in zip(times, centers)]))
    return quantile(factors, 0.9) / quantile(factors, 0.1) - 1 if len(factors) > 1 else 0.0


class Load:
    """What others compute on this machine while we measure, from the kernel's counters; nothing where there are none."""

    def __init__(self):
        self.start = self.machine()

    @staticmethod
    def machine():
        """Busy and all seconds of all cores."""
        try:
            fields = [int(f) for f in pathlib.Path("/proc/stat").read_text().split("\n")[0].split()[1:]]
        except OSError:
            return None
        idle = fields[3] + fields[4]
        tick = os.sysconf("SC_CLK_TCK")
        return (sum(fields[:8]) - idle) / tick, sum(fields[:8]) / tick

    def others(self, own_seconds):
        """Their share of the machine since the start, given what our processes used."""
        now = self.machine()
        if now is None or now[1] <= self.start[1]:
            return 0.0
        return max(0.0, (now[0] - self.start[0] - own_seconds) / (now[1] - self.start[1]))


def marks(others, drift_share):
    """What disturbed a row, in words."""
    found = []
    if others > QUIET_SHARE:
        found.append(f"other programs used {100 * others:.0f} % of the machine")
    if drift_share > QUIET_DRIFT:
        found.append(f"the speed of all contestants drifted by {100 * drift_share:.0f} %")
    return found
