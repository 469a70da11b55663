"""TVM without tuning: Relax, its zero pipeline, LLVM for this processor."""
import os

REQUIRES = ["apache-tvm", "numpy", "onnx"]
KINDS = {"onnx", "product"}


def version():
    import tvm
    return f"TVM {tvm.__version__}, not tuned"


class Contestant:
    def __init__(self, workload, threads):
        os.environ["TVM_NUM_THREADS"] = str(threads)
        import numpy
        import onnx
        import tvm
        from tvm import relax
        from tvm.relax.frontend.onnx import from_onnx
        arrays = {name: numpy.load(file) for name, file in workload["inputs"].items()}
        shapes = {name: list(array.shape) for name, array in arrays.items()}
        module = from_onnx(onnx.load(workload["path"]), shape_dict=shapes)
        target = tvm.target.Target({"kind": "llvm", "mcpu": tvm.target.codegen.llvm_get_system_cpu(), "num-cores": threads})
        with target:
            module = relax.get_pipeline("zero")(module)
            built = tvm.compile(module, target)
        device = tvm.cpu()
        self.machine = relax.VirtualMachine(built, device)
        self.arrays = [tvm.runtime.tensor(array, device) for array in arrays.values()]

    def run(self):
        self.result = self.machine["main"](*self.arrays)

    def outputs(self):
        self.run()
        results = self.result if not hasattr(self.result, "numpy") else [self.result]
        return [result.numpy() for result in results]
