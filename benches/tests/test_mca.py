"""Reading of listings, choice of loops, and the verdict over the cores."""
import unittest

import synthetic  # noqa: F401 (the path of the modules)
import mca


class Loops(unittest.TestCase):
    def test_a_listing_has_its_phases(self):
        listing = "kernel\n     0  .word 0xd503201f\n     4  .word 0xd65f03c0\nnext\n     0  .word 0xd65f03c0\n"
        self.assertEqual(mca.words(listing), [[0xD503201F, 0xD65F03C0], [0xD65F03C0]])

    def test_the_innermost_loops_are_found(self):
        outer = ["mov x0, #4", "mov x1, #8", "fmla v0.4s, v1.4s, v2.s[0]", "subs x1, x1, #1", "b.ne\t#-8", "subs x0, x0, #1", "b.ne\t#-20"]
        self.assertEqual(mca.innermost_loops(outer), [outer[2:5]])

    def test_products_are_counted_beside_all_arithmetic(self):
        loop = ["ldr\tq0, [x1]", "fmla\tv0.4s, v1.4s, v2.s[0]", "add\tx1, x1, #16", "sdot\tv3.4s, v4.16b, v5.4b[0]", "add\tv6.4s, v6.4s, v3.4s", "ext\tv1.16b, v1.16b, v1.16b, #8"]
        self.assertEqual(mca.arithmetic(loop), (2, 3))

    def test_a_kernel_is_within_the_limit_on_all_cores_but_one(self):
        near, far = {"cycles": 11, "limit": 10}, {"cycles": 20, "limit": 10}
        self.assertTrue(mca.is_within([near, near, near, far]))
        self.assertFalse(mca.is_within([near, near, far, far]))
        # where a core lacks the instructions, one of those that are left may be beyond
        self.assertTrue(mca.is_within([near, far]))
        self.assertFalse(mca.is_within([far, far]))


if __name__ == "__main__":
    unittest.main()
