#!/usr/bin/env python3
"""From report.json to what people read: report.md and a self-contained report.html.

usage: report.py [FOLDER]      writes both again from FOLDER/report.json [target/bench]
"""
import html
import json
import pathlib
import statistics
import sys


def amount(value, metric):
    """A number with a unit that suits it."""
    if value is None:
        return "?"
    if metric == "memory_bytes":
        return f"{value / 2**20:.0f} MiB"
    return f"{value / 1e3:.2f} s" if value >= 10_000 else f"{value:.1f} ms" if value >= 10 else f"{value:.2f} ms" if value >= 0.1 else f"{1e3 * value:.1f} µs"


def typical(contestant, metric):
    return contestant[metric] if metric == "memory_bytes" else contestant[metric]["median"]


def measured(part):
    return [row for row in part["rows"] if "error" not in row]


def verdict(row, peer):
    """Whether the interval of the ratio lies above 1, below, or holds it."""
    r = row["ratios"][peer]
    return "wins" if r["low"] > 1 else "loses" if r["high"] < 1 else "ties"


def verdicts(part):
    """Peer -> (rows, wins, ties, losses, geometric mean of the ratios)."""
    table = {}
    for peer in part["peers"]:
        rows = [row for row in measured(part) if peer in row["ratios"]]
        if rows:
            counts = [sum(verdict(row, peer) == word for row in rows) for word in ("wins", "ties", "loses")]
            table[peer] = (len(rows), *counts, statistics.geometric_mean(row["ratios"][peer]["ratio"] for row in rows))
    return table


def summary_lines(part):
    noun = {"latency_ms": "faster", "prepare_ms": "faster to compile", "memory_bytes": "smaller"}[part["metric"]]
    lines = []
    for peer, (rows, wins, ties, losses, mean) in verdicts(part).items():
        lines.append(f"Against {peer}: {noun} in {wins} of {rows} rows, equal within the interval in {ties}, not in {losses}; "
                     f"{peer} takes {mean:.2f} times as much in the geometric mean.")
    return lines


def share(row):
    """Of the limit that the processor has, in percent."""
    detail = row.get("detail")
    return 100 * detail["gflops"] / detail["peak_gflops"] if detail and detail["peak_gflops"] else None


def table_of(part):
    """Header and rows as text."""
    metric = part["metric"]
    header = ["", "threads", "tilewright"] + (["min", "quartiles", "GFLOP/s", "of limit", "compile", "memory"] if metric == "latency_ms" else [])
    for peer in part["peers"]:
        header += [peer, "ratio", "95 %"]
    body = []
    for row in part["rows"]:
        if "error" in row:
            body.append([row["name"], str(row["threads"]), "stopped: " + row["error"]] + [""] * (len(header) - 3))
            continue
        ours = row["contestants"]["tilewright"]
        cells = [row["name"] + (" *" if row["disturbed"] else ""), str(row["threads"]), amount(typical(ours, metric), metric)]
        if metric == "latency_ms":
            latency = ours["latency_ms"]
            cells += [amount(latency["min"], metric), f"{amount(latency['q1'], metric)} to {amount(latency['q3'], metric)}",
                      f"{row['detail']['gflops']:.1f}", f"{share(row):.0f} %" if share(row) else "", amount(ours["prepare_ms"]["median"], metric),
                      amount(ours["memory_bytes"], "memory_bytes")]
        for peer in part["peers"]:
            if peer in row["ratios"]:
                r = row["ratios"][peer]
                cells += [amount(typical(row["contestants"][peer], metric), metric), f"{r['ratio']:.2f}", f"{r['low']:.2f} to {r['high']:.2f}"]
            else:
                cells += ["", "", ""]
        body.append(cells)
    return header, body


def facts(report):
    """Date, machine, versions, method as pairs."""
    machine = report["machine"]
    pairs = [("Date", report["date"]), ("Processor", f"{machine['processor']}, {machine['cores']} cores"), ("System", machine["system"]),
             ("tilewright", f"revision {machine['revision']}{', changed' if machine['changed'] else ''}, {machine['rustc']}")]
    for limits in machine["limits"]:
        levels = ", ".join(f"{level['gb_per_second']:.0f} GB/s from {level['name']}" for level in limits["bandwidth"])
        pairs.append((f"Limits of one core, {limits['target']}",
                      f"{limits['f32']['from_l1']:.0f} GFLOP/s f32 and {limits['f64']['from_l1']:.0f} f64 with operands from L1, {limits['clock_ghz']:.2f} GHz, {levels}"))
    versions = {}
    for part in report["suites"]:
        for row in measured(part):
            versions.update({name: c["version"] for name, c in row["contestants"].items() if name != "tilewright"})
    pairs += [(name, version) for name, version in sorted(versions.items())]
    method = report["method"]
    pairs.append(("Method", f"{method['launches']} launches of every contestant, {method['rounds']} rounds in turn of {method['seconds']} s each; "
                            "medians; a ratio above 1 says that tilewright takes less; the interval is a bootstrap over launches and rounds"))
    return pairs


def notes(report):
    lines = []
    for part in report["suites"]:
        for row in part["rows"]:
            lines += [f"* {part['suite']}, {row['name']}, {row['threads']} threads: {mark}" for mark in row.get("disturbed", [])]
            lines += [f"{part['suite']}, {row['name']}, {row['threads']} threads: {peer} left out: {why}" for peer, why in row.get("skipped", {}).items()]
    lines += [f"{skipped['what']} left out: {skipped['why']}" for skipped in report["skipped"]]
    return lines + (["The run was interrupted; what was finished is shown."] if report["interrupted"] else [])


def markdown(report):
    out = ["# tilewright against its peers", ""]
    for part in report["suites"]:
        header, body = table_of(part)
        out += [f"## {part['title']}", "", *summary_lines(part), ""]
        out += ["| " + " | ".join(cells) + " |" for cells in [header, ["---"] * len(header), *body]] + [""]
    out += ["## Machine and method", ""] + [f"- {key}: {value}" for key, value in facts(report)] + [""]
    if notes(report):
        out += ["## Notes", ""] + [f"- {line}" for line in notes(report)] + [""]
    return "\n".join(out)


STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 72rem; padding: 1rem; color: #111; background: #fff; }
h1 { font-size: 1.6rem; } h2 { margin-top: 2.5rem; border-top: 2px solid #111; padding-top: .6rem; }
figure { margin: 1rem 0; } figure svg { width: 100%; height: auto; } figcaption { color: #444; font-size: .9rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: .85rem; white-space: nowrap; }
td, th { padding: .2rem .6rem; text-align: right; border-bottom: 1px solid #ccc; } td:first-child, th:first-child { text-align: left; }
.verdict { font-size: 1.1rem; } dt { font-weight: 600; } dd { margin: 0 0 .5rem 0; }
@media print { body { max-width: none; } h2 { break-before: page; } .wide { overflow: visible; } table { font-size: .6rem; } }
"""


def page(report, figures):
    text = lambda value: html.escape(str(value))
    out = ["<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width, initial-scale=1'>",
           f"<title>tilewright against its peers, {text(report['date'])}</title><style>{STYLE}</style>", "<h1>tilewright against its peers</h1>"]
    for part in report["suites"]:
        for line in summary_lines(part):
            out.append(f"<p class=verdict><b>{text(part['title'])}.</b> {text(line)}</p>")
    for part in report["suites"]:
        out.append(f"<h2>{text(part['title'])}</h2>")
        for svg, caption in figures(part, report):
            out.append(f"<figure>{svg}<figcaption>{text(caption)}</figcaption></figure>")
        header, body = table_of(part)
        out.append("<div class=wide><table><tr>" + "".join(f"<th>{text(cell)}" for cell in header))
        out += ["<tr>" + "".join(f"<td>{text(cell)}" for cell in cells) for cells in body]
        out.append("</table></div>")
    out.append("<h2>Machine and method</h2><dl>" + "".join(f"<dt>{text(k)}<dd>{text(v)}" for k, v in facts(report)) + "</dl>")
    if notes(report):
        out.append("<h2>Notes</h2><ul>" + "".join(f"<li>{text(line)}" for line in notes(report)) + "</ul>")
    return "\n".join(out)


def write(report, folder):
    """Both files; without matplotlib the page has tables alone, and says so."""
    try:
        from plots import figures
    except ImportError as error:
        why = f"{error.name} is not installed"
        report = {**report, "skipped": report["skipped"] + [{"what": "plots", "why": why}]}
        figures = lambda part, report: []
    paths = [folder / "report.json", folder / "report.md", folder / "report.html"]
    paths[1].write_text(markdown(report))
    paths[2].write_text(page(report, figures))
    return paths


if __name__ == "__main__":
    where = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "target/bench")
    for path in write(json.loads((where / "report.json").read_text()), where):
        print(f"written: {path}")
