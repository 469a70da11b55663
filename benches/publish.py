#!/usr/bin/env python3
"""README's table of results comes from benches/results.json, which comes from a report.

usage: publish.py REPORT.json     takes a report as the published one and writes the table
       publish.py                 writes the table again
       publish.py --check         exit code 1 when README and results.json differ
"""
import json
import pathlib
import sys

from report import amount, facts, share, summary_lines, typical

ROOT = pathlib.Path(__file__).resolve().parent.parent
README, RESULTS = ROOT / "README.md", ROOT / "benches" / "results.json"
BEGIN, END = "<!-- written by benches/publish.py from benches/results.json -->", "<!-- end of results -->"


def compact(report):
    """Without what the table does not need."""
    for part in report["suites"]:
        for row in part["rows"]:
            row.get("detail", {}).pop("kernels", None)
    return report


def table(part):
    metric, peers = part["metric"], part["peers"]
    header = ["", "threads", "tilewright"] + (["of the limit"] if metric == "latency_ms" else [])
    lines = [header + [f"{peer} over tilewright" for peer in peers]]
    lines.append(["---"] + ["---:"] * (len(lines[0]) - 1))
    for row in part["rows"]:
        if "error" in row:
            continue
        cells = [row["name"] + (" *" if row["disturbed"] else ""), str(row["threads"]), amount(typical(row["contestants"]["tilewright"], metric), metric)]
        if metric == "latency_ms":
            cells.append(f"{share(row):.0f} %" if share(row) else "")
        for peer in peers:
            r = row["ratios"].get(peer)
            cells.append(f"{r['ratio']:.2f} ({r['low']:.2f} to {r['high']:.2f})" if r else "")
        lines.append(cells)
    return ["| " + " | ".join(cells) + " |" for cells in lines]


def results(report):
    out = [BEGIN, ""]
    for part in report["suites"]:
        out += [f"**{part['title']}.** " + " ".join(summary_lines(part)), "", *table(part), ""]
    out += [f"- {key}: {value}" for key, value in facts(report)]
    if any(row.get("disturbed") for part in report["suites"] for row in part["rows"]):
        out.append("- Rows with * were disturbed by other programs or by a drift of the clock")
    return "\n".join([*out, "", END])


def main():
    arguments = sys.argv[1:]
    if len(arguments) > 1 or arguments[:1] in (["-h"], ["--help"]):
        sys.exit(__doc__)
    check = arguments == ["--check"]
    if arguments and not check:
        report = compact(json.loads(pathlib.Path(arguments[0]).read_text()))
        if report["machine"]["changed"] or report["interrupted"]:
            sys.exit("publish: the report is of a tree with changes or was interrupted")
        RESULTS.write_text(json.dumps(report, separators=(",", ":")) + "\n")
    text = README.read_text()
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        sys.exit(f"publish: README has no place for the table: {BEGIN} ... {END}")
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    wanted = before + results(json.loads(RESULTS.read_text())) + after
    if check:
        sys.exit("publish: README differs from benches/results.json: run benches/publish.py" if text != wanted else 0)
    README.write_text(wanted)


if __name__ == "__main__":
    main()
