"""IREE without tuning: the model through its ONNX importer, LLVM for this processor."""
import subprocess
import sys
import tempfile

REQUIRES = ["iree-base-compiler", "iree-base-runtime", "numpy", "onnx"]
KINDS = {"onnx", "product"}


def version():
    from importlib.metadata import version as of
    return f"IREE {of('iree-base-compiler')}"


class Contestant:
    def __init__(self, workload, threads):
        import numpy
        from iree import compiler, runtime
        with tempfile.NamedTemporaryFile(suffix=".mlir") as text:
            command = [sys.executable, "-m", "iree.compiler.tools.import_onnx", workload["path"], "-o", text.name]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            flags = ["--iree-llvmcpu-target-cpu=host", "--iree-opt-level=O3"]
            code = compiler.compile_file(text.name, input_type="onnx", target_backends=["llvm-cpu"], extra_args=flags)
        runtime.flags.parse_flags(f"--task_topology_group_count={threads}")
        driver = "local-sync" if threads == 1 else "local-task"
        module = runtime.load_vm_flatbuffer(code, driver=driver)
        self.function = next(getattr(module, name) for name in module.vm_module.function_names if not name.startswith("_") and "$" not in name)
        self.arrays = [numpy.load(file) for file in workload["inputs"].values()]

    def run(self):
        self.result = self.function(*self.arrays)
        self.arrays_of(self.result)

    def arrays_of(self, result):
        results = result if isinstance(result, (list, tuple)) else [result]
        return [array.to_host() for array in results]

    def outputs(self):
        self.run()
        return self.arrays_of(self.result)
