"""Files written from a report: every suite, rows that were stopped, the published pages and figure."""
import copy
import json
import unittest
from xml.etree import ElementTree

import synthetic
import figure
import publish
import report
from suites import SUITES


class Reports(unittest.TestCase):
    def setUp(self):
        self.report = synthetic.report()

    def texts(self):
        return report.markdown(self.report), report.page(self.report, lambda part, whole: [("<svg></svg>", "a figure")])

    def test_every_suite_has_its_place(self):
        for text in self.texts():
            for suite in SUITES.values():
                self.assertIn(suite["title"], report.html.unescape(text))
            self.assertIn("not fetched (make models)", text)

    def test_a_stopped_row_says_why(self):
        self.report["suites"][0]["rows"][0] = {"name": "resnet18", "threads": 1, "error": "outputs differ by <much>"}
        for text in self.texts():
            self.assertIn("outputs differ by <much>", report.html.unescape(text))
        self.assertNotIn("<much>", self.texts()[1])

    def test_verdicts_follow_the_intervals(self):
        row = lambda low, high: {"threads": 1, "ratios": {"p": {"ratio": (low * high) ** 0.5, "low": low, "high": high}}}
        part = {"peers": ["p"], "rows": [row(1.01, 1.2), row(0.9, 1.1), row(0.5, 0.9), row(2, 3)]}
        self.assertEqual(report.verdicts(part)["p"][:3], (2, 1, 1))

    def test_the_ilp_is_told_for_rows_of_one_kernel(self):
        part, = synthetic.report(rows=3, suites=["polybench"])["suites"]
        for row, ms in zip(part["rows"], (1.0, 1.0, 2.0, 2.0, 700.0, 700.0)):
            row["detail"]["stages"][0]["ms"] = ms
        worst = part["rows"][-1]["name"]
        self.assertEqual(report.ilp_lines(part), [f"The ILP schedules a kernel in 2.00 ms (median of 3), at worst in 700.0 ms ({worst})."])


class Published(unittest.TestCase):
    def test_several_suites_are_published_from_one_report(self):
        whole = synthetic.report()
        text = publish.results(publish.compact(copy.deepcopy(whole)))
        for part in whole["suites"]:
            self.assertIn(f"**{part['title']}.** Against {part['peers'][0]}: ", text)
            shown = [row for row in part["rows"] if f"| {row['name']} | {row['threads']} | " in text]
            self.assertEqual(len(shown), len(part["rows"]) if part["suite"] in publish.WHOLE else publish.SLOWEST)
        # The stored report gives the same text, also when it is compacted again.
        stored = json.loads(json.dumps(publish.compact(copy.deepcopy(whole))))
        self.assertEqual(publish.results(stored), text)
        self.assertEqual(publish.results(publish.compact(stored)), text)

    def test_pages_and_figure_are_what_results_say(self):
        texts = publish.published(json.loads(publish.RESULTS.read_text()))
        self.assertEqual(set(texts), {publish.README, publish.PAGE, publish.FIGURE})
        for path, text in texts.items():
            self.assertTrue(path.read_text() == text, f"run benches/publish.py: {path.name}")

    def test_the_figure_has_a_bar_for_each_ratio(self):
        part, = publish.compact(synthetic.report(rows=3, suites=["networks"]))["suites"]
        root = ElementTree.fromstring(figure.figure(part))
        bars = [bar for bar in root.iter("{http://www.w3.org/2000/svg}rect") if float(bar.get("x")) >= figure.NAMES and bar.get("height") != "12"]
        ratios = sum(len(peers) for threads in (1, 2) for _, peers in figure.lines(part, threads))
        self.assertEqual(len(bars), ratios)
        self.assertTrue(all(float(bar.get("width")) <= figure.PANEL for bar in bars))


if __name__ == "__main__":
    unittest.main()
