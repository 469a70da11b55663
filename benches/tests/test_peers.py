"""Every adapter has what host.py asks for, and its packages are pinned."""
import unittest

import synthetic  # noqa: F401 (the path of the modules)
import environment
from contestants import Peer
from suites import SUITES


class Peers(unittest.TestCase):
    def test_adapters_are_complete_without_their_packages(self):
        for name in environment.names():
            adapter = Peer(name).adapter
            self.assertTrue(adapter.__doc__ and adapter.KINDS, name)
            self.assertTrue(hasattr(adapter, "command") or hasattr(adapter, "Contestant") and adapter.version.__call__, name)

    def test_packages_are_pinned(self):
        pinned = environment.pinned()
        for name in environment.names():
            for package in environment.requirements(name):
                self.assertIn(package, pinned, name)
        self.assertTrue(all(package in pinned for package in environment.TOOLS))
        self.assertTrue(all("==" in line for line in pinned.values()))

    def test_a_peer_that_rounds_is_judged_by_the_network_in_f32(self):
        rounding = [peer for peer in SUITES["bf16"]["peers"] if not Peer(peer).has_definition]
        self.assertEqual(rounding, [])

    def test_suites_name_peers_that_exist(self):
        for suite in SUITES.values():
            self.assertLessEqual(set(suite["peers"]), set(environment.names()))


if __name__ == "__main__":
    unittest.main()
