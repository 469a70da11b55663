"""Compiles ONNX models, tensor expressions and loop programs to machine code.

    import tilewright as tw

    model = tw.compile("model.onnx")
    y = model(x)                        # NumPy arrays in, NumPy arrays out
    outputs = model.run({"x": x})       # by name

`tw.program(text)` compiles programs of the text language, `tw.load(path)` runs saved modules, `tilewright.onnxruntime` has the
class `InferenceSession`.
"""

from __future__ import annotations

import atexit as _atexit
import os as _os

from . import _native
from ._model import Explanation, Model, TensorInfo, compile, load  # noqa: A004
from ._program import Comparison, Program, Schedule, program
from .errors import (
    Error,
    FileError,
    InternalError,
    InvalidError,
    LimitError,
    ScheduleError,
    UnsupportedError,
)

__all__ = [
    "Comparison",
    "Error",
    "Explanation",
    "FileError",
    "InternalError",
    "InvalidError",
    "LimitError",
    "Model",
    "Program",
    "Schedule",
    "ScheduleError",
    "TensorInfo",
    "UnsupportedError",
    "compile",
    "from_torch",
    "load",
    "program",
    "stages",
    "targets",
]

__version__: str = _native.__version__

_os.register_at_fork(
    before=_native.before_fork,
    after_in_parent=_native.after_fork_in_parent,
    after_in_child=_native.after_fork_in_child,
)
_atexit.register(_native.before_end)


def stages() -> list[str]:
    """The names of the stages that `explain` prints."""
    return _native.stages()


def targets(runnable: bool = False) -> list[str]:
    """The names of the targets; of those that this processor runs, its default first, where `runnable`."""
    return [name for name, runs in _native.targets() if runs or not runnable]


def from_torch(module: object, example: object, **options: object) -> Model:
    """Compiles a module of PyTorch, which it exports to ONNX for inputs like `example`: see `tilewright.torch`."""
    from .torch import from_torch as convert

    return convert(module, example, **options)
