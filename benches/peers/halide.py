"""Halide, with the schedules that the library of schedules took from it or has in common with it."""
import os

REQUIRES = ["halide", "numpy"]
KINDS = {"schedule"}
TOLERANCE = 1e-4


def version():
    from importlib.metadata import version as of
    return f"Halide {of('halide')}"


def blur(hl, arrays):
    picture = hl.Buffer(arrays["In"])
    x, y = hl.Var("x"), hl.Var("y")
    rows, out = hl.Func("rows"), hl.Func("out")
    rows[x, y] = (picture[x, y] + picture[x + 1, y] + picture[x + 2, y]) / 3
    out[x, y] = (rows[x, y] + rows[x, y + 1] + rows[x, y + 2]) / 3
    height, width = arrays["In"].shape
    return out, rows, (x, y), (height - 2, width - 2)


def stored_and_computed_at(hl, arrays):
    out, rows, (x, y), shape = blur(hl, arrays)
    yo, yi = hl.Var("yo"), hl.Var("yi")
    out.split(y, yo, yi, 16).vectorize(x, 4).parallel(yo)
    rows.store_at(out, yo).compute_at(out, yi).vectorize(x, 4)
    return out, shape


def tiled_256x32(hl, arrays):
    out, rows, (x, y), shape = blur(hl, arrays)
    xi, yi = hl.Var("xi"), hl.Var("yi")
    out.tile(x, y, xi, yi, 256, 32).vectorize(xi, 8).parallel(y)
    rows.compute_at(out, x).vectorize(x, 8)
    return out, shape


def tiled_8x8x8_vectorized(hl, arrays):
    a, b = hl.Buffer(arrays["A"]), hl.Buffer(arrays["B"])
    (rows, depth), columns = arrays["A"].shape, arrays["B"].shape[1]
    n, m, ni, mi = (hl.Var(name) for name in ("n", "m", "ni", "mi"))
    k = hl.RDom([(0, depth)], "k")
    ko, ki = hl.RVar("ko"), hl.RVar("ki")
    c = hl.Func("c")
    c[n, m] = hl.f32(0)
    c[n, m] += a[k, m] * b[n, k]
    c.vectorize(n, 8)
    c.update().tile(n, m, ni, mi, 8, 8).split(k, ko, ki, 8).reorder(ni, mi, ki, ko, n, m).vectorize(ni).unroll(mi).parallel(m)
    return c, (rows, columns)


# Program and schedule of the library -> the same in Halide.
SCHEDULES = {("halide_blur", "stored_and_computed_at"): stored_and_computed_at, ("halide_blur", "tiled_256x32"): tiled_256x32,
             ("tvm_matmul", "tiled_8x8x8_vectorized"): tiled_8x8x8_vectorized}


class Contestant:
    def __init__(self, workload, threads):
        os.environ["HL_NUM_THREADS"] = str(threads)
        import halide
        import numpy
        make = SCHEDULES.get((workload["program"], workload["schedule"]))
        if make is None:
            raise RuntimeError("this schedule is not written in Halide")
        # Halide's functions do not keep the memory of their inputs alive.
        self.arrays = {name: numpy.load(file) for name, file in workload["inputs"].items()}
        self.function, shape = make(halide, self.arrays)
        self.result = numpy.empty(shape, numpy.float32)
        self.buffer = halide.Buffer(self.result)
        self.function.compile_jit()

    def run(self):
        self.function.realize(self.buffer)

    def outputs(self):
        self.run()
        return [self.result]
