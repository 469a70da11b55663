"""The lines of the suite `model`."""
import unittest

import model


def row(measured, predicted, name="k"):
    return {"workload": "w", "kernel": name, "measured_us": measured, "predicted_us": predicted}


class Report(unittest.TestCase):
    def test_quantiles_and_the_worst_in_both_directions(self):
        rows = [row(10.0 * i, 100.0, f"k{i}") for i in range(1, 11)] + [row(1000.0, 100.0, "late")]
        text = list(model.report({"loop programs": rows, "nothing": []}))
        self.assertIn("loop programs: 11, measured over predicted: 5 % 0.10, 25 % 0.30, 50 % 0.60", text[0])
        self.assertIn("median factor 2.00", text[0])
        self.assertEqual(len(text), 1 + model.WORST)
        self.assertIn("late", "\n".join(text[1:3]))
        self.assertIn("k1", "\n".join(text[1:3]))


if __name__ == "__main__":
    unittest.main()
