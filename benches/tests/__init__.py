"""Tests of the benchmark's own parts, with nothing but Python: `python3 -m unittest discover benches/tests`."""
