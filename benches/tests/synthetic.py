"""A report with every suite, made of seeded noise around known ratios."""
import math
import pathlib
import random
import sys

BENCHES = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(BENCHES))
import method  # noqa: E402
from suites import SUITES  # noqa: E402

LAUNCHES, ROUNDS = 5, 2


def turns(generator, ms, launch_noise=0.01, turn_noise=0.005):
    """[launch][round] with a spread from launch to launch, and a smaller one within."""
    def launch():
        own = ms * math.exp(generator.gauss(0, launch_noise))
        return [own * math.exp(generator.gauss(0, turn_noise)) for _ in range(ROUNDS)]
    return [launch() for _ in range(LAUNCHES)]


def contestant(version, times):
    flat = [ms for launch in times for ms in launch]
    return {"version": version, "latency_ms": method.summary(flat), "turns_ms": times, "prepare_ms": method.summary([40.0, 41.0, 43.0]),
            "memory_bytes": 50 << 20}


def row(generator, suite, name, threads, peers):
    ms = math.exp(len(name) % 7 - 1) / threads ** 0.8
    ours = turns(generator, ms)
    made = {"name": name, "threads": threads, "contestants": {"tilewright": contestant("0.1.0", ours)}, "skipped": {}, "ratios": {}, "disturbed": [],
            "detail": {"target": "x86-64-avx512", "gflops": 120.0 * threads, "peak_gflops": 200.0 * threads, "flops": int(ms * 12e7) * threads,
                       "least_bytes": int(ms * 1e6), "peak_memory_bytes": 1 << 20, "stages": [{"name": "schedule", "ms": generator.uniform(1, 30)}],
                       "kernel_count": 1, "kernels": [{"name": name, "us": ms * 1e3, "predicted_us": ms * 800, "gflops": 120.0, "tensorized": True, "opaque": False}]}}
    for peer in peers:
        theirs = turns(generator, ms * generator.choice([0.8, 1.0, 1.2, 2.0]))
        made["contestants"][peer] = contestant(f"{peer} 1.0", theirs)
        made["ratios"][peer] = method.ratio(theirs, ours)
    return made


def report(seed=0, rows=6, suites=tuple(SUITES)):
    """Rows of these suites; the names are the suites' own where they can be listed without other packages."""
    generator = random.Random(seed)
    parts = []
    for suite in suites:
        spec = SUITES[suite]
        names = [name for name, _ in spec["rows"]()][:rows]
        others = [*spec.get("variants", {}), *spec["peers"]]
        parts.append({"suite": suite, "title": spec["title"], "metric": spec.get("metric", "latency_ms"), "peers": others,
                      "method": {"launches": LAUNCHES, "rounds": ROUNDS, "seconds": 0.25, "interval": method.INTERVAL},
                      "rows": [row(generator, suite, name, threads, others) for name in names for threads in spec["threads"]]})
    level = lambda name, rate: {"name": name, "bytes": 1 << 15, "gb_per_second": rate}
    limits = {"target": "x86-64-avx512", "clock_ghz": 3.0, "f32": {"from_registers": 200.0, "from_l1": 190.0},
              "f64": {"from_registers": 100.0, "from_l1": 95.0}, "bandwidth": [level("L1", 350.0), level("L2", 140.0), level("L3", 30.0), level("memory", 16.0)]}
    return {"date": "2026-01-01", "suites": parts, "skipped": [{"what": "networks, magika_v3_3", "why": "not fetched (make models)"}], "interrupted": False,
            "machine": {"processor": "a processor", "cores": 2, "system": "Linux x86_64", "rustc": "rustc 1.88.0", "revision": "0123456789ab",
                        "changed": False, "python": "3.11.0", "limits": [limits]}}
