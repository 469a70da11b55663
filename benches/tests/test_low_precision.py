"""Operands of 16 bits keep their values, rows have the names that they are chosen by."""
import importlib.util
import unittest

import synthetic  # noqa: F401 (the path of the modules)
import contestants
import low_precision
import method


@unittest.skipUnless(importlib.util.find_spec("numpy"), "numpy is not installed")
class Numbers(unittest.TestCase):
    def test_bf16_is_rounded_to_the_nearest_and_ties_to_even(self):
        import numpy
        given = numpy.array([1.0, -2.5, 1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20], numpy.float32)
        rounded = method.numbers(low_precision.bf16(given))
        self.assertEqual(rounded.tolist(), [1.0, -2.5, 1.0, 1 + 2**-6, 1 + 2**-7])

    def test_rounded_integers_may_differ_by_a_step(self):
        import numpy
        ours, theirs = [numpy.array([200, 3], numpy.uint8)], [numpy.array([200, 4], numpy.uint8)]
        self.assertEqual(contestants.difference(ours, theirs), numpy.inf)
        self.assertAlmostEqual(contestants.difference(ours, theirs, rounded=True), 1 / 200)


class Rows(unittest.TestCase):
    def test_names_are_apart(self):
        names = [name for name, _ in low_precision.rows()]
        self.assertEqual(len(names), len(set(names)))


if __name__ == "__main__":
    unittest.main()
