"""OpenVINO with leave to compute in bf16: another accuracy, so another contest; it shows what the processor's tiles are worth."""
from peers import openvino

REQUIRES = openvino.REQUIRES
KINDS = openvino.KINDS
TOLERANCE = 0.2


def version():
    return openvino.version().replace(openvino.PRECISION, "bf16")


class Contestant(openvino.Contestant):
    def __init__(self, workload, threads):
        super().__init__(workload, threads, "bf16")
