"""As gcc, with -ffast-math: sums may be taken in another order, as Tilewright takes them."""
from peers import gcc

REQUIRES, KINDS = gcc.REQUIRES, gcc.KINDS
SERIAL, IN_PROCESS = True, False
# The programs hold f32 as well.
TOLERANCE = 1e-4
COMMAND = [*gcc.COMMAND, "-ffast-math"]


def version():
    return gcc.version(COMMAND)


class Contestant(gcc.Contestant):
    def __init__(self, workload, threads):
        super().__init__(workload, threads, COMMAND)


class Other(gcc.Contestant):
    def __init__(self, workload, threads):
        super().__init__(workload, threads, gcc.COMMAND)
