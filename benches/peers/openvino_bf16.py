"""OpenVINO with leave to compute in bf16: another accuracy, so another contest; it shows what the processor's tiles are worth.

Where it is far from the network in f32, outputs are judged by how far they are from that.
"""
from peers import onnxruntime, openvino

REQUIRES = [*openvino.REQUIRES, *(name for name in onnxruntime.REQUIRES if name not in openvino.REQUIRES)]
KINDS = {"onnx", "product", "bf16"}
TOLERANCE = 0.2


def version():
    return openvino.version().replace(openvino.PRECISION, "bf16")


class Contestant(openvino.Contestant):
    def __init__(self, workload, threads):
        super().__init__(workload, threads, "bf16")


class Definition(onnxruntime.Definition):
    """The network in f32."""
