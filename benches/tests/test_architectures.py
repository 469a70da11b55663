"""The networks of architectures.py have the inputs that they tell, and are the same each time."""
import unittest

import synthetic  # noqa: F401  (the path of the benchmark)
import architectures


class Models(unittest.TestCase):
    def test_each_is_a_model_with_its_inputs(self):
        try:
            import onnx  # noqa: F401
        except ImportError as error:
            self.skipTest(f"{error.name} is not installed")
        for name in architectures.ARCHITECTURES:
            model, inputs = architectures.model(name)
            self.assertEqual([value.name for value in model.graph.input], list(inputs), name)
            self.assertEqual(model.SerializeToString(), architectures.model(name)[0].SerializeToString(), name)

    def test_rounded_ones_exist(self):
        self.assertLessEqual(architectures.ROUNDED, set(architectures.ARCHITECTURES))


if __name__ == "__main__":
    unittest.main()
