"""clang with Polly on the same C as gcc: its polyhedral tiling, vectors for this processor, threads by OpenMP."""
import os
import shutil

from peers import gcc

REQUIRES = gcc.REQUIRES
KINDS = gcc.KINDS
IN_PROCESS = False
TOLERANCE = gcc.TOLERANCE
POLLY = ["-O3", "-march=native", "-mllvm", "-polly", "-mllvm", "-polly-vectorizer=stripmine"]
# Parallel code of Polly's own matrix product is wrong (clang 14: its threads share the packed copies); loops without it are right.
PARALLEL = ["-mllvm", "-polly-parallel", "-mllvm", "-polly-pattern-matching-based-opts=false", "-lgomp"]


def clang():
    found = [name for name in ["clang", *(f"clang-{v}" for v in range(30, 13, -1))] if shutil.which(name)]
    if not found:
        raise FileNotFoundError("clang is not installed")
    return found[0]


def version():
    return gcc.version([clang(), *POLLY])


class Contestant(gcc.Contestant):
    def __init__(self, workload, threads, more=()):
        os.environ["OMP_NUM_THREADS"] = str(threads)
        super().__init__(workload, threads, [clang(), *POLLY, *more, *(PARALLEL if threads > 1 else [])])


class Other(Contestant):
    def __init__(self, workload, threads):
        super().__init__(workload, threads, gcc.NO_FUSED)
