#!/usr/bin/env python3
"""From report.json to what people read: report.md and a self-contained report.html.

usage: report.py [FOLDER]      writes both again from FOLDER/report.json [target/bench]
"""
import algorithms
import html
import json
import pathlib
import statistics
import sys


def amount(value, metric):
    """A number with a unit that suits it."""
    if value is None:
        return ""
    if metric == "memory_bytes":
        return f"{value / 2**20:.0f} MiB"
    return f"{value / 1e3:.2f} s" if value >= 10_000 else f"{value:.1f} ms" if value >= 10 else f"{value:.2f} ms" if value >= 0.1 else f"{1e3 * value:.1f} µs"


def typical(contestant, metric):
    return contestant[metric] if metric == "memory_bytes" else contestant[metric]["median"]


def measured(part):
    return [row for row in part["rows"] if "error" not in row]


def verdict(row, peer):
    """Returns "wins" or "loses" where the interval of the ratio lies above or below 1, "ties" where it contains 1."""
    r = row["ratios"][peer]
    return "wins" if r["low"] > 1 else "loses" if r["high"] < 1 else "ties"


def verdicts(part):
    """Peer -> (wins, ties, losses, {threads: geometric mean of the ratios})."""
    table = {}
    for peer in part["peers"]:
        rows = [row for row in measured(part) if peer in row["ratios"]]
        if rows:
            counts = [sum(verdict(row, peer) == word for row in rows) for word in ("wins", "ties", "loses")]
            ratios = {}
            for row in rows:
                ratios.setdefault(row["threads"], []).append(row["ratios"][peer]["ratio"])
            table[peer] = (*counts, {threads: statistics.geometric_mean(values) for threads, values in sorted(ratios.items())})
    return table


def threads_word(count):
    return f"{count} thread" if count == 1 else f"{count} threads"


# Better, worse, quantity.
WORDS = {"latency_ms": ("faster", "slower", "time"), "prepare_ms": ("faster to compile", "slower", "time to compile"),
         "memory_bytes": ("smaller", "larger", "memory")}


def is_judged(part):
    """Returns true if the report has how far outputs are from the graphs as they are written."""
    return any("distances" in row for row in part["rows"])


def distance_lines(part):
    """In how many networks tilewright is no farther from the definition than each peer. Thread counts of one network give the same outputs."""
    lines = []
    for peer in part["peers"]:
        pairs = {row["name"]: (row["distances"]["tilewright"], row["distances"][peer]) for row in measured(part)
                 if {"tilewright", peer} <= set(row.get("distances", {}))}
        if pairs:
            no_farther = sum(ours <= theirs for ours, theirs in pairs.values())
            means = [statistics.geometric_mean(max(pair[i], 1e-9) for pair in pairs.values()) for i in range(2)]
            lines.append(f"Outputs are no farther from the graph as it is written, without optimizations, than those of {peer} in {no_farther} of {len(pairs)} networks; "
                         f"geometric mean of the largest difference as a share of the largest value: {means[0]:.2g}, {peer} {means[1]:.2g}.")
    return lines


def summary_lines(part):
    lines = []
    for peer, (wins, ties, losses, means) in verdicts(part).items():
        ratios = ", ".join(f"{mean:.2f} on {threads_word(threads)}" for threads, mean in means.items())
        better, worse, quantity = WORDS[part["metric"]]
        lines.append(f"Against {peer}: {better} in {wins} of {wins + ties + losses} rows, equal within the interval in {ties}, "
                     f"{worse} in {losses}; geometric mean of the {quantity} of {peer} over tilewright's: {ratios}.")
    return lines + distance_lines(part) + algorithms.lines(part) + ilp_lines(part)


def ilp_ms(row):
    """Time of the stage in which the ILP schedules, of all kernels; nothing where that is not told."""
    stages = row.get("detail", {}).get("stages", [])
    return next((stage["ms"] for stage in stages if stage["name"] == "schedule"), None)


def ilp_lines(part):
    """Time of the ILP, over the rows with one kernel."""
    if part["metric"] != "latency_ms":
        return []
    times = {row["name"]: ilp_ms(row) for row in measured(part) if ilp_ms(row) is not None and row["detail"]["kernel_count"] == 1}
    if not times:
        return []
    worst = max(times, key=times.get)
    return [f"The ILP schedules a kernel in {amount(statistics.median(times.values()), 'latency_ms')} (median of {len(times)}), "
            f"at worst in {amount(times[worst], 'latency_ms')} ({worst})."]


# Suites whose products have operands of 8 or 16 bits; the limit is that of f32 or f64.
NARROW = ["int8", "bf16", "low_precision"]


def share(part, row):
    """Of the limit that the processor has, in percent; none where it is not that of the products."""
    detail = row.get("detail") if part["suite"] not in NARROW else None
    return 100 * detail["gflops"] / detail["peak_gflops"] if detail and detail["peak_gflops"] else None


def table_of(part):
    """Header and rows as text."""
    metric = part["metric"]
    header = ["", "threads", "tilewright"] + (["min", "quartiles", "GFLOP/s", "of limit", "ILP", "compile", "memory"] if metric == "latency_ms" else [])
    if any(map(algorithms.has_choice, part["rows"])):
        header += ["chosen", "from the fastest"]
    for peer in part["peers"]:
        header += [peer, "ratio", "95 %"]
    apart = ["tilewright", *part["peers"]] if is_judged(part) else []
    header += [f"{who} from the definition" for who in apart]
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
                      f"{row['detail']['gflops']:.1f}", f"{share(part, row):.0f} %" if share(part, row) else "", amount(ilp_ms(row), metric), amount(ours["prepare_ms"]["median"], metric),
                      amount(ours["memory_bytes"], "memory_bytes")]
        if "chosen" in header:
            cells += [algorithms.chosen(row), f"{100 * algorithms.distance(row):.1f} %"] if algorithms.has_choice(row) else ["", ""]
        for peer in part["peers"]:
            if peer in row["ratios"]:
                r = row["ratios"][peer]
                cells += [amount(typical(row["contestants"][peer], metric), metric), f"{r['ratio']:.2f}", f"{r['low']:.2f} to {r['high']:.2f}"]
            else:
                cells += ["", "", ""]
        found = row.get("distances", {})
        cells += [f"{found[who]:.2g}" if who in found else "" for who in apart]
        body.append(cells)
    return header, body


def facts(report):
    """Date, machine, versions, method as pairs."""
    machine = report["machine"]
    pairs = [("Date", report["date"]), ("Processor", f"{machine['processor']}, {machine['cores']} cores"), ("System", ", Python ".join(filter(None, [machine["system"], machine.get("python")]))),
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
    methods = {}
    for part in report["suites"]:
        method = part["method"]
        text = (f"{method['launches']} launches of every contestant, {method['rounds']} rounds in turn of {method['seconds']} s each; "
                f"medians; tilewright takes less where a ratio is above 1; {method['interval']}")
        methods.setdefault(text, []).append(part["suite"])
    pairs += [("Method" if len(methods) == 1 else f"Method of {', '.join(suites)}", text) for text, suites in methods.items()]
    return pairs


def notes(report):
    lines = []
    for part in report["suites"]:
        for row in part["rows"]:
            lines += [f"{part['suite']}, {row['name']}, {threads_word(row['threads'])}: {note}" for note in row.get("notes", [])]
            lines += [f"* {part['suite']}, {row['name']}, {threads_word(row['threads'])}: {mark}" for mark in row.get("disturbed", [])]
            lines += [f"{part['suite']}, {row['name']}, {threads_word(row['threads'])}: {peer} left out: {why}" for peer, why in row.get("skipped", {}).items()]
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
body { font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 76rem; padding: 1rem; color: #111; background: #fff; }
h1 { font-size: 1.6rem; } h2 { margin-top: 2.5rem; border-top: 2px solid #111; padding-top: .6rem; }
.figures { columns: 27rem; column-gap: 2rem; } figure, section { margin: 0 0 1.5rem 0; break-inside: avoid; } h3 { margin-top: 0; } figure svg { width: 100%; height: auto; } figcaption { color: #444; font-size: .9rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: .85rem; white-space: nowrap; }
td, th { padding: .2rem .6rem; text-align: right; border-bottom: 1px solid #ccc; } td:first-child, th:first-child { text-align: left; }
tr.stopped td { text-align: left; white-space: normal; font-weight: 600; }
dt { font-weight: 600; } dd { margin: 0 0 .5rem 0; }
.contest { margin: .5rem 0 1rem 0; } .contest p { margin: 0; } .contest .mean { font-weight: 600; }
.counts { display: flex; height: 1.5rem; border: 1px solid #111; font-size: .85rem; line-height: 1.5rem; overflow: hidden; }
.counts span { text-align: center; min-width: 1.5rem; } .faster { background: #08306b; color: #fff; } .equal { background: #c8c8c8; }
.slower { background: repeating-linear-gradient(45deg, #fff, #fff 4px, #d9a441 4px, #d9a441 7px); }
.slower b { background: #fff; padding: 0 .3rem; }
.key span { display: inline-block; padding: 0 .4rem; margin-right: .5rem; border: 1px solid #111; font-size: .85rem; }
@media print { * { print-color-adjust: exact; -webkit-print-color-adjust: exact; } body { max-width: none; font-size: 11px; }
  h2 { break-before: page; } .wide { overflow: visible; } table { font-size: .55rem; } td, th { padding: .1rem .25rem; } }
"""


def text(value):
    return html.escape(str(value))


def contest(part, peer, counts):
    """Who wins how often, as a bar, and by how much."""
    wins, ties, losses, means = counts
    words = (("faster", wins), ("equal", ties), ("slower", losses))
    bar = "".join(f"<span class={word} style='flex:{count}'><b>{count}</b></span>" for word, count in words if count)
    mean = ", ".join(f"× {value:.2f} on {threads_word(threads)}" for threads, value in means.items())
    return f"<div class=contest><p>{text(peer)}: <span class=mean>{mean}</span></p><div class=counts>{bar}</div></div>"


def overview(report):
    """Who wins where, at first sight."""
    out = ["<p>Rows in which tilewright is <span class=key><span class=faster>ahead</span><span class=equal>equal within the interval</span>"
           "<span class=slower><b>behind</b></span></span> and how many times as much the peer takes, in the geometric mean (above 1: tilewright is ahead).</p>"]
    out.append("<div class=figures>")
    for part in report["suites"]:
        table = verdicts(part)
        if table:
            out.append(f"<section><h3><a href='#{part['suite']}'>{text(part['title'])}</a></h3>")
            out += [contest(part, peer, counts) for peer, counts in table.items()]
            out.append("</section>")
    return [*out, "</div>"]


def table_lines(part):
    header, body = table_of(part)
    out = ["<div class=wide><table><tr>" + "".join(f"<th>{text(cell)}" for cell in header)]
    for row, cells in zip(part["rows"], body):
        if "error" in row:
            out.append(f"<tr class=stopped><td>{text(cells[0])}<td>{cells[1]}<td colspan={len(header) - 2}>{text(cells[2])}")
        else:
            out.append("<tr>" + "".join(f"<td>{text(cell)}" for cell in cells))
    return [*out, "</table></div>"]


def page(report, figures):
    out = ["<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width, initial-scale=1'>",
           f"<title>tilewright against its peers, {text(report['date'])}</title><style>{STYLE}</style>", "<h1>tilewright against its peers</h1>",
           f"<p>{text(report['date'])}, {text(report['machine']['processor'])}, {report['machine']['cores']} cores, revision {text(report['machine']['revision'])}"
           f"{' with changes' if report['machine']['changed'] else ''}</p>", *overview(report)]
    for part in report["suites"]:
        out.append(f"<h2 id={part['suite']}>{text(part['title'])}</h2>")
        out += [f"<p>{text(line)}</p>" for line in algorithms.lines(part) + ilp_lines(part)]
        drawn = figures(part, report)
        out += ["<div class=figures>", *(f"<figure>{svg}<figcaption>{text(caption)}</figcaption></figure>" for svg, caption in drawn), "</div>"]
        out += table_lines(part)
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
