"""The program of the examples: power spectra of signals, one signal a row."""
import math

import numpy as np

import tilewright as tw
from tilewright import builder as tb


def spectrum() -> tw.Program:
    """Signals x(n, t) to the power of their first T / 2 frequencies."""
    n, f, t, T = tb.names("n f t T")
    program = tb.define("spectrum")
    x = program.input("f32", "x", ("N", T))
    cosine, sine, re, im = (program.temporary(name) for name in ("cosine", "sine", "re", "im"))
    power = program.output("power")
    angle = tb.cast("f32", f * t % T) * (2 * math.pi) / tb.cast("f32", T)
    ranges = [tb.within(f, 0, T / 2), tb.within(t, 0, T)]
    program.equation(cosine[t, f], "=", tb.cos(angle), where=ranges)
    program.equation(sine[t, f], "=", tb.sin(angle), where=ranges)
    re[n, f] += x[n, t] * cosine[t, f]
    im[n, f] += x[n, t] * sine[t, f]
    power[n, f] = re[n, f] ** 2 + im[n, f] ** 2
    return program.build(threads=1)


def signals(count: int, length: int = 1024) -> np.ndarray:
    """Noise with a tone, another one in each row."""
    rng = np.random.default_rng(0)
    tone = np.sin(2 * np.pi * np.outer(rng.integers(1, length // 2, count), np.arange(length)) / length)
    return (tone + rng.standard_normal((count, length))).astype(np.float32)


def check(ids: np.ndarray, power: np.ndarray, x: np.ndarray) -> None:
    """Compares what a cluster computed with one process."""
    assert sorted(ids) == list(range(len(x))), "each row comes out once"
    expected = spectrum()(x)
    np.testing.assert_allclose(power[np.argsort(ids)], expected, rtol=1e-4, atol=1e-3 * expected.max())
    print(f"{len(x)} spectra as in one process")
