#!/usr/bin/env python3
"""Compile a network and a program in Python, save them, and compare schedules: `make test-python` runs it.

usage: PYTHONPATH=target/python python3 examples/python.py       (after scripts/python-package, or with the wheel installed)
"""
import pathlib
import tempfile

import numpy as np

import tilewright as tw
import tilewright.onnxruntime as ort
from tilewright import builder as tb

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODEL = ROOT / "tests" / "fixtures" / "operators" / "conv_batch_norm_relu.onnx"

# A network: arrays in, arrays out. What is contiguous is read and written where it lies.
model = tw.compile(MODEL, threads=2)
image = np.random.default_rng(0).standard_normal((1, 6, 7, 7), np.float32)
features = model(image)
print(model, features.shape)

# Into an array that is there already.
out = np.empty_like(features)
assert model(image, out=out) is out and np.array_equal(out, features)

# What the compiler did: as text, as data, as a table in a notebook.
report = model.explain(image)
print(f"{len(report.data['kernels'])} kernel, {report.data['code_bytes']} bytes of code")

# A module for another process. Loading one is like running a program: the file must be trusted.
with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder) / "model.tw"
    model.save(path)
    assert np.array_equal(tw.load(path)(image), features)

# The interface of ONNX Runtime.
session = ort.InferenceSession(MODEL)
(same,) = session.run(None, {session.get_inputs()[0].name: image})
assert np.array_equal(same, features)

# A program, with a schedule by hand: proven when it is compiled.
gemm = tw.program("def gemm(f32(M, K) A, f32(K, N) B) -> (C) { C(m, n) +=! A(m, k) * B(k, n) }")
a, b = np.ones((96, 64), np.float32), np.ones((64, 128), np.float32)
tiled = (
    tw.Schedule("tiled")
    .distribute(["C_init", "C"], "m")
    .tile(("C", ["m", "n"]), [8, 32], ["mo", "no", "mi", "ni"])
    .reorder(("C", ["mo", "no", "k", "mi", "ni"]))
    .unroll("mi")
    .vectorize("ni")
)
assert np.array_equal(gemm.schedule(tiled)(a, b), gemm(a, b))
print(gemm.compare(a, b, schedules=[tiled], seconds=0.2))

# The same program, built with Python's operators.
m, n, k = tb.names("m n k")
built = tb.define("gemm")
A, B, C = built.input("f32", "A", ("M", "K")), built.input("f32", "B", ("K", "N")), built.output("C")
C[m, n] += A[m, k] * B[k, n]
assert np.array_equal(built.build()(a, b), gemm(a, b))

# What would compute something else is refused, with two instances that would run in the wrong order.
prefix = tw.program("loop prefix(N) { f32 x[N] for i in 1..N x[i] += x[i - 1] }")
try:
    prefix.schedule(tw.Schedule().reverse("i"))(np.ones(10, np.float32))
except tw.ScheduleError as error:
    print("refused:", error.reason, error.instances)
