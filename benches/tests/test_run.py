"""What the whole run does beside its rows: disturbed rows are measured again."""
import types
import unittest

import synthetic  # noqa: F401 (the path of the modules)
import run


def row(unrest, ratio=1.0, threads=1):
    mark = ["the speed drifted"] if unrest > 1 else []
    return {"name": "row", "threads": threads, "unrest": unrest, "disturbed": mark, "ratio": ratio}


class Again(unittest.TestCase):
    def again(self, first, later, patience=60.0, seconds=0.0):
        """The rows that stay after others are measured again, and how often that was."""
        runner = run.Run(types.SimpleNamespace(target=None, tilewright="", against={}, patience=patience), {}, [], lambda: None)
        part, later = {"rows": list(first)}, list(later)
        runner.measured = lambda *how: later.pop(0)
        runner.keep = lambda part, rows: [run.place(part, r) for r in rows]
        before = len(later)
        runner.again([run.Measured(list(first), seconds, (part,))])
        return part["rows"], before - len(later)

    def test_a_disturbed_row_is_measured_until_it_is_quiet(self):
        rows, times = self.again([row(3.0)], [[row(0.5, 7.0)], [row(0.1)]])
        self.assertEqual((rows, times), ([row(0.5, 7.0)], 1))

    def test_the_quietest_stays_whatever_its_ratio(self):
        rows, times = self.again([row(3.0, 9.0)], [[row(2.0, 1.0)], [row(2.5, 8.0)], [row(0.0)]])
        self.assertEqual((rows, times), ([row(2.0, 1.0)], 2))

    def test_rows_of_other_threads_keep_what_was_quieter(self):
        rows, _ = self.again([row(3.0, threads=1), row(0.2, threads=2)], [[row(0.4, 5.0, 1), row(0.6, 5.0, 2)]])
        self.assertEqual(rows, [row(0.4, 5.0, 1), row(0.2, threads=2)])

    def test_quiet_rows_and_rows_that_take_too_long_are_left_alone(self):
        self.assertEqual(self.again([row(0.9)], [])[1], 0)
        self.assertEqual(self.again([row(3.0)], [], patience=5.0, seconds=6.0)[1], 0)

    def test_a_failure_stops_the_row(self):
        wrong = {"name": "row", "threads": 1, "error": "outputs differ"}
        self.assertEqual(self.again([row(3.0)], [[wrong]])[0], [wrong])


if __name__ == "__main__":
    unittest.main()
