"""Rows whose contestants fail, differ, hang, take long, or know one thread alone."""
import os
import pathlib
import sys
import tempfile
import time
import types
import unittest
from unittest import mock

import synthetic  # noqa: F401 (the path of the modules)
import contestants
import measure

FAKE = pathlib.Path(__file__).with_name("fake.py")
OPTIONS = types.SimpleNamespace(launches=2, rounds=2, seconds=0.01)


class Fake:
    tolerance, in_process, compared = 1e-3, True, True
    spread = definition = None

    def __init__(self, name, mode="good", ms=5.0, serial=False):
        self.name, self.mode, self.ms, self.serial, self.starts = name, mode, ms, serial, []

    @property
    def has_other(self):
        return self.spread is not None

    @property
    def has_definition(self):
        return self.definition is not None

    def start(self, workload, threads, folder, which="Contestant"):
        self.starts.append(threads)
        process = contestants.Process([sys.executable, str(FAKE), str(self.ms), self.mode], folder)
        process.outputs = lambda: [self.definition if which == "Definition" else 1.0 + (self.mode == "wrong") + (self.spread if which == "Other" else 0.0)]
        return process

    def detail(self, workload, threads):
        return {"target": "none", "peak_gflops": 1.0, "flops": 1, "least_bytes": 1, "peak_memory_bytes": 1, "stages": [], "kernels": []}


def run(*fakes, counts=(1,), options=OPTIONS, workload={}):
    apart = lambda ours, theirs, rounded=False: abs(ours[0] - theirs[0])
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(measure, "TARGET", pathlib.Path(folder)), \
            mock.patch.object(measure, "difference", apart):
        return measure.Measurement({"name": "row", **workload}, list(counts), list(fakes), options, "latency_ms").run()


class Rows(unittest.TestCase):
    def test_a_good_row_has_times_and_ratios(self):
        row, = run(Fake("ours", ms=4.0), Fake("theirs", ms=8.0))
        self.assertAlmostEqual(row["ratios"]["theirs"]["ratio"], 2.0)
        self.assertEqual(row["contestants"]["theirs"]["turns_ms"], [[8.0, 8.0], [8.0, 8.0]])
        self.assertNotIn("error", row)

    def test_wrong_outputs_stop_the_row_before_any_time(self):
        row, = run(Fake("ours", "wrong"), Fake("theirs"))
        self.assertEqual(row["error"], "outputs of ours differ from theirs's by 1 of the largest value; not timed")
        self.assertEqual(row["contestants"], {})

    def test_a_difference_that_other_roundings_explain_is_noted(self):
        theirs = Fake("theirs")
        for spread, stops in [(0.2, False), (0.05, True)]:
            theirs.spread = spread
            row, = run(Fake("ours", "wrong"), theirs)
            self.assertEqual("error" in row, stops, row)
            self.assertEqual(len(row["notes"]), not stops)

    def test_outputs_as_far_from_the_definition_as_those_of_its_peer_are_noted(self):
        # ours is 2, theirs 1: beside 1.6 both are as far, beside 1.2 and 1.0005 theirs is much nearer, or near enough.
        for definition, stops in [(1.6, False), (1.2, True), (1.0005, True)]:
            theirs, third = Fake("theirs"), Fake("third")
            theirs.definition = definition
            row, = run(Fake("ours", "wrong"), theirs, third)
            self.assertEqual("error" in row, stops, row)
            self.assertEqual(list(row["ratios"]), [] if stops else ["theirs", "third"])
            self.assertEqual(len(row["notes"]), not stops)
            if not stops:
                self.assertIn("ours by 0.4, theirs by 0.6, third by 0.6", row["notes"][0])

    def test_distances_from_the_definition_are_told_where_a_workload_is_judged(self):
        theirs = Fake("theirs")
        theirs.definition = 1.25
        for workload, wanted in [({}, None), ({"judged": True}, {"ours": 0.25, "theirs": 0.25})]:
            row, = run(Fake("ours"), theirs, workload=workload)
            self.assertEqual(row.get("distances"), wanted)

    def test_outputs_that_are_not_those_of_the_workload_are_not_compared(self):
        other = Fake("other", "wrong")
        other.compared = False
        row, = run(Fake("ours"), Fake("theirs"), other)
        self.assertEqual(list(row["ratios"]), ["theirs", "other"])

    def test_one_peer_that_differs_where_another_agrees_is_left_out(self):
        row, = run(Fake("ours"), Fake("theirs", "wrong"), Fake("good"))
        self.assertEqual(list(row["ratios"]), ["good"])
        self.assertEqual(row["skipped"], {"theirs": "its outputs differ from all others: by 1 of the largest value; not timed"})

    def test_a_peer_that_fails_leaves_its_row_by_name_and_the_row_goes_on(self):
        with mock.patch.object(contestants, "PATIENCE", 2.0):
            row, = run(Fake("ours"), Fake("refuses", "refuses"), Fake("dies", "dies"), Fake("hangs", "hangs"), Fake("good"))
        self.assertEqual(list(row["ratios"]), ["good"])
        self.assertEqual(row["skipped"]["refuses"], "RuntimeError: this model is not for me")
        self.assertEqual(row["skipped"]["dies"], "ended while it was measured: was ended by SIGSEGV")
        self.assertRegex(row["skipped"]["hangs"], "ended while it was measured: gave no answer for 2 s")
        self.assertNotIn("error", row)

    def test_the_row_stops_where_tilewright_fails(self):
        for mode in ("refuses", "dies"):
            row, = run(Fake("ours", mode), Fake("theirs"))
            self.assertTrue(row["error"].startswith("ours: "), row)

    def test_a_serial_peer_is_measured_once_beside_all_thread_counts(self):
        serial = Fake("serial", ms=12.0, serial=True)
        one, two = run(Fake("ours", ms=6.0), serial, counts=(1, 2))
        self.assertEqual(serial.starts, [1, 1])
        self.assertEqual((one["threads"], two["threads"]), (1, 2))
        for row in (one, two):
            self.assertAlmostEqual(row["ratios"]["serial"]["ratio"], 2.0)

    @unittest.skipUnless(hasattr(os, "sched_setaffinity"), "programs cannot be bound to cores here")
    def test_contestants_of_one_thread_share_a_core_and_others_have_all(self):
        for threads, wanted in [(1, contestants.cores()[1 % len(contestants.cores()):][:1]), (2, contestants.cores())]:
            row, = run(Fake("ours"), Fake("theirs"), counts=(threads,))
            self.assertEqual([c["version"] for c in row["contestants"].values()], [wanted, wanted])

    @unittest.skipUnless(pathlib.Path("/proc/self/stat").exists(), "the system does not say whether a program is stopped")
    def test_a_contestant_is_stopped_while_it_is_not_its_turn(self):
        with tempfile.TemporaryDirectory() as folder:
            process = Fake("ours").start({}, 1, folder)

            def stops():
                """Signals take their time."""
                end = time.monotonic() + 5
                state = lambda: pathlib.Path(f"/proc/{process.process.pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
                while state() != "T" and time.monotonic() < end:
                    time.sleep(0.001)
                return state() == "T"

            self.assertTrue(stops())
            self.assertEqual(process.turn(0.01), [5.0, 5.0])
            self.assertTrue(stops())
            process.close()
            self.assertEqual(process.process.returncode, 0)

    def test_a_run_as_long_as_a_launch_counts_once(self):
        slow = Fake("slow", ms=30.0)
        row, = run(Fake("ours"), slow)
        self.assertEqual(row["contestants"]["slow"]["turns_ms"], [[30.0], [30.0]])
        self.assertEqual(len(row["contestants"]["ours"]["turns_ms"][0]), 1)


if __name__ == "__main__":
    unittest.main()
