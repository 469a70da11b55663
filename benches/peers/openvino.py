"""OpenVINO's processor plugin, latency hint, arithmetic in f32."""
REQUIRES = ["openvino", "numpy"]
KINDS = {"onnx", "product", "integers", "weights"}
PRECISION = "f32"


def version():
    import openvino
    return f"OpenVINO {openvino.__version__.split('-')[0]} {PRECISION}"


def tensor(array):
    """Of an array; two bytes without a type are bf16."""
    import openvino
    if array.dtype.kind != "V":
        return openvino.Tensor(array)
    made = openvino.Tensor(openvino.Type.bf16, list(array.shape))
    made.data.view("u2")[...] = array.view("u2")
    return made


def bits_or_numbers(tensor):
    """A copy as an array; bf16 as two bytes without a type."""
    import openvino
    return tensor.data.view("V2").copy() if tensor.element_type == openvino.Type.bf16 else tensor.data.copy()


class Contestant:
    def __init__(self, workload, threads, precision=PRECISION):
        import numpy
        import openvino
        core = openvino.Core()
        model = core.read_model(workload["path"])
        arrays = {name: numpy.load(file) for name, file in workload["inputs"].items()}
        model.reshape({name: list(array.shape) for name, array in arrays.items()})
        options = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": precision}
        self.request = core.compile_model(model, "CPU", options).create_infer_request()
        for name, array in arrays.items():
            self.request.set_tensor(name, tensor(array))

    def run(self):
        self.request.infer()

    def outputs(self):
        self.request.infer()
        return [bits_or_numbers(t) for t in self.request.output_tensors]
