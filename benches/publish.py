#!/usr/bin/env python3
"""The published results come from benches/results.json, which comes from a report: the tables of docs/performance.md, the figure
docs/performance.svg, and the summary in README.

usage: publish.py REPORT.json     takes a report as the published one and writes all three
       publish.py                 writes them again
       publish.py --check         exit code 1 when one of them differs from results.json

Networks and matrix products have a line for each row, the other suites a line for each peer and the rows with the lowest ratios.
"""
import json
import pathlib
import sys

import algorithms
import figure
from report import NARROW, amount, facts, is_judged, measured, share, summary_lines, threads_word, typical, verdicts

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS, README, PAGE, FIGURE = (ROOT / path for path in ("benches/results.json", "README.md", "docs/performance.md", "docs/performance.svg"))
BEGIN, END = "<!-- written by benches/publish.py from benches/results.json -->", "<!-- end of results -->"


WHOLE = ["networks", "gemm", "low_precision"]
# Rows of the other suites that are shown.
SLOWEST = 6


def digits(value):
    """Without digits that no reader needs."""
    return float(f"{value:.7g}")


def compact(report):
    """Keeps the parts of a report that the tables need."""
    for part in report["suites"]:
        metric = part["metric"]
        for row in part["rows"]:
            for contestant in row.get("contestants", {}).values():
                value = digits(typical(contestant, metric))
                kept = {"version": contestant["version"], metric: value if metric == "memory_bytes" else {"median": value}}
                contestant.clear()
                contestant.update(kept)
            for ratio in row.get("ratios", {}).values():
                ratio.update({key: digits(value) for key, value in ratio.items()})
            if "detail" in row:
                detail = row["detail"]
                row["detail"] = {"gflops": digits(detail["gflops"]), "peak_gflops": digits(detail["peak_gflops"]),
                                 "stages": detail.get("stages", []), "kernel_count": detail.get("kernel_count", 0)}
                if algorithms.has_choice(row):
                    row["detail"]["algorithms"] = detail.get("algorithms")
            if "distances" in row:
                row["distances"] = {who: digits(value) for who, value in row["distances"].items()}
            row.pop("skipped", None)
            if "error" in row:
                row["error"] = row["error"].replace(f"{ROOT}/", "")
    return report


def shown(part):
    """Every row, or those with the lowest ratios."""
    rows = measured(part)
    if part["suite"] in WHOLE:
        return rows
    worst = lambda row: min((r["ratio"] for r in row["ratios"].values()), default=1.0)
    return sorted(rows, key=worst)[:SLOWEST]


def table(part):
    metric, peers = part["metric"], part["peers"]
    limited = metric == "latency_ms" and part["suite"] not in NARROW
    header = ["", "threads", "tilewright"] + (["of the limit"] if limited else [])
    lines = [header + [f"{peer} over tilewright" for peer in peers]]
    if is_judged(part):
        lines[0] += [f"{who} from the definition" for who in ["tilewright", *peers]]
    lines.append(["---"] + ["---:"] * (len(lines[0]) - 1))
    for row in shown(part):
        cells = [row["name"] + (" *" if row["disturbed"] else ""), str(row["threads"]), amount(typical(row["contestants"]["tilewright"], metric), metric)]
        if limited:
            cells.append(f"{share(part, row):.0f} %" if share(part, row) else "")
        for peer in peers:
            r = row["ratios"].get(peer)
            cells.append(f"{r['ratio']:.2f} ({r['low']:.2f} to {r['high']:.2f})" if r else "")
        lines.append(cells + distances(part, row))
    return ["| " + " | ".join(cells) + " |" for cells in lines]


def distances(part, row):
    """How far the outputs of each contestant are from the graph as it is written."""
    if not is_judged(part):
        return []
    found = row.get("distances", {})
    return [f"{found[who]:.2g}" if who in found else "" for who in ["tilewright", *part["peers"]]]


def results(report):
    out = [BEGIN, ""]
    for part in report["suites"]:
        out += [f"**{part['title']}.** " + " ".join(summary_lines(part)), ""]
        if part["suite"] not in WHOLE:
            out += [f"{SLOWEST} of {len(measured(part))} rows, those with the lowest ratios:", ""] if len(measured(part)) > SLOWEST else []
        out += [*table(part), ""]
    ill = {row["name"]: row["notes"][0] for part in report["suites"] for row in part["rows"] if row.get("notes")}
    out += [f"- {name} is {note}" for name, note in ill.items()]
    out += [f"- {key}: {value}" for key, value in facts(report)]
    if any(row.get("disturbed") for part in report["suites"] for row in part["rows"]):
        out.append("- Rows with * were disturbed by other programs or by a drift of the clock")
    return "\n".join([*out, "", END])


def summary(report):
    """The figure of the networks and a sentence on them."""
    part = next((part for part in report["suites"] if part["suite"] == "networks"), None)
    if part is None:
        return "\n".join([BEGIN, "", "[Tables of results](docs/performance.md).", "", END])
    names, table = figure.versions(part), verdicts(part)
    means = [f"{names[peer]} takes " + " and ".join(f"{mean:.2f} times as long on {threads_word(threads)}" for threads, mean in means.items())
             for peer, (*_, means) in table.items()]
    wins, ties, losses = (sum(row[i] for row in table.values()) for i in range(3))
    rows = measured(part)
    disturbed = sum(bool(row["disturbed"]) for row in rows)
    noise = f" Other programs disturbed {disturbed} of {len(rows)} rows, which widens the intervals." if disturbed else ""
    return "\n".join([
        BEGIN, "", f"[![Time of {' and '.join(names.values())} over tilewright's](docs/performance.svg)](docs/performance.md)", "",
        f"**{part['title']}**, in the geometric mean of {len({row['name'] for row in rows})}: {'; '.join(means)}. Of {wins + ties + losses} comparisons",
        f"tilewright is faster in {wins}, equal within the interval in {ties}, slower in {losses}.{noise}",
        f"{report['machine']['processor']}, {report['machine']['cores']} cores, {report['date']}: [table and method](docs/performance.md).", "", END])


def published(report):
    """Each page and the figure, with its text."""
    part = next((part for part in report["suites"] if part["suite"] == "networks"), None)
    texts = {path: before + text + after for path, text in ((README, summary(report)), (PAGE, results(report)))
             for before, _, after in [divided(path)]}
    return texts | ({FIGURE: figure.figure(part)} if part else {})


def divided(path):
    """A page before its results, with them and their marks, and after them."""
    text = path.read_text()
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        sys.exit(f"publish: {path.name} has no place for the results: {BEGIN} ... {END}")
    start, end = text.index(BEGIN), text.index(END) + len(END)
    return text[:start], text[start:end], text[end:]


def main():
    arguments = sys.argv[1:]
    if len(arguments) > 1 or arguments[:1] in (["-h"], ["--help"]):
        sys.exit(__doc__)
    check = arguments == ["--check"]
    if arguments and not check:
        try:
            report = compact(json.loads(pathlib.Path(arguments[0]).read_text()))
        except (OSError, ValueError, KeyError) as error:
            sys.exit(f"publish: {arguments[0]}: {getattr(error, 'strerror', None) or 'is not a report'}")
        if report["machine"]["changed"] or report["interrupted"]:
            sys.exit("publish: the report is of a tree with changes or was interrupted")
        before = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"suites": []}
        for title in [part["title"] for part in before["suites"]]:
            if title not in [part["title"] for part in report["suites"]]:
                print(f"publish: docs/performance.md shows '{title}' no longer: the report does not have it")
        RESULTS.write_text(json.dumps(report, separators=(",", ":")) + "\n")
    texts = published(json.loads(RESULTS.read_text()))
    if check:
        differing = [path.relative_to(ROOT) for path, text in texts.items() if not path.exists() or path.read_text() != text]
        sys.exit(f"publish: not as benches/results.json says: {', '.join(map(str, differing))}: run benches/publish.py" if differing else 0)
    for path, text in texts.items():
        path.write_text(text)


if __name__ == "__main__":
    main()
