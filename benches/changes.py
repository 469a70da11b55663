#!/usr/bin/env python3
"""Differences between two builds beyond the noise: `changes.py REPORT.json`, written with --against A=PROGRAM.

A row has changed when its interval does not hold 1 and the middle is more than 1 % away from it. Exit code 3 when one is slower.
"""
import json
import statistics
import sys

LEAST = 0.01


def main():
    report = json.load(open(sys.argv[1]))
    slower = 0
    for part in report["suites"]:
        rows = [(row["name"], row["threads"], row["ratios"]["A"]) for row in part["rows"] if "A" in row.get("ratios", {})]
        changed = [row for row in rows if abs(row[2]["ratio"] - 1) > LEAST and not row[2]["low"] <= 1 <= row[2]["high"]]
        print(f"{part['title']}: {len(changed)} of {len(rows)} rows changed beyond their noise")
        for name, threads, r in sorted(changed, key=lambda row: row[2]["ratio"]):
            word = "faster" if r["ratio"] > 1 else "SLOWER"
            slower += r["ratio"] < 1
            print(f"  {name:24} {threads}T  A/B {r['ratio']:.3f} [{r['low']:.3f}, {r['high']:.3f}]  B is {word}")
        if rows:
            print(f"  geometric mean of A/B: {statistics.geometric_mean(r['ratio'] for _, _, r in rows):.3f}")
    sys.exit(3 if slower else 0)


if __name__ == "__main__":
    main()
