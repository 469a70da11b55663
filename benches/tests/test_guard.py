"""Limits of the guard, by kind of row."""
import unittest

import synthetic  # noqa: F401 (the path of the modules)
import guard


class Judge(unittest.TestCase):
    def bad(self, kind, before, now, same_compiler=True):
        return guard.judge(kind, before, now, same_compiler)[1]

    def test_a_slower_kernel_and_slower_compiling_are_caught(self):
        self.assertTrue(self.bad("run", 1_000_000, 1_010_000))
        self.assertTrue(self.bad("compile", 1_000_000_000, 1_030_000_000))

    def test_what_repeats_or_is_faster_is_let_through(self):
        for kind in ("run", "compile"):
            self.assertFalse(self.bad(kind, 1_000_000, 1_000_000))
            self.assertFalse(self.bad(kind, 1_000_000, 900_000))
        self.assertFalse(self.bad("run", 10_000, 10_150))

    def test_compiling_is_judged_by_the_compiler_of_the_baseline_alone(self):
        self.assertFalse(self.bad("compile", 1_000_000, 2_000_000, same_compiler=False))
        self.assertTrue(self.bad("run", 1_000_000, 2_000_000, same_compiler=False))

    def test_every_row_has_a_baseline(self):
        import json
        told = json.loads(guard.BASELINE.read_text())["instructions"]
        self.assertLessEqual(set(told), set(guard.rows()))
        self.assertLessEqual(set(guard.rows()) - guard.LARGE, set(told))
        self.assertLessEqual(guard.LARGE, set(guard.rows()))

    def test_every_network_of_the_repository_is_a_row(self):
        self.assertIn("network/resnet18", guard.rows())
        self.assertEqual(len(guard.NETWORK), len(list((guard.ROOT / "datasets" / "networks").glob("*.onnx"))))

    def test_generated_code_is_told_from_functions_with_names(self):
        listing = """
1,680,319 (100.0%)  PROGRAM TOTALS
  488,670 (29.08%)  ???:0x000000000483f000 [???]
   96,064 ( 5.72%)  src/runtime/random.rs:seeded [tilewright]
      920 ( 0.05%)  ???:0x0000000004840000 [???]
    7,920 ( 0.60%)  ???:finish_grow [tilewright]
"""
        self.assertEqual(guard.instructions(listing, r"\?\?\?:0x[0-9a-f]+ \[\?\?\?\]"), [488670, 920])
        self.assertEqual(guard.instructions(listing, "PROGRAM TOTALS"), [1680319])


if __name__ == "__main__":
    unittest.main()
