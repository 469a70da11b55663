"""The suite of algorithms: its layers, its contestants, and how near to the fastest a choice is."""
import importlib.util
import json
import types
import unittest
from unittest import mock

import synthetic
import algorithms
import report
import run
import suites


def row(chosen, ratios, name="layer", threads=1):
    layers = [{"chosen": {"algorithm": chosen}}] if chosen else []
    return {"name": name, "threads": threads, "ratios": {key: {"ratio": r, "low": r, "high": r} for key, r in ratios.items()},
            "detail": {"algorithms": {"layers": layers}}}


class Layers(unittest.TestCase):
    def test_every_layer_is_there_once_and_has_a_fast_algorithm(self):
        every = [algorithms.geometry(r) for r in algorithms.rows()]
        names = [r["name"] for r in algorithms.rows()]
        self.assertEqual((len(set(every)), len(set(names))), (len(every), len(every)))
        for r, (c, h, w, f, kh, kw, ph, pw) in zip(algorithms.rows(), every):
            self.assertIn((kh, kw), algorithms.WINDOWS, r["name"])
            self.assertGreaterEqual(min(c, f), algorithms.LEAST_CHANNELS, r["name"])
            products = c * f * kh * kw * (h + 2 * ph - kh + 1) * (w + 2 * pw - kw + 1)
            self.assertLessEqual(2 * products, 8e9, r["name"])
            origin = r["name"].partition(f"_{c}x")[0]
            self.assertEqual(algorithms.text(origin, algorithms.geometry(r), r["source"]), ",".join(r.values()))

    @unittest.skipUnless(importlib.util.find_spec("onnx"), "onnx is not installed")
    def test_the_layers_of_every_network_that_is_present_are_in_the_table(self):
        every = {algorithms.geometry(r) for r in algorithms.rows()}
        found = {name: algorithms.layers_of_network(name) for name in json.loads((suites.ROOT / "datasets" / "models.json").read_text())}
        for name, layers in found.items():
            self.assertLessEqual(set(layers), every, name)
        self.assertIn((512, 7, 7, 512, 3, 3, 1, 1), found["resnet18"])
        self.assertEqual(found["mobilenet_v2"], [])

    @unittest.skipUnless(importlib.util.find_spec("onnx"), "onnx is not installed")
    def test_a_layer_becomes_the_model_that_it_names(self):
        import onnx
        layer = (8, 5, 6, 9, 1, 7, 0, 3)
        shape = algorithms.text("x", layer, "here").split(",")[2]
        with mock.patch.object(suites, "save_inputs", lambda name, arrays: {}), mock.patch.object(suites, "TARGET", suites.ROOT / "target" / "test-bench"):
            made = suites.operator({"operator": "conv", "name": "one_layer", "shape": shape})
        self.assertEqual(algorithms.layers_of(onnx.load(made["path"]), {}), [layer])


class Contestants(unittest.TestCase):
    def test_every_algorithm_is_forced_beside_the_choice(self):
        options = types.SimpleNamespace(target=None, tilewright="tilewright", against={}, peers=None, threads=None, patience=0)
        runner = run.Run(options, {"skipped": []}, [], lambda: None)
        make = lambda: {"name": "layer", "kind": "onnx", "path": "layer.onnx", "inputs": {}, "options": algorithms.OPTIONS}
        measurement = runner.begin({"suite": "algorithms", "metric": "latency_ms"}, "layer", make, [1], [])
        commands = {name: " ".join(c.arguments(measurement.workload, 1)) for name, c in measurement.contestants.items()}
        self.assertEqual(list(commands), ["tilewright", "direct", "winograd-2", "winograd-4", "winograd-6"])
        for name, command in commands.items():
            self.assertIn("--max-error 1", command)
            self.assertEqual(f"--algorithm {name}" in command, name != "tilewright")
        self.assertEqual(measurement.first, "tilewright")

    def test_other_suites_have_no_variants_and_are_the_default(self):
        self.assertEqual([suite for suite in suites.SUITES if run.variants_of(suite)], ["algorithms", "products", "quotients"])


class Choices(unittest.TestCase):
    def test_the_distance_is_from_the_fastest_other_algorithm(self):
        self.assertAlmostEqual(algorithms.distance(row("direct", {"direct": 0.5, "winograd-2": 0.8, "winograd-4": 2.0})), 0.25)
        self.assertEqual(algorithms.distance(row("winograd-4", {"direct": 1.5, "winograd-2": 1.2, "winograd-4": 0.9})), 0.0)
        self.assertEqual(algorithms.distance(row("direct", {"direct": 1.0})), 0.0)
        self.assertEqual(algorithms.chosen(row(None, {"direct": 1.0})), "direct")

    def test_the_share_of_near_choices_is_told_for_each_number_of_threads(self):
        rows = [row("direct", {"winograd-2": 1.3}), row("direct", {"winograd-2": 0.96}), row("winograd-2", {"direct": 0.8}, name="far"),
                row("direct", {"direct": 1.0, "winograd-2": 2.0}, threads=2), {"name": "stopped", "threads": 1, "error": "why"}]
        one, two = algorithms.lines({"rows": rows})
        self.assertIn("On 1 thread the choice is within 5 % of the fastest algorithm in 2 of 3 layers (67 %)", one)
        self.assertIn("at worst 25.0 % (far); chosen: direct 2, winograd-2 1.", one)
        self.assertIn("On 2 threads the choice is within 5 % of the fastest algorithm in 1 of 1 layers (100 %)", two)
        self.assertEqual(algorithms.lines({"rows": [row("direct", {"onnxruntime": 1.0})]}), [])

    def test_the_report_and_the_progress_name_the_choice(self):
        whole = synthetic.report(suites=["algorithms"])
        part, = whole["suites"]
        for made in part["rows"]:
            made["detail"]["algorithms"] = {"layers": [{"chosen": {"algorithm": "winograd-4"}}]}
        header, body = report.table_of(part)
        self.assertTrue(all(len(cells) == len(header) for cells in body))
        self.assertEqual(body[0][header.index("chosen")], "winograd-4")
        self.assertIn("within 5 % of the fastest", report.markdown(whole))
        self.assertIn("within 5 % of the fastest", report.page(whole, lambda part, report: []))
        self.assertIn("chose winograd-4, ", run.line(part["rows"][0], part["peers"], "latency_ms"))


if __name__ == "__main__":
    unittest.main()
