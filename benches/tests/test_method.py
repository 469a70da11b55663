"""The claims of method.py, held to simulated noise."""
import math
import random
import unittest

import synthetic
import agree
import method


def run(generator, launch_noise, turn_noise, rare):
    """Turns of a contestant; now and then the noise is three times as large."""
    def noise(deviation):
        return generator.gauss(0, deviation) * (3 if generator.random() < rare else 1)

    def launch():
        own = noise(launch_noise)
        return [math.exp(own + noise(turn_noise)) for _ in range(synthetic.ROUNDS)]
    return [launch() for _ in range(synthetic.LAUNCHES)]


class Intervals(unittest.TestCase):
    def test_a_second_run_lies_in_the_interval_of_the_first(self):
        for launch_noise, turn_noise, rare in [(0.01, 0.01, 0), (0.03, 0.003, 0), (0.003, 0.03, 0), (0.01, 0.01, 0.1)]:
            generator = random.Random(7)
            ratio = lambda: method.ratio(run(generator, launch_noise, turn_noise, rare), run(generator, launch_noise, turn_noise, rare))
            pairs = [((), ratio(), ratio()) for _ in range(100)]
            share = agree.share(pairs, agree.holds)
            self.assertGreaterEqual(share, 0.90, (launch_noise, turn_noise, rare))
            self.assertGreaterEqual(agree.share(pairs, lambda a, b: a["low"] <= b["high"] and b["low"] <= a["high"]), 0.97)
            # Nor are they so wide that they say nothing: a few times the spread of the ratio's logarithm.
            width = sorted(math.log(a["high"] / a["low"]) for _, a, _ in pairs)[50]
            spread = math.sqrt(2 * (launch_noise**2 + turn_noise**2 / synthetic.ROUNDS) / synthetic.LAUNCHES)
            self.assertLess(width, 10 * spread)

    def test_rounds_do_not_stand_for_launches(self):
        # Each launch is steady and unlike the others: a bootstrap over turns alone would be far too sure.
        theirs = [[1.0] * 50, [1.1] * 50, [1.2] * 50]
        r = method.ratio(theirs, [[1.0] * 50] * 3)
        self.assertLess(r["low"], 1.0)
        self.assertGreater(r["high"], 1.2)

    def test_a_drift_that_meets_all_cancels(self):
        generator = random.Random(3)
        drift = [[generator.uniform(1, 3) for _ in range(4)] for _ in range(5)]
        r = method.ratio([[1.5 * d for d in launch] for launch in drift], drift)
        for value in r.values():
            self.assertAlmostEqual(value, 1.5)

    def test_one_launch_has_a_ratio_alone(self):
        self.assertEqual(method.ratio([[3.0, 3.0]], [[2.0, 2.0]]), {key: math.exp(math.log(1.5)) for key in ("ratio", "low", "high")})


class Rounds(unittest.TestCase):
    def test_long_runs_have_fewer_rounds(self):
        for slowest, wanted in [(1, 4), (250, 4), (300, 3), (600, 1), (999, 1), (1001, 0), (30_000, 0)]:
            self.assertEqual(method.rounds_of(slowest, 4, 0.25), wanted, slowest)


    def test_slow_rows_have_fewer_launches_but_never_one(self):
        for seconds, long, wanted in [(1, False, 5), (3, False, 4), (60, False, 3), (60, True, 2), (8, True, 2), (0, True, 5)]:
            self.assertEqual(method.launches_of(seconds, 5, long), wanted, seconds)
        self.assertEqual(method.launches_of(60, 1, False), 1)


class Noise(unittest.TestCase):
    def test_a_common_drift_is_marked_and_a_steady_machine_is_not(self):
        steady = [[1.0, 1.01], [0.99, 1.0]]
        self.assertLess(method.drift({"a": steady, "b": steady}), method.QUIET_DRIFT)
        slower = [[1.0, 1.0], [1.4, 1.4]]
        drift = method.drift({"a": slower, "b": slower})
        self.assertGreater(drift, method.QUIET_DRIFT)
        self.assertTrue(method.marks(0.0, drift) and method.marks(0.2, 0.0))
        self.assertEqual(method.marks(0.0, 0.0), [])


class Limits(unittest.TestCase):
    def test_rows_of_one_arithmetic_and_thread_count_have_one_limit(self):
        row = lambda threads, dtype, peak: {"threads": threads, "detail": {"target": "t", "peak_dtype": dtype, "row_peak_gflops": peak,
                                                                           "peak_gflops": peak}}
        rows = [row(1, "f32", 100), row(1, "f32", 180), row(1, "f32", 150), row(2, "f32", 310), row(1, "f64", 80),
                {"threads": 1, "error": "stopped"}]
        for _ in range(2):
            method.one_limit(rows)
            self.assertEqual([r["detail"]["peak_gflops"] for r in rows if "detail" in r], [150, 150, 150, 310, 80])


class Agreement(unittest.TestCase):
    def test_a_report_agrees_with_itself_and_not_with_a_shifted_one(self):
        a, b = synthetic.report(rows=3), synthetic.report(rows=3)
        self.assertTrue(all(agree.share(pairs, agree.holds) == 1 for pairs in agree.compare(a, b).values()))
        for r in b["suites"][0]["rows"]:
            for ratio in r["ratios"].values():
                ratio.update({key: 1.5 * value for key, value in ratio.items()})
        self.assertEqual(agree.share(agree.compare(a, b)["networks"], agree.holds), 0)


if __name__ == "__main__":
    unittest.main()
