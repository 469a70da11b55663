"""A whole run: rows with wide intervals are measured again."""
import types
import unittest

import synthetic  # noqa: F401 (the path of the modules)
import method
import run


class Fake:
    """Rows whose interval becomes narrower by a factor with each further launch."""

    def __init__(self, width, factor=0.7, seconds=0.0, launches=5):
        self.wide, self.factor, self.seconds, self.launches = width, factor, seconds, launches

    def width(self):
        return self.wide


class Further(unittest.TestCase):
    def further(self, *fakes, patience=60.0):
        """Which of them were measured on, in turn."""
        options = types.SimpleNamespace(target=None, tilewright="", against={}, patience=patience, launches=5)
        runner = run.Run(options, {}, [], lambda: None)
        order = []

        def keep(part, fake, launches):
            order.append(fakes.index(fake))
            fake.launches += launches
            fake.wide *= fake.factor**launches
        runner.keep = keep
        runner.go_on([(None, fake) for fake in fakes])
        return order

    def test_the_widest_interval_comes_first_until_all_are_narrow(self):
        wide, wider, narrow = Fake(2.5 * method.WIDE), Fake(3.0 * method.WIDE), Fake(0.9 * method.WIDE)
        self.assertEqual(self.further(wide, wider, narrow), [1, 0, 1, 0])

    def test_what_stays_wide_ends_all_the_same(self):
        self.assertEqual(self.further(Fake(1.0, factor=1.0)), [0] * ((method.MOST - 1) * 5 // method.FURTHER))

    def test_rows_that_take_too_long_are_left_alone(self):
        self.assertEqual(self.further(Fake(1.0, seconds=6.0), patience=5.0), [])


if __name__ == "__main__":
    unittest.main()
