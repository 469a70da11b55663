"""The figures of the report, by matplotlib, as SVG text. Shades and marks differ in lightness and shape: they print in grey."""
import io

import matplotlib
from report import measured, typical

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402

plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "tilewright", "font.size": 10, "font.family": "sans-serif",
                     "axes.spines.top": False, "axes.spines.right": False})
SHADES = ["#08306b", "#6baed6", "#d9a441", "#444444", "#b0b0b0", "#7b3294", "#c2a5cf", "#008837", "#a6dba0"]
MARKS = "osD^vP*X<"
WORD = {"latency_ms": "time", "prepare_ms": "compile time", "memory_bytes": "memory"}


def svg(figure):
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)
    text = buffer.getvalue()
    return text[text.index("<svg"):]


def ratios(part):
    """A bar for each row and peer: how many times as much the peer takes."""
    rows = [row for row in measured(part) if row["ratios"]]
    if not rows:
        return None
    peers = [peer for peer in part["peers"] if any(peer in row["ratios"] for row in rows)]
    height = 0.8 / len(peers)
    figure, axes = plt.subplots(figsize=(8, 0.9 + len(rows) * (0.16 + 0.14 * len(peers))))
    for j, peer in enumerate(peers):
        points = [(i + (j - (len(peers) - 1) / 2) * height, row["ratios"][peer]) for i, row in enumerate(rows) if peer in row["ratios"]]
        values = [r["ratio"] for _, r in points]
        errors = [[max(0, r["ratio"] - r["low"]) for _, r in points], [max(0, r["high"] - r["ratio"]) for _, r in points]]
        axes.barh([y for y, _ in points], [v - 1 for v in values], height, left=1, color=SHADES[j], label=peer, xerr=errors,
                  error_kw={"elinewidth": 1, "ecolor": "#111"})
    axes.axvline(1, color="#111", linewidth=1.5)
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    ticks = [t for t in (0.1, 0.2, 0.33, 0.5, 0.7, 0.8, 0.9, 1, 1.1, 1.25, 1.5, 2, 3, 5, 10, 20, 50) if low <= t <= high]
    # Labels need room: on a wide scale only the coarse steps.
    ticks = ticks if high / low < 4 else [t for t in ticks if t in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50)]
    axes.set_xticks(ticks, [f"{t:g}" for t in ticks])
    axes.set_xticks([], minor=True)
    axes.set_yticks(range(len(rows)), [f"{row['name']}, {row['threads']}T" for row in rows])
    axes.invert_yaxis()
    axes.margins(y=0.01)
    axes.set_xlabel(f"{WORD[part['metric']]} of the peer over tilewright's   (right of 1: tilewright wins)")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=3, frameon=False)
    axes.grid(axis="x", color="#ddd", linewidth=0.6)
    axes.set_axisbelow(True)
    return svg(figure), "Ratio to each peer with its 95 % interval; bars that grow to the right are tilewright's wins."


def roofline(part, report):
    rows = [row for row in measured(part) if row.get("detail") and row["threads"] == 1 and row["detail"]["flops"] > 0]
    limits = {limit["target"]: limit for limit in report["machine"]["limits"]}
    limit = next((limits[row["detail"]["target"]] for row in rows if row["detail"]["target"] in limits), None)
    if not rows or limit is None:
        return None
    figure, axes = plt.subplots(figsize=(8, 4.5))
    intensity = [row["detail"]["flops"] / row["detail"]["least_bytes"] for row in rows]
    low, high = min(intensity + [0.1]) / 2, max(intensity + [100]) * 2
    peak = limit["f32"]["from_l1"]
    for level, style in zip(limit["bandwidth"], (":", "-.", "--", "-")):
        knee = peak / level["gb_per_second"]
        axes.plot([low, knee, high], [low * level["gb_per_second"], peak, peak], style, color="#555", linewidth=1.2,
                  label=f"{level['name']}, {level['gb_per_second']:.0f} GB/s")
    for j, name in enumerate(["tilewright", *part["peers"]]):
        points = [(x, row["detail"]["flops"] / row["contestants"][name]["latency_ms"]["median"] / 1e6)
                  for x, row in zip(intensity, rows) if name in row["contestants"]]
        if points:
            axes.scatter(*zip(*points), s=28 if j == 0 else 16, marker=MARKS[j], color=SHADES[j], label=name, zorder=3 - j / 10)
    axes.set(xscale="log", yscale="log", xlim=(low, high), xlabel="operations for each byte of inputs, outputs and weights", ylabel="GFLOP/s")
    axes.legend(fontsize=8, frameon=False, loc="lower right")
    return svg(figure), f"Roofline of one core: {peak:.0f} GFLOP/s with operands from L1, and what each level of the memory delivers."


def scaling(part):
    by_name = {}
    for row in measured(part):
        by_name.setdefault(row["name"], {})[row["threads"]] = row
    counts = sorted({threads for rows in by_name.values() for threads in rows})
    if len(counts) < 2:
        return None
    first, last = counts[0], counts[-1]
    pairs = [(name, rows[first], rows[last]) for name, rows in by_name.items() if first in rows and last in rows]
    names = ["tilewright", *part["peers"]]
    figure, axes = plt.subplots(figsize=(8, 3))
    width = 0.8 / len(names)
    for j, who in enumerate(names):
        points = [(i, a["contestants"][who]["latency_ms"]["median"] / b["contestants"][who]["latency_ms"]["median"])
                  for i, (_, a, b) in enumerate(pairs) if who in a["contestants"] and who in b["contestants"]]
        if points:
            axes.bar([i + (j - (len(names) - 1) / 2) * width for i, _ in points], [v for _, v in points], width, color=SHADES[j], label=who)
    axes.axhline(last / first, color="#111", linestyle="--", linewidth=1)
    axes.set_xticks(range(len(pairs)), [name for name, _, _ in pairs], rotation=30, ha="right")
    axes.set_ylabel(f"speed of {last} threads\nover {first}")
    axes.legend(frameon=False, ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1))
    return svg(figure), f"How much faster {last} threads are than {first}; the dashed line is all that can be had."


def predictions(part):
    points = [(k["predicted_us"], k["us"]) for row in measured(part) if row.get("detail") and row["threads"] == 1
              for k in row["detail"]["kernels"] if k.get("predicted_us") and k["us"] > 0]
    if not points:
        return None
    figure, axes = plt.subplots(figsize=(5.5, 4.5))
    axes.scatter(*zip(*points), s=6, color=SHADES[0], alpha=0.5)
    low, high = min(map(min, points)), max(map(max, points))
    axes.plot([low, high], [low, high], color="#111", linewidth=1)
    axes.plot([low, high / 2], [2 * low, high], ":", color="#555", linewidth=1)
    axes.set(xscale="log", yscale="log", xlabel="predicted by the cost model, µs", ylabel="measured, µs")
    within = sum(0.5 <= m / p <= 2 for p, m in points)
    return svg(figure), f"Each kernel, one thread: {within} of {len(points)} within a factor of two of the prediction (dotted: twice as long)."


def costs(part):
    """Compile time and memory beside each latency."""
    rows = [row for row in measured(part) if row["threads"] == 1 and len(row["contestants"]) > 1]
    if not rows:
        return None
    figure, panels = plt.subplots(1, 3, figsize=(8, 0.8 + 0.34 * len(rows)), sharey=True)
    scale = {"latency_ms": ("latency, ms", 1), "prepare_ms": ("load and compile, ms", 1), "memory_bytes": ("memory of the process, MiB", 2**20)}
    names = ["tilewright", *part["peers"]]
    for axes, (metric, (label, unit)) in zip(panels, scale.items()):
        for j, who in enumerate(names):
            points = [(typical(row["contestants"][who], metric) / unit, i) for i, row in enumerate(rows)
                      if who in row["contestants"] and row["contestants"][who][metric]]
            if points:
                axes.scatter(*zip(*points), marker=MARKS[j], color=SHADES[j], s=26, label=who)
        axes.set_xscale("log")
        axes.set_xlabel(label)
        axes.grid(axis="y", color="#eee")
    panels[0].set_yticks(range(len(rows)), [row["name"] for row in rows])
    panels[0].invert_yaxis()
    panels[1].legend(frameon=False, ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1))
    return svg(figure), "One thread: latency, time to load and compile, and memory; left is better."


def figures(part, report):
    drawn = [ratios(part)]
    if part["metric"] == "latency_ms":
        drawn += [roofline(part, report), scaling(part), costs(part), predictions(part)]
    return [figure for figure in drawn if figure]
