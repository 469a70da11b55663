"""The figures of the report, by matplotlib, as SVG text. Shades and marks differ in lightness and shape: they print in grey."""
import io

import matplotlib
from report import measured, typical

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator  # noqa: E402

plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "tilewright", "font.size": 10, "font.family": "sans-serif",
                     "axes.spines.top": False, "axes.spines.right": False})
SHADES = ["#08306b", "#3f8fc9", "#f0c36d", "#666666", "#d0d0d0", "#7b3294", "#c2a5cf", "#008837", "#a6dba0"]
MARKS = "osD^vP*X<"
# Inches: a column of a page, and the width of a phone.
WIDTH = 5.4
WORD = {"latency_ms": "time", "prepare_ms": "compile time", "memory_bytes": "memory"}


def svg(figure):
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)
    text = buffer.getvalue()
    return text[text.index("<svg"):]


def plain_log(axis, most=5):
    """A logarithmic axis whose labels are plain numbers with room between them."""
    axis.axes.set(**{f"{axis.axis_name}scale": "log"})
    low, high = axis.get_view_interval()
    for steps in ((1, 2, 5), (1, 3), (1,), (1e-2,), (1e-3,)):
        ticks = [step * 10.0**power for power in range(-9, 13, 3 if steps == (1e-3,) else 2 if steps == (1e-2,) else 1) for step in steps]
        ticks = [tick for tick in ticks if low <= tick <= high]
        if len(ticks) <= most:
            break
    axis.set_major_locator(FixedLocator(ticks or [low]))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.4g}" if value < 1e4 else f"{value:,.0f}"))
    axis.set_minor_locator(NullLocator())


def style(part, name):
    """Shade and mark of a contestant, the same in every figure of a suite."""
    place = ["tilewright", *part["peers"]].index(name) % len(SHADES)
    return SHADES[place], MARKS[place]


def ratios(part):
    """A bar for each row and peer: how many times as much the peer takes."""
    rows = [row for row in measured(part) if row["ratios"]]
    if not rows:
        return None
    peers = [peer for peer in part["peers"] if any(peer in row["ratios"] for row in rows)]
    height = 0.8 / len(peers)
    figure, axes = plt.subplots(figsize=(WIDTH, 0.9 + len(rows) * (0.16 + 0.14 * len(peers))))
    for j, peer in enumerate(peers):
        points = [(i + (j - (len(peers) - 1) / 2) * height, row["ratios"][peer]) for i, row in enumerate(rows) if peer in row["ratios"]]
        values = [r["ratio"] for _, r in points]
        errors = [[max(0, r["ratio"] - r["low"]) for _, r in points], [max(0, r["high"] - r["ratio"]) for _, r in points]]
        axes.barh([y for y, _ in points], [v - 1 for v in values], height, left=1, color=style(part, peer)[0], label=peer, xerr=errors, edgecolor="#111", linewidth=0.4,
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
    axes.set_xlabel(f"{WORD[part['metric']]} of the peer over tilewright's")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=3, frameon=False)
    axes.grid(axis="x", color="#ddd", linewidth=0.6)
    axes.set_axisbelow(True)
    return svg(figure), "Ratio to each peer with the interval in which 95 of 100 repetitions are expected; bars to the right of 1 are rows in which tilewright is ahead."


def roofline(part, report):
    rows = [row for row in measured(part) if row.get("detail") and row["threads"] == 1 and row["detail"]["flops"] > 0]
    limits = {limit["target"]: limit for limit in report["machine"]["limits"]}
    limit = next((limits[row["detail"]["target"]] for row in rows if row["detail"]["target"] in limits), None)
    if not rows or limit is None:
        return None
    figure, axes = plt.subplots(figsize=(WIDTH, 4.2))
    intensity = [row["detail"]["flops"] / row["detail"]["least_bytes"] for row in rows]
    low, high = min(intensity + [0.1]) / 2, max(intensity + [100]) * 2
    # f32 or f64, as the rows' own limit tells.
    peak = min((limit[kind]["from_l1"] for kind in ("f32", "f64")), key=lambda rate: abs(rate - rows[0]["detail"]["peak_gflops"]))
    for level, line in zip(limit["bandwidth"], (":", "-.", "--", "-")):
        knee = peak / level["gb_per_second"]
        axes.plot([low, knee, high], [low * level["gb_per_second"], peak, peak], line, color="#555", linewidth=1.2,
                  label=f"{level['name']}, {level['gb_per_second']:.0f} GB/s")
    for j, name in enumerate(["tilewright", *part["peers"]]):
        points = [(x, row["detail"]["flops"] / row["contestants"][name]["latency_ms"]["median"] / 1e6)
                  for x, row in zip(intensity, rows) if name in row["contestants"]]
        if points:
            shade, mark = style(part, name)
            axes.scatter(*zip(*points), s=28 if j == 0 else 16, marker=mark, color=shade, label=name, zorder=3 - j / 10)
    axes.set(xlim=(low, high), xlabel="operations for each byte of inputs, outputs, weights", ylabel="GFLOP/s")
    plain_log(axes.xaxis)
    plain_log(axes.yaxis)
    axes.legend(fontsize=8, frameon=False, ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1))
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
    if not pairs:
        return None
    figure, axes = plt.subplots(figsize=(WIDTH, 0.9 + 0.24 * len(pairs)))
    for who in ["tilewright", *part["peers"]]:
        points = [(a["contestants"][who]["latency_ms"]["median"] / b["contestants"][who]["latency_ms"]["median"], i)
                  for i, (_, a, b) in enumerate(pairs) if who in a["contestants"] and who in b["contestants"]]
        if points:
            shade, mark = style(part, who)
            axes.scatter(*zip(*points), color=shade, marker=mark, s=26, label=who)
    axes.axvline(last / first, color="#111", linestyle="--", linewidth=1)
    axes.axvline(1, color="#111", linewidth=1)
    axes.set_yticks(range(len(pairs)), [name for name, _, _ in pairs])
    axes.invert_yaxis()
    axes.grid(axis="y", color="#eee")
    axes.set_axisbelow(True)
    axes.set_xlabel(f"speed of {last} threads over {first}")
    axes.legend(fontsize=8, frameon=False, ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1))
    return svg(figure), f"How much faster {last} threads are than {first}; the dashed line is all that can be had from threads alone."


def predictions(part):
    points = [(k["predicted_us"], k["us"]) for row in measured(part) if row.get("detail") and row["threads"] == 1
              for k in row["detail"]["kernels"] if k.get("predicted_us") and k["us"] > 0]
    if not points:
        return None
    figure, axes = plt.subplots(figsize=(WIDTH, 4.2))
    axes.scatter(*zip(*points), s=6, color=SHADES[0], alpha=0.5)
    low, high = min(map(min, points)), max(map(max, points))
    axes.plot([low, high], [low, high], color="#111", linewidth=1)
    axes.plot([low, high / 2], [2 * low, high], ":", color="#555", linewidth=1)
    axes.set(xlabel="predicted by the cost model, µs", ylabel="measured, µs")
    plain_log(axes.xaxis)
    plain_log(axes.yaxis)
    within = sum(0.5 <= m / p <= 2 for p, m in points)
    return svg(figure), f"Each kernel, one thread: {within} of {len(points)} within a factor of two of the prediction (dotted: twice as long)."


def costs(part):
    """Compile time and memory beside each latency."""
    rows = [row for row in measured(part) if row["threads"] == 1 and len(row["contestants"]) > 1]
    if not rows:
        return None
    figure, panels = plt.subplots(1, 3, figsize=(WIDTH, 0.9 + 0.24 * len(rows)), sharey=True)
    scale = {"latency_ms": ("latency, ms", 1), "prepare_ms": ("to first result, ms", 1), "memory_bytes": ("process, MiB", 2**20)}
    for axes, (metric, (label, unit)) in zip(panels, scale.items()):
        for who in ["tilewright", *part["peers"]]:
            shade, mark = style(part, who)
            points = [(typical(row["contestants"][who], metric) / unit, i) for i, row in enumerate(rows)
                      if who in row["contestants"] and row["contestants"][who][metric]]
            if points:
                axes.scatter(*zip(*points), marker=mark, color=shade, s=26, label=who)
        plain_log(axes.xaxis, 3)
        axes.set_xlabel(label, fontsize=9)
        axes.tick_params(axis="x", labelsize=8)
        axes.grid(axis="y", color="#eee")
    panels[0].set_yticks(range(len(rows)), [row["name"] for row in rows])
    panels[0].invert_yaxis()
    panels[1].legend(fontsize=8, frameon=False, ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1))
    return svg(figure), "One thread: latency, time from the file to the first result, and memory; left is better."


def figures(part, report):
    drawn = [ratios(part)]
    if part["metric"] == "latency_ms":
        drawn += [roofline(part, report), scaling(part), costs(part), predictions(part)]
    return [figure for figure in drawn if figure]
