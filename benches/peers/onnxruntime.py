"""ONNX Runtime, its processor provider, every graph optimization."""
REQUIRES = ["onnxruntime", "numpy"]
KINDS = {"onnx", "product", "f16", "integers", "weights"}


def version():
    import onnxruntime
    return f"ONNX Runtime {onnxruntime.__version__}"


class Contestant:
    def __init__(self, workload, threads, optimized=True):
        import numpy
        import onnxruntime
        options = onnxruntime.SessionOptions()
        if not optimized:
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.intra_op_num_threads = threads
        options.log_severity_level = 3
        self.session = onnxruntime.InferenceSession(workload["path"], options, providers=["CPUExecutionProvider"])
        self.arrays = {name: numpy.load(file) for name, file in workload["inputs"].items()}

    def run(self):
        self.session.run(None, self.arrays)

    def outputs(self):
        return self.session.run(None, self.arrays)


class Definition(Contestant):
    """The graph as the file has it: integers are made and unmade between all nodes."""
    def __init__(self, workload, threads):
        super().__init__(workload, threads, optimized=False)
