#!/usr/bin/env python3
"""Do two reports of one machine say the same? `agree.py A B`, each a report.json or the folder that holds one.

For every row and peer that both have: whether the ratio of B lies in the interval of A, whether that of A lies in the interval of B,
and whether the intervals meet. Rows that do not agree are listed. Exit code 1 when fewer than 95 of 100 ratios of B lie in their
intervals of A.
"""
import json
import pathlib
import sys

WANTED = 0.95


def ratios(report):
    """(suite, name, threads, peer) -> ratio with its interval."""
    return {(part["suite"], row["name"], row["threads"], peer): r
            for part in report["suites"] for row in part["rows"] for peer, r in row.get("ratios", {}).items()}


def holds(interval, other):
    return interval["low"] <= other["ratio"] <= interval["high"]


def compare(a, b):
    """Suite -> [(what, ratio of a, ratio of b)] for what both have."""
    first, second = ratios(a), ratios(b)
    table = {}
    for key in first:
        if key in second:
            table.setdefault(key[0], []).append((key[1:], first[key], second[key]))
    return table


def share(pairs, test):
    return sum(test(a, b) for _, a, b in pairs) / len(pairs)


def line(title, pairs):
    forward, back = share(pairs, holds), share(pairs, lambda a, b: holds(b, a))
    meet = share(pairs, lambda a, b: a["low"] <= b["high"] and b["low"] <= a["high"])
    return (f"{title}: of {len(pairs)} ratios, B's lie in A's interval: {100 * forward:.0f} %, A's in B's: {100 * back:.0f} %, "
            f"the intervals meet: {100 * meet:.0f} %")


def read(name):
    path = pathlib.Path(name)
    path = path / "report.json" if path.is_dir() else path
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as error:
        sys.exit(f"agree: {path}: {getattr(error, 'strerror', None) or 'is not a report'}")


def main():
    if len(sys.argv) != 3 or sys.argv[1] in ("-h", "--help"):
        sys.exit(__doc__)
    table = compare(read(sys.argv[1]), read(sys.argv[2]))
    if not table:
        sys.exit("agree: the reports have no row in common")
    for suite, pairs in table.items():
        print(line(suite, pairs))
        for (name, threads, peer), a, b in pairs:
            if not holds(a, b):
                print(f"  {name:24} {threads}T  {peer:14} {a['ratio']:.3f} [{a['low']:.3f}, {a['high']:.3f}]  then "
                      f"{b['ratio']:.3f} [{b['low']:.3f}, {b['high']:.3f}]")
    every = [pair for pairs in table.values() for pair in pairs]
    if len(table) > 1:
        print(line("all", every))
    sys.exit(0 if share(every, holds) >= WANTED else 1)


if __name__ == "__main__":
    main()
