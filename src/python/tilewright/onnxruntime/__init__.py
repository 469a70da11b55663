"""The interface of ONNX Runtime that programs call, on models that tilewright compiles.

    import tilewright.onnxruntime as ort        # instead of: import onnxruntime as ort

Options that change no result and have no meaning here are accepted; requests that would have one, such as another execution
provider alone or bindings to devices, are errors that say so. `install()` makes `import onnxruntime` find this module, for
packages whose source is not yours.
"""

from __future__ import annotations

import sys
import types

from ._session import InferenceSession
from ._types import (
    ExecutionMode,
    ExecutionOrder,
    GraphOptimizationLevel,
    IOBinding,
    ModelMetadata,
    NodeArg,
    OrtAllocatorType,
    OrtDevice,
    OrtMemType,
    OrtValue,
    RunOptions,
    SessionIOBinding,
    SessionOptions,
    SparseTensor,
)

__all__ = [
    "ExecutionMode",
    "ExecutionOrder",
    "GraphOptimizationLevel",
    "IOBinding",
    "InferenceSession",
    "ModelMetadata",
    "NodeArg",
    "OrtAllocatorType",
    "OrtDevice",
    "OrtMemType",
    "OrtValue",
    "RunOptions",
    "SessionIOBinding",
    "SessionOptions",
    "SparseTensor",
    "disable_telemetry_events",
    "enable_telemetry_events",
    "get_all_providers",
    "get_available_providers",
    "get_build_info",
    "get_device",
    "install",
    "set_default_logger_severity",
    "set_default_logger_verbosity",
    "set_seed",
]

#: The version of ONNX Runtime whose interface this is: programs compare it.
__version__ = "1.20.0"


def get_available_providers() -> list[str]:
    """The execution providers: the processor alone."""
    return ["CPUExecutionProvider"]


def get_all_providers() -> list[str]:
    """As `get_available_providers`."""
    return get_available_providers()


def get_device() -> str:
    """The device on which models run."""
    return "CPU"


def get_build_info() -> str:
    """The name and version of what runs here."""
    from .. import __version__ as version

    return f"tilewright {version}"


def set_default_logger_severity(severity: int) -> None:
    """Does nothing: nothing is logged."""


def set_default_logger_verbosity(verbosity: int) -> None:
    """Does nothing: nothing is logged."""


def disable_telemetry_events() -> None:
    """Does nothing: nothing is sent anywhere."""


def enable_telemetry_events() -> None:
    """Does nothing: nothing is sent anywhere."""


def set_seed(seed: int) -> None:
    """Does nothing: operators that draw random numbers are not compiled."""


def install() -> None:
    """Makes this module the one that `import onnxruntime` finds in this process, before the real one is imported."""
    module = sys.modules[__name__]
    capi = types.ModuleType("onnxruntime.capi")
    state = types.ModuleType("onnxruntime.capi.onnxruntime_pybind11_state")
    collection = types.ModuleType("onnxruntime.capi.onnxruntime_inference_collection")
    for name in __all__:
        setattr(state, name, getattr(module, name))
        setattr(collection, name, getattr(module, name))
    from . import _types

    for name in _types.ERRORS:
        setattr(state, name, getattr(_types, name))
    setattr(capi, "onnxruntime_pybind11_state", state)  # noqa: B010
    setattr(capi, "_pybind_state", state)  # noqa: B010
    setattr(capi, "onnxruntime_inference_collection", collection)  # noqa: B010
    sys.modules.update(
        {
            "onnxruntime": module,
            "onnxruntime.capi": capi,
            "onnxruntime.capi._pybind_state": state,
            "onnxruntime.capi.onnxruntime_pybind11_state": state,
            "onnxruntime.capi.onnxruntime_inference_collection": collection,
        }
    )
