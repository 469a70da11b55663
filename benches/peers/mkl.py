"""Intel's MKL: cblas_sgemm."""
import ctypes
import pathlib
import sys

REQUIRES = ["mkl", "numpy"]
KINDS = {"product"}
ROW_MAJOR, NO_TRANSPOSE = 101, 111


def library():
    folder = pathlib.Path(sys.prefix) / "lib"
    found = sorted(folder.glob("libmkl_rt.so*"))
    if not found:
        raise FileNotFoundError("libmkl_rt.so is not in the environment")
    return ctypes.CDLL(str(found[-1]), mode=ctypes.RTLD_GLOBAL)


def version():
    text = ctypes.create_string_buffer(200)
    library().MKL_Get_Version_String(text, 200)
    words = text.value.decode().split()
    return "MKL " + words[words.index("Version") + 1]


class Contestant:
    def __init__(self, workload, threads):
        import numpy
        self.library = library()
        self.library.MKL_Set_Num_Threads(threads)
        self.a, self.b = (numpy.load(file) for file in workload["inputs"].values())
        self.c = numpy.zeros((self.a.shape[0], self.b.shape[1]), numpy.float32)

    def run(self):
        (m, k), n = self.a.shape, self.b.shape[1]
        pointer = lambda array: array.ctypes.data_as(ctypes.c_void_p)
        self.library.cblas_sgemm(ROW_MAJOR, NO_TRANSPOSE, NO_TRANSPOSE, m, n, k, ctypes.c_float(1), pointer(self.a), k,
                                 pointer(self.b), n, ctypes.c_float(0), pointer(self.c), n)

    def outputs(self):
        self.run()
        return [self.c]
