"""PyTorch: `torch.compile(module, backend="tilewright")`, and models out of modules.

Graphs are exported to ONNX by PyTorch, which needs the packages `onnx` and `onnxscript`. They compute without gradients.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from . import _model
from .errors import Error, UnsupportedError

__all__ = ["backend", "from_torch"]

#: Element types that NumPy does not have: their name in `ml_dtypes`, and a type of PyTorch with as many bytes.
_TYPES = {
    torch.bfloat16: ("bfloat16", torch.int16),
    torch.float8_e4m3fn: ("float8_e4m3fn", torch.uint8),
    torch.float8_e5m2: ("float8_e5m2", torch.uint8),
}
_BY_NAME = {name: dtype for dtype, (name, _) in _TYPES.items()}


def to_numpy(tensor: torch.Tensor) -> np.ndarray:
    """The tensor's memory as an array; of one that is not contiguous, or not on the processor, a copy."""
    tensor = tensor.detach().cpu().contiguous()
    if tensor.dtype not in _TYPES:
        return tensor.numpy()
    import ml_dtypes

    name, storage = _TYPES[tensor.dtype]
    return tensor.view(storage).numpy().view(getattr(ml_dtypes, name))


def from_numpy(array: np.ndarray) -> torch.Tensor:
    """A tensor with the array's memory."""
    if array.dtype.name not in _BY_NAME:
        return torch.from_numpy(array)
    dtype = _BY_NAME[array.dtype.name]
    return torch.from_numpy(array.view(np.int16 if array.itemsize == 2 else np.uint8)).view(dtype)


def _export(module: torch.nn.Module, args: tuple, kwargs: Mapping[str, Any] | None, options: dict[str, Any]) -> _model.Model:
    """Exports a module to ONNX and compiles it."""
    dynamic_shapes = options.pop("dynamic_shapes", None)
    with warnings.catch_warnings(), torch.no_grad(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")
        try:
            program = torch.onnx.export(
                module, args, kwargs=dict(kwargs or {}), dynamo=True, verbose=False, dynamic_shapes=dynamic_shapes
            )
        except Exception as error:  # whatever PyTorch and its packages raise
            first = str(error).strip().splitlines()[:1] or [type(error).__name__]
            raise UnsupportedError(f"PyTorch cannot export the module to ONNX: {first[0]}") from error
        proto = program.model_proto
        if proto.ByteSize() < 1 << 30:
            return _model.compile(proto.SerializeToString(), **options)
        path = Path(folder) / "model.onnx"
        program.save(path, external_data=True)
        # the weights are mapped: what is open stays when the folder goes
        return _model.compile(path, **options)


def from_torch(module: torch.nn.Module, example: Any, **options: Any) -> _model.Model:
    """Compiles a module for inputs like `example`: a tensor, a tuple of them, or a dictionary by the names of arguments.

    `dynamic_shapes` is that of `torch.onnx.export`; other options are those of `tilewright.compile`. The model takes arrays and
    tensors, and returns arrays. The weights are those that the module has now.

    Raises:
        UnsupportedError: PyTorch cannot export the module, or tilewright lacks an operator; the message names it.
    """
    named = example if isinstance(example, Mapping) else None
    args = () if named is not None else tuple(example) if isinstance(example, (tuple, list)) else (example,)
    training = module.training
    module.eval()
    try:
        return _export(module, args, named, dict(options))
    finally:
        module.train(training)


class _Bound(torch.nn.Module):
    """A graph whose weights and numbers are constants: its inputs are the other arguments."""

    def __init__(self, graph: torch.fx.GraphModule, arguments: Sequence[Any], inputs: Sequence[int]):
        super().__init__()
        self.graph_module = graph
        self.count, self.inputs = len(arguments), list(inputs)
        self.numbers = {}
        for i, argument in enumerate(arguments):
            if i in self.inputs:
                continue
            if isinstance(argument, torch.Tensor):
                self.register_buffer(f"constant_{i}", argument.detach())
            else:
                self.numbers[i] = argument

    def forward(self, *given: torch.Tensor) -> Any:
        arguments = [self.numbers.get(i, getattr(self, f"constant_{i}", None)) for i in range(self.count)]
        for i, tensor in zip(self.inputs, given, strict=True):
            arguments[i] = tensor
        return self.graph_module(*arguments)


class _Graph:
    """A graph of `torch.compile`, compiled for each choice of shapes and weights that comes."""

    def __init__(self, graph: torch.fx.GraphModule, options: Mapping[str, Any]):
        self.graph = graph
        self.options = dict(options)
        self.fallback = bool(self.options.pop("fallback", False))
        self.models: dict[Any, _model.Model | None] = {}

    def __call__(self, *arguments: Any) -> Any:
        is_input = [isinstance(a, torch.Tensor) and not _is_weight(a) for a in arguments]
        inputs = [i for i, wanted in enumerate(is_input) if wanted]
        key = tuple(_key(a, wanted) for a, wanted in zip(arguments, is_input, strict=True))
        if key not in self.models:
            self.models[key] = self._compile(arguments, inputs)
        model = self.models[key]
        needs_gradients = torch.is_grad_enabled() and any(isinstance(a, torch.Tensor) and a.requires_grad for a in arguments)
        if model is not None and needs_gradients:
            self._refuse("gradients are asked for: use torch.no_grad() or torch.inference_mode()")
            model = None
        if model is None:
            return self.graph(*arguments)
        results = model(*[to_numpy(arguments[i]) for i in inputs])
        results = results if isinstance(results, tuple) else (results,)
        return tuple(from_numpy(result) for result in results)

    def _compile(self, arguments: Sequence[Any], inputs: list[int]) -> _model.Model | None:
        bound = _Bound(self.graph, arguments, inputs)
        outputs = next(node for node in self.graph.graph.nodes if node.op == "output").args[0]
        if not all(isinstance(out, torch.fx.Node) for out in outputs):
            self._refuse("an output of the graph is not a tensor")
            return None
        try:
            model = _export(bound, tuple(arguments[i] for i in inputs), None, dict(self.options))
        except Error as error:
            self._refuse(str(error), error)
            return None
        if len(model.inputs) != len(inputs) or len(model.outputs) != len(outputs):
            self._refuse("the exported graph has other inputs or outputs")
            return None
        return model

    def _refuse(self, reason: str, error: Error | None = None) -> None:
        """Raises, or warns where PyTorch may run the graph."""
        if not self.fallback:
            raise error or UnsupportedError(reason)
        warnings.warn(f"tilewright: PyTorch runs a graph: {reason}", RuntimeWarning, stacklevel=3)


def _is_weight(tensor: torch.Tensor) -> bool:
    """Parameters and buffers of modules: PyTorch passes them as arguments."""
    return isinstance(tensor, torch.nn.Parameter) or getattr(tensor, "_dynamo_static_input_type", None) is not None


def _key(argument: Any, is_input: bool) -> Any:
    if is_input:
        return (tuple(argument.shape), argument.dtype)
    # a weight that was written has another version
    return (id(argument), argument._version) if isinstance(argument, torch.Tensor) else argument


def backend(graph: torch.fx.GraphModule, example_inputs: Sequence[Any], **arguments: Any) -> Callable[..., Any]:
    """The backend of `torch.compile`. `options` are those of `tilewright.compile`, and `fallback`: where it is true, PyTorch runs
    what cannot be compiled, with a warning that says why; otherwise that is an error."""
    return _Graph(graph, arguments.get("options") or {})


if "tilewright" not in torch._dynamo.list_backends(exclude_tags=()):
    torch._dynamo.register_backend(backend, name="tilewright")
