"""From latencies to what is claimed: quantiles, ratios with intervals, and whether the machine was quiet.

A row launches every contestant anew `launches` times, and each launch goes through `rounds` in which the contestants take turns
(A B C A B C ...), so that a drift of the clock meets all of them. On a shared machine the speed of a core changes several times in
a second and not that of all cores at once: turns are short, and contestants of one thread are bound to one core, another in the next launch.
Between their turns they are stopped. A turn's time is its median latency. Of a launch the ratio of two contestants is the median over its
rounds of the ratio of their turns; of the row it is the geometric mean over the launches.

The interval says where the ratio of another run of the row is expected, in 95 of 100 cases. What differs from one start of a
program to the next (where its memory lies, how its threads are placed) is mostly more than what differs within one, so whole
launches are drawn with replacement, and of each its rounds (a two-stage bootstrap, Davison and Hinkley 1997, 3.8): a few launches
may be alike by chance. Few launches make such a distribution too narrow: it is stretched as Student's t is against the normal,
and by the square root of 2, because two runs scatter both.
benches/tests/test_method.py holds that to simulated noise, agree.py to two reports.

At the end the rows with the widest intervals have further launches while there is time (--patience), as long as an interval reaches further
than WIDE to each side.
"""
import math
import os
import pathlib
import random
import statistics

INTERVAL = "rows that take long have fewer launches; the interval is where 95 of 100 repetitions are expected, by a bootstrap over launches and their rounds"
RESAMPLES = 1000
# Seconds of a row above which it has fewer launches.
ROW_SECONDS = 12.0
# Of Student's t, 97.5 %, for 1, 2, ... degrees of freedom; of the normal distribution at the end.
STUDENT = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131]
NORMAL = 1.960
# Share of the machine that others may take, and spread of what all contestants have in common, before a row is marked.
QUIET_SHARE = 0.05
QUIET_DRIFT = 0.10
# Half width of an interval above which its row has further launches: number at once, and limit as a multiple of the first number.
WIDE = 0.04
FURTHER = 2
MOST = 3


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


def one_limit(rows):
    """Holds all rows of a suite that have one arithmetic and one number of threads against one limit: the median of those that were measured
    between the runs of each row. The speed of the machine at one row's moment is then no part of the row's share."""
    kinds = {}
    for row in rows:
        detail = row.get("detail")
        if detail and "row_peak_gflops" in detail:
            kinds.setdefault((row["threads"], detail["target"], detail.get("peak_dtype")), []).append(detail)
    for details in kinds.values():
        limit = statistics.median(detail["row_peak_gflops"] for detail in details)
        for detail in details:
            detail["peak_gflops"] = limit


def stretch(launches):
    """How much wider than the bootstrap's an interval is that holds the ratio of another run."""
    student = STUDENT[launches - 2] if launches - 2 < len(STUDENT) else NORMAL
    return student / NORMAL * math.sqrt(2)


def ratio(theirs, ours, seed=0):
    """Their time over ours, of turns[launch][round], with its interval, which is the ratio alone where there is one launch."""
    rounds = [[math.log(t / o) for t, o in zip(*launch)] for launch in zip(theirs, ours)]
    middle = statistics.fmean(map(statistics.median, rounds))
    if len(rounds) == 1:
        return {"ratio": math.exp(middle), "low": math.exp(middle), "high": math.exp(middle)}
    generator = random.Random(seed)
    draw = lambda values: generator.choices(values, k=len(values))
    means = [statistics.fmean(statistics.median(draw(launch)) for launch in draw(rounds)) for _ in range(RESAMPLES)]
    low, high = ((quantile(means, share) - middle) * stretch(len(rounds)) for share in (0.025, 0.975))
    return {"ratio": math.exp(middle), "low": math.exp(middle + min(low, 0)), "high": math.exp(middle + max(high, 0))}


def rounds_of(slowest_ms, rounds, seconds):
    """Rounds of a launch whose slowest run takes this long: as many as fit in the time of all turns; 0 when not one does."""
    fit = int(1e3 * rounds * seconds / slowest_ms) if slowest_ms > 1e3 * seconds else rounds
    return min(rounds, fit)


def launches_of(seconds, launches, long):
    """Launches of a row whose first one took this long: fewer where they take more than ROW_SECONDS, but three, or two of runs that are long
    themselves."""
    return min(launches, max(2 if long else 3, int(ROW_SECONDS / max(seconds, 1e-3))))


def numbers(array):
    """The array itself; of two bytes without a type, which are bf16, the numbers in f32."""
    if array.dtype != "V2":
        return array
    return (array.view("u2").astype("u4") << 16).view("f4")


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
    """Load by other processes during a measurement, from the kernel's counters; 0 where there are none."""

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
        """Seconds of all cores that they used since the start, given what our processes used, and seconds of all cores."""
        now = self.machine()
        if now is None or self.start is None:
            return 0.0, 0.0
        return max(0.0, now[0] - self.start[0] - own_seconds), now[1] - self.start[1]


def width(ratios):
    """How far the widest of these intervals reaches to each side, as a share of the ratio."""
    return max((math.log(r["high"] / r["low"]) / 2 for r in ratios), default=0.0)


def marks(others, drift_share):
    """Lists the disturbances of a row."""
    found = []
    if others > QUIET_SHARE:
        found.append(f"other programs used {100 * others:.0f} % of the machine")
    if drift_share > QUIET_DRIFT:
        found.append(f"the speed of all contestants drifted by {100 * drift_share:.0f} %")
    return found
