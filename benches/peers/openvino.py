"""OpenVINO's processor plugin, latency hint, arithmetic in f32."""
REQUIRES = ["openvino", "numpy"]
KINDS = {"onnx", "product"}
PRECISION = "f32"


def version():
    import openvino
    return f"OpenVINO {openvino.__version__.split('-')[0]} {PRECISION}"


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
            self.request.set_tensor(name, openvino.Tensor(array))

    def run(self):
        self.request.infer()

    def outputs(self):
        self.request.infer()
        return [tensor.data.copy() for tensor in self.request.output_tensors]
