"""The class `InferenceSession`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .. import _model
from ..errors import InvalidError, UnsupportedError
from . import _types
from ._types import (
    InvalidArgument,
    InvalidGraph,
    IOBinding,
    ModelMetadata,
    NodeArg,
    NoSuchFile,
    OrtValue,
    RunOptions,
    SessionOptions,
    type_name,
)


class InferenceSession:
    """A model that runs on the processor: the methods of ONNX Runtime's class of this name.

    Args:
        path_or_bytes: path of an ONNX file, or its bytes.
        sess_options: `intra_op_num_threads` is the number of threads; sizes of dynamic dimensions and the entry
            `tilewright.cache` have an effect, too.
        providers: `CPUExecutionProvider` must be among them; others are passed over, as ONNX Runtime passes over those that it
            does not have.
    """

    def __init__(
        self,
        path_or_bytes: str | os.PathLike[str] | bytes,
        sess_options: SessionOptions | None = None,
        providers: Sequence[str | tuple[str, Mapping[str, Any]]] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
        **others: Any,
    ):
        _check_providers(providers)
        for name in set(others) - {"disabled_optimizers", "enable_fallback", "read_config_from_model"}:
            raise TypeError(f"InferenceSession got an unexpected argument `{name}`")
        self._options = options = sess_options if sess_options is not None else SessionOptions()
        threads = options.intra_op_num_threads
        if threads < 0:
            raise InvalidArgument(f"intra_op_num_threads is {threads}")
        arguments: dict[str, Any] = {
            "threads": threads or None,
            "dims": options._free_dimensions or None,
            "cache": options._entries.get("tilewright.cache"),
        }
        if not isinstance(path_or_bytes, (bytes, bytearray, memoryview)) and not os.path.exists(path_or_bytes):
            raise NoSuchFile(f"the model's file {os.fspath(path_or_bytes)} does not exist")
        try:
            self._model = _model.compile(path_or_bytes, **arguments)
        except UnsupportedError as error:
            raise _types.NotImplemented(str(error)) from error
        except InvalidError as error:
            raise InvalidGraph(str(error)) from error
        self._inputs = [_node_arg(info) for info in self._model.inputs]
        self._outputs = [_node_arg(info) for info in self._model.outputs]
        self._output_names = [output.name for output in self._outputs]
        self._with_defaults: dict[tuple[str, ...], _model.Model] = {}
        self._arguments, self._source = arguments, path_or_bytes

    @property
    def model(self) -> _model.Model:
        """The model of `tilewright` that runs."""
        return self._model

    def get_inputs(self) -> list[NodeArg]:
        """Names, shapes and types of the inputs."""
        return list(self._inputs)

    def get_outputs(self) -> list[NodeArg]:
        """Names, shapes and types of the outputs."""
        return list(self._outputs)

    def get_overridable_initializers(self) -> list[NodeArg]:
        """Inputs that have a default."""
        return [_node_arg(_model._info(row)) for row in self._model._defaults()]

    def get_modelmeta(self) -> ModelMetadata:
        """What the model's file says of itself: its key and value strings."""
        return ModelMetadata(custom_metadata_map=self._model.metadata)

    def get_providers(self) -> list[str]:
        """The processor alone."""
        return ["CPUExecutionProvider"]

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """No options."""
        return {"CPUExecutionProvider": {}}

    def set_providers(self, providers: Sequence[Any] | None = None, provider_options: Any = None) -> None:
        """Accepts lists with `CPUExecutionProvider`."""
        _check_providers(providers)

    def get_session_options(self) -> SessionOptions:
        """The options of the session."""
        return self._options

    def disable_fallback(self) -> None:
        """Does nothing: there is one provider."""

    def enable_fallback(self) -> None:
        """Does nothing: there is one provider."""

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: RunOptions | None = None,
    ) -> list[Any]:
        """Runs the model; returns the outputs of these names, or all of them."""
        results = self._run(input_feed)
        names = output_names or self._output_names
        try:
            return [results[name] for name in names]
        except KeyError as error:
            known = ", ".join(self._output_names)
            raise InvalidArgument(f"there is no output {error}: there are {known}") from None

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, OrtValue],
        run_options: RunOptions | None = None,
    ) -> list[OrtValue]:
        """As `run`, with `OrtValue`."""
        feed = {name: value.numpy() for name, value in input_dict_ort_values.items()}
        return [OrtValue(result) for result in self.run(output_names, feed, run_options)]

    def io_binding(self) -> IOBinding:
        """Inputs and outputs that are kept for several runs."""
        return IOBinding(self)

    def run_with_iobinding(self, iobinding: IOBinding, run_options: RunOptions | None = None) -> None:
        """Runs the model on what is bound."""
        out = {name: array for name, array in iobinding._outputs.items() if array is not None}
        results = self._run(iobinding._inputs, out or None)
        unknown = [name for name in iobinding._outputs if name not in results]
        if unknown:
            raise InvalidArgument(f"there is no output `{unknown[0]}`: there are {', '.join(self._output_names)}")
        iobinding._results = [OrtValue(results[name]) for name in iobinding._outputs or self._output_names]

    def run_async(self, *_: Any, **__: Any) -> None:
        """Is refused: `run` may be called by several threads at once."""
        raise UnsupportedError("run_async: call `run` on threads of your own, it runs without the interpreter's lock")

    def start_profiling(self) -> None:
        """Is refused."""
        raise UnsupportedError("profiling: use `session.model.explain(...)`, or `tilewright bench` on the command line")

    end_profiling = start_profiling

    def _run(self, feed: Mapping[str, Any], out: Mapping[str, Any] | None = None) -> dict[str, Any]:
        types = {info.name: info for info in self._model.inputs}
        feed = {name: _array(value, types.get(name)) for name, value in feed.items()}
        try:
            return self._for_feed(feed).run(feed, out=out)
        except UnsupportedError as error:
            raise _types.NotImplemented(str(error)) from error
        except InvalidError as error:
            if isinstance(error, InvalidArgument):
                raise
            raise InvalidArgument(str(error)) from error

    def _for_feed(self, feed: Mapping[str, Any]) -> _model.Model:
        """The model that takes these inputs: where they name defaults, one in which those are inputs."""
        if len(feed) <= len(self._inputs):
            return self._model
        defaults = {row.name for row in self.get_overridable_initializers()}
        names = tuple(sorted(defaults & set(feed)))
        if not names:
            return self._model
        if names not in self._with_defaults:
            self._with_defaults[names] = _model.compile(self._source, inputs=names, **self._arguments)
        return self._with_defaults[names]


def _array(value: Any, info: _model.TensorInfo | None) -> Any:
    """A value as a model takes it: lists and numbers of an input of tensors become arrays of its type."""
    if isinstance(value, OrtValue):
        return value.numpy()
    if info is not None and info.kind == "tensor" and isinstance(value, (list, tuple, int, float, bool)):
        return np.asarray(value, info.dtype)
    return value


def _check_providers(providers: Sequence[Any] | None) -> None:
    names = [provider if isinstance(provider, str) else provider[0] for provider in providers or []]
    if names and "CPUExecutionProvider" not in names:
        raise UnsupportedError(f"execution providers {', '.join(names)}: models run on the processor, CPUExecutionProvider")


def _node_arg(info: _model.TensorInfo) -> NodeArg:
    """A dimension that the file leaves open without a name is `None`, as ONNX Runtime says it."""
    shape = [None if extent == f"{info.name}_{axis}" else extent for axis, extent in enumerate(info.shape or ())]
    return NodeArg(info.name, shape, type_name(info.dtype, info.kind))

