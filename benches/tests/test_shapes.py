"""The lines of the suite `shapes`."""
import unittest

import shapes


class Report(unittest.TestCase):
    def test_least_and_median_of_the_launches(self):
        def run(ready, first, memory):
            return [{"size": n, "ready_ms": ready, "first_run_ms": first, "run_ms": 2.0, "resident_mib": memory * (1 + (n == shapes.LENGTHS[-1]))}
                    for n in shapes.LENGTHS]
        lengths = {"ours": [run(30, 10, 100), run(50, 10, 100), run(40, 10, 100)]}
        steps = {"ours": [{"total_ms": 600.0, "median_ms": 1.0, "min_ms": 0.5, "compilations": 6}]}
        text = list(shapes.report(lengths, steps))
        self.assertIn("ours first 40.0/50.0 ms (ready in 30.0/40.0), again 2.0/2.0", text[0])
        self.assertIn("100 MiB with one length, 200 MiB with 12 (2.00 times)", text[-2])
        self.assertIn("6 compilations", text[-1])


if __name__ == "__main__":
    unittest.main()
