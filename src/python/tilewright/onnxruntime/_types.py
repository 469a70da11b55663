"""Options, enumerations, values and exceptions of ONNX Runtime's interface."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..errors import Error, InternalError, InvalidError, UnsupportedError

#: The exceptions that programs catch.
ERRORS = ["EPFail", "Fail", "InvalidArgument", "InvalidGraph", "InvalidProtobuf", "NoModel", "NoSuchFile", "NotImplemented"]


class Fail(InternalError):
    """ONNX Runtime's name of a failure."""


class EPFail(Fail):
    """ONNX Runtime's name of a failure of an execution provider."""


class InvalidArgument(InvalidError):
    """An input or a name is wrong."""


class InvalidGraph(InvalidError):
    """The model is wrong."""


class InvalidProtobuf(InvalidError):
    """The file is no ONNX model."""


class NoModel(InvalidError):
    """There is no model."""


class NoSuchFile(Error, FileNotFoundError):
    """The model's file does not exist."""


class NotImplemented(UnsupportedError):  # noqa: A001 - ONNX Runtime's name
    """An operator is not supported."""


class GraphOptimizationLevel(enum.IntEnum):
    """Has no effect: every model is optimized."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(enum.IntEnum):
    """Has no effect: kernels run one after the other, each on all threads."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class ExecutionOrder(enum.IntEnum):
    """Has no effect."""

    DEFAULT = 0
    PRIORITY_BASED = 1
    MEMORY_EFFICIENT = 2


class OrtAllocatorType(enum.IntEnum):
    """Kinds of allocators; has no effect."""

    INVALID = -1
    ORT_DEVICE_ALLOCATOR = 0
    ORT_ARENA_ALLOCATOR = 1


class OrtMemType(enum.IntEnum):
    """Kinds of memory; has no effect."""

    CPU_INPUT = -2
    CPU_OUTPUT = -1
    DEFAULT = 0


class NodeArg(NamedTuple):
    """An input or an output."""

    name: str
    #: Extents: numbers, names of dynamic dimensions, `None` where the file names nothing.
    shape: list[int | str | None]
    #: `tensor(float)`, `seq(tensor(float))` …
    type: str


class ModelMetadata(NamedTuple):
    """What a model's file says of itself."""

    custom_metadata_map: dict[str, str]
    description: str = ""
    domain: str = ""
    graph_description: str = ""
    graph_name: str = ""
    producer_name: str = ""
    version: int = 0


class SessionOptions:
    """Options of a session. Threads, sizes of dynamic dimensions and the cache have an effect; what has no meaning is kept."""

    #: Requests that would change what a program gets.
    _REFUSED = {
        "enable_profiling": "use `tilewright.compile(...).explain()`, or `tilewright bench` on the command line",
        "optimized_model_filepath": "use `tilewright.compile(...).save(path)`",
    }

    def __init__(self) -> None:
        self._free_dimensions: dict[str, int] = {}
        self._entries: dict[str, str] = {}
        self.intra_op_num_threads = 0
        self.inter_op_num_threads = 0
        self.graph_optimization_level = GraphOptimizationLevel.ORT_ENABLE_ALL
        self.execution_mode = ExecutionMode.ORT_SEQUENTIAL
        self.execution_order = ExecutionOrder.DEFAULT
        self.enable_cpu_mem_arena = True
        self.enable_mem_pattern = True
        self.enable_mem_reuse = True
        self.log_severity_level = 2
        self.log_verbosity_level = 0
        self.logid = ""
        self.profile_file_prefix = "onnxruntime_profile_"
        self.use_deterministic_compute = True
        self.use_per_session_threads = True

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self._REFUSED and value:
            raise UnsupportedError(f"SessionOptions.{name} has no meaning here: {self._REFUSED[name]}")
        is_known = name in self.__dict__ or name in self._REFUSED or name.startswith("_")
        if not is_known and "use_per_session_threads" in self.__dict__:
            raise AttributeError(f"SessionOptions has no `{name}` in tilewright.onnxruntime")
        object.__setattr__(self, name, value)

    @property
    def enable_profiling(self) -> bool:
        """Always false: setting it is refused."""
        return False

    @enable_profiling.setter
    def enable_profiling(self, value: bool) -> None:
        """False alone is accepted."""

    @property
    def optimized_model_filepath(self) -> str:
        """Always empty: setting it is refused."""
        return ""

    @optimized_model_filepath.setter
    def optimized_model_filepath(self, value: str) -> None:
        """An empty path alone is accepted."""

    def add_free_dimension_override_by_name(self, name: str, size: int) -> None:
        """Sets the size of a dynamic dimension."""
        self._free_dimensions[name] = size

    def add_free_dimension_override_by_denotation(self, denotation: str, size: int) -> None:
        """Is refused: sizes have names here."""
        raise UnsupportedError(f"sizes by denotation ({denotation}): use add_free_dimension_override_by_name")

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Keeps an entry; `tilewright.cache` is the directory of a cache of compiled modules, others have no effect."""
        self._entries[key] = value

    def get_session_config_entry(self, key: str) -> str:
        """An entry that was added."""
        if key not in self._entries:
            raise InvalidArgument(f"there is no entry `{key}`")
        return self._entries[key]

    def has_session_config_entry(self, key: str) -> bool:
        """True when the entry was added."""
        return key in self._entries

    def add_provider(self, provider: str, options: Any = None) -> None:
        """Accepts the processor alone."""
        if provider != "CPUExecutionProvider":
            raise UnsupportedError(f"{provider}: models run on the processor, as CPUExecutionProvider")

    def register_custom_ops_library(self, path: str) -> None:
        """Is refused: operators of other libraries are not compiled."""
        raise UnsupportedError(f"{path}: libraries of custom operators cannot be loaded")

    def add_initializer(self, name: str, value: Any) -> None:
        """Is refused."""
        raise UnsupportedError("initializers from outside of the file: write them to the model, or make them inputs")

    def add_external_initializers(self, names: Sequence[str], values: Sequence[Any]) -> None:
        """Is refused."""
        raise UnsupportedError("initializers from outside of the file: write them to the model, or make them inputs")


class RunOptions:
    """Options of a run, which have no effect."""

    def __init__(self) -> None:
        self.log_severity_level = 2
        self.log_verbosity_level = 0
        self.logid = ""
        self.only_execute_path_to_fetches = False
        self.training_mode = False
        self.terminate = False
        self._entries: dict[str, str] = {}

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Keeps an entry, which has no effect."""
        self._entries[key] = value

    def get_run_config_entry(self, key: str) -> str:
        """An entry that was added."""
        return self._entries[key]


class OrtDevice:
    """The processor."""

    def __init__(self, device: str = "cpu", *_: Any):
        _check_device(device)

    @staticmethod
    def make(device: str = "cpu", device_id: int = 0) -> OrtDevice:
        """The processor."""
        return OrtDevice(device)

    def device_type(self) -> str:
        """`cpu`"""
        return "cpu"

    def device_id(self) -> int:
        """0"""
        return 0


def _check_device(device: str) -> None:
    if device.lower() != "cpu":
        raise UnsupportedError(f"device {device}: models run on the processor, `cpu`")


class OrtValue:
    """A tensor, which holds a NumPy array."""

    def __init__(self, array: Any):
        self._array = np.asarray(array)

    @staticmethod
    def ortvalue_from_numpy(array: np.ndarray, device_type: str = "cpu", device_id: int = 0, vendor_id: int = -1) -> OrtValue:
        """The array as a value; it is not copied."""
        _check_device(device_type)
        return OrtValue(array)

    @staticmethod
    def ortvalue_from_shape_and_type(
        shape: Sequence[int], element_type: Any = None, device_type: str = "cpu", device_id: int = 0, vendor_id: int = -1
    ) -> OrtValue:
        """A new value of any contents."""
        _check_device(device_type)
        return OrtValue(np.empty(tuple(shape), element_type))

    def numpy(self) -> np.ndarray:
        """The array."""
        return self._array

    def shape(self) -> tuple[int, ...]:
        """Extents."""
        return self._array.shape

    def data_type(self) -> str:
        """`tensor(float)` …"""
        return type_name(self._array.dtype.name, "tensor")

    def device_name(self) -> str:
        """`cpu`"""
        return "cpu"

    def data_ptr(self) -> int:
        """Address of the first element."""
        return self._array.ctypes.data

    def is_tensor(self) -> bool:
        """True."""
        return True

    def has_value(self) -> bool:
        """True."""
        return True

    def update_inplace(self, array: np.ndarray) -> None:
        """Copies the elements of an array of equal shape and type."""
        if array.shape != self._array.shape or array.dtype != self._array.dtype:
            raise InvalidArgument(f"{array.dtype} {array.shape} is not {self._array.dtype} {self._array.shape}")
        np.copyto(self._array, array)


class IOBinding:
    """Inputs and outputs of runs, by name."""

    def __init__(self, session: Any):
        self._session = session
        self._inputs: dict[str, Any] = {}
        self._outputs: dict[str, Any] = {}
        self._results: list[OrtValue] = []

    def bind_cpu_input(self, name: str, array: Any) -> None:
        """Takes an array for an input."""
        self._inputs[name] = array

    def bind_ortvalue_input(self, name: str, value: OrtValue) -> None:
        """Takes a value for an input."""
        self._inputs[name] = value.numpy()

    def bind_output(self, name: str, device_type: str = "cpu", *_: Any, buffer_ptr: int | None = None, **__: Any) -> None:
        """Asks for an output."""
        _check_device(device_type)
        if buffer_ptr is not None:
            raise UnsupportedError("an output at an address: bind an OrtValue that holds an array")
        self._outputs[name] = None

    def bind_ortvalue_output(self, name: str, value: OrtValue) -> None:
        """Takes a value into which an output is written."""
        self._outputs[name] = value.numpy()

    def bind_input(self, *_: Any, **__: Any) -> None:
        """Is refused: an address says nothing about its memory."""
        raise UnsupportedError("an input at an address: use bind_cpu_input or bind_ortvalue_input")

    def synchronize_inputs(self) -> None:
        """Does nothing: runs have ended when they return."""

    def synchronize_outputs(self) -> None:
        """Does nothing: runs have ended when they return."""

    def get_outputs(self) -> list[OrtValue]:
        """The outputs of the last run."""
        return self._results

    def copy_outputs_to_cpu(self) -> list[np.ndarray]:
        """The outputs of the last run."""
        return [value.numpy() for value in self._results]

    def clear_binding_inputs(self) -> None:
        """Forgets the inputs."""
        self._inputs.clear()

    def clear_binding_outputs(self) -> None:
        """Forgets the outputs."""
        self._outputs.clear()


#: ONNX Runtime has two names for it.
SessionIOBinding = IOBinding


class SparseTensor:
    """Is refused: tensors are dense."""

    def __init__(self, *_: Any, **__: Any):
        raise UnsupportedError("sparse tensors as inputs: pass dense arrays")


_TYPES = {
    "float64": "double",
    "float32": "float",
    "float8_e4m3fn": "float8e4m3fn",
    "float8_e4m3fnuz": "float8e4m3fnuz",
    "float8_e5m2": "float8e5m2",
    "float8_e5m2fnuz": "float8e5m2fnuz",
    "float8_e8m0fnu": "float8e8m0",
    "float4_e2m1fn": "float4e2m1",
}


def type_name(dtype: str | None, kind: str) -> str:
    """ONNX Runtime's name of a type: `tensor(float)`, `seq(tensor(int64))`, `optional(tensor(float))`."""
    if kind.startswith("sequence of "):
        return f"seq({type_name(dtype, kind.removeprefix('sequence of '))})"
    if kind.startswith("optional "):
        return f"optional({type_name(dtype, kind.removeprefix('optional '))})"
    return f"tensor({_TYPES.get(dtype, dtype) if dtype else 'undefined'})"
