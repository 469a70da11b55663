"""The figure of the published networks, as SVG text by its own lines: the same bytes on every machine, so that `publish.py --check` can
hold it to benches/results.json without matplotlib."""
import html
import math
import statistics

from report import measured, threads_word

COLOURS = ["#2f7fbf", "#e59a2c", "#7b3294", "#008837"]
# Pixels: names, a panel, the room between panels, a row, above and below the rows.
NAMES, PANEL, GAP, ROW, TOP, BOTTOM = 150, 320, 24, 26, 62, 52
TICKS = [0.1, 0.2, 0.5, 1, 2, 4, 8, 16]
STYLE = """text { font: 12px system-ui, sans-serif; fill: #1f2328 } .grid { stroke: #d0d7de } .one { stroke: #1f2328; stroke-width: 1.5 }
.interval { stroke: #57606a; stroke-width: 1 } .mean { font-weight: 600 }
@media (prefers-color-scheme: dark) { text { fill: #e6edf3 } .grid { stroke: #30363d } .one { stroke: #e6edf3 } .interval { stroke: #9aa4af } }"""


def versions(part):
    """Peer -> its name and version."""
    return {peer: row["contestants"][peer]["version"] for row in measured(part) for peer in part["peers"] if peer in row["contestants"]}


def lines(part, threads):
    """Name and {peer: (ratio, low, high)} of each row on so many threads, and of their geometric mean, which has no interval."""
    rows = [row for row in measured(part) if row["threads"] == threads]
    out = [(row["name"], {peer: (r["ratio"], r["low"], r["high"]) for peer, r in row["ratios"].items()}) for row in rows]
    means = {peer: statistics.geometric_mean([ratios[peer][0] for _, ratios in out if peer in ratios])
             for peer in part["peers"] if any(peer in ratios for _, ratios in out)}
    return out + [("geometric mean", {peer: (mean, mean, mean) for peer, mean in means.items()})]


def figure(part):
    """Bars of each peer's time over tilewright's, on a logarithmic axis, a panel for each number of threads."""
    panels = [(threads, lines(part, threads)) for threads in sorted({row["threads"] for row in measured(part)})]
    names = list(dict.fromkeys(name for _, rows in panels for name, _ in rows[:-1])) + ["geometric mean"]
    ratios = [r[0] for _, rows in panels for _, peers in rows for r in peers.values()]
    low, high = min(0.5, 0.95 * min(ratios)), max(2, 1.3 * max(ratios))
    width, height = NAMES + len(panels) * (PANEL + GAP), TOP + ROW * len(names) + BOTTOM
    bottom = TOP + ROW * len(names)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">',
           f"<title>{html.escape(part['title'])}: time of each peer over tilewright's</title>", f"<style>{STYLE}</style>"]

    def text(x, y, words, anchor="middle", kind=""):
        out.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{kind}>{html.escape(words)}</text>')

    def line(x1, y1, x2, y2, kind):
        out.append(f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>')

    for i, name in enumerate(names):
        text(NAMES - 10, TOP + ROW * (i + 0.5) + 4, name, "end", ' class="mean"' if name == names[-1] else "")
    for j, version in enumerate(versions(part).values()):
        out.append(f'<rect x="{NAMES + 190 * j}" y="8" width="12" height="12" fill="{COLOURS[j % len(COLOURS)]}"/>')
        text(NAMES + 190 * j + 18, 18, version, "start")
    bar = (ROW - 8) / max(1, len(part["peers"]))
    for panel, (threads, rows) in enumerate(panels):
        left = NAMES + panel * (PANEL + GAP)

        def at(ratio):
            """Ratios beyond the axis end at its edge."""
            return left + PANEL * math.log(min(max(ratio, low), high) / low) / math.log(high / low)

        text(left + PANEL / 2, TOP - 12, threads_word(threads))
        for tick in [tick for tick in TICKS if low <= tick <= high]:
            line(at(tick), TOP, at(tick), bottom, "grid")
            text(at(tick), bottom + 16, f"{tick:g}×")
        for name, peers in rows:
            for j, peer in enumerate(part["peers"]):
                if peer not in peers:
                    continue
                (ratio, least, most), y = peers[peer], TOP + ROW * names.index(name) + 4 + bar * j
                start, end = sorted((at(1), at(ratio)))
                out.append(f'<rect x="{start:.1f}" y="{y:.1f}" width="{end - start:.1f}" height="{bar - 1:.1f}" fill="{COLOURS[j % len(COLOURS)]}"/>')
                if least < most:
                    line(at(least), y + bar / 2 - 0.5, at(most), y + bar / 2 - 0.5, "interval")
        line(at(1), TOP, at(1), bottom, "one")
    text(NAMES + (width - NAMES - GAP) / 2, height - 12, "time of the peer over tilewright's; 95 of 100 repetitions are expected within the thin lines")
    return "\n".join([*out, "</svg>", ""])
