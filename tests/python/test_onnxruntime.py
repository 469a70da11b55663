"""The interface of ONNX Runtime."""
import subprocess
import sys
import threading

import numpy as np
import pytest
from conftest import FLOAT, INT64, onnx_model
from onnx import helper

import tilewright as tw
import tilewright.onnxruntime as ort

X = np.ones((2, 8), np.float32)


def test_a_session_describes_itself(linear, sequence):
    session = ort.InferenceSession(linear[0], providers=["CPUExecutionProvider"])
    x, y = session.get_inputs()[0], session.get_outputs()[0]
    assert (x.name, x.shape, x.type) == ("x", ["batch", 8], "tensor(float)")
    assert (y.name, y.shape, y.type) == ("y", ["batch", 5], "tensor(float)")
    assert session.get_modelmeta().custom_metadata_map == {"author": "tests"}
    assert session.get_providers() == ["CPUExecutionProvider"] == ort.get_available_providers()
    assert session.get_provider_options() == {"CPUExecutionProvider": {}} and ort.get_device() == "CPU"
    assert isinstance(session.model, tw.Model)
    lists = ort.InferenceSession(sequence)
    assert lists.get_inputs()[0].type == "seq(tensor(float))" and lists.get_inputs()[1].shape == [None]


def test_runs(linear, two, tmp_path):
    model, expected = linear
    path = tmp_path / "linear.onnx"
    path.write_bytes(model)
    session = ort.InferenceSession(str(path), ort.SessionOptions(), ["CPUExecutionProvider"])
    for names in (None, [], ["y"]):
        y, = session.run(names, {"x": X}, ort.RunOptions())
        np.testing.assert_allclose(y, expected(X), rtol=1e-5)
    a = np.ones((2, 3), np.float32)
    pair = ort.InferenceSession(two)
    assert [r[0, 0] for r in pair.run(["difference", "sum"], {"a": a, "b": a})] == [0, 2]
    # lists and values of the library's own class
    assert pair.run(["sum"], {"a": a.tolist(), "b": ort.OrtValue.ortvalue_from_numpy(a)})[0].tolist() == [[2] * 3] * 2
    values = {name: ort.OrtValue.ortvalue_from_numpy(a) for name in "ab"}
    result, = pair.run_with_ort_values(["sum"], values)
    assert (result.shape(), result.data_type(), result.device_name()) == ((2, 3), "tensor(float)", "cpu")
    assert (result.numpy() == 2).all()


def test_bindings_of_inputs_and_outputs(two):
    session = ort.InferenceSession(two)
    a, out = np.ones((2, 3), np.float32), np.zeros((2, 3), np.float32)
    binding = session.io_binding()
    binding.bind_cpu_input("a", a)
    binding.bind_ortvalue_input("b", ort.OrtValue.ortvalue_from_numpy(a))
    binding.bind_output("difference")
    binding.bind_ortvalue_output("sum", ort.OrtValue.ortvalue_from_numpy(out))
    session.run_with_iobinding(binding)
    assert (out == 2).all() and [r[0, 0] for r in binding.copy_outputs_to_cpu()] == [0, 2]
    with pytest.raises(tw.UnsupportedError, match="bind_cpu_input"):
        binding.bind_input("a", "cpu", 0, np.float32, (2, 3), a.ctypes.data)


def test_inputs_with_a_default():
    weight = np.full(3, 2, np.float32)
    model = onnx_model([helper.make_node("Mul", ["x", "w"], ["y"])], [("x", FLOAT, [3]), ("w", FLOAT, [3])],
                       [("y", FLOAT, [3])], [("w", weight)])
    session = ort.InferenceSession(model)
    assert [i.name for i in session.get_inputs()] == ["x"]
    assert [i.name for i in session.get_overridable_initializers()] == ["w"]
    x = np.ones(3, np.float32)
    assert session.run(None, {"x": x})[0].tolist() == [2] * 3
    assert session.run(None, {"x": x, "w": x * 5})[0].tolist() == [5] * 3


def test_options(linear, tmp_path):
    options = ort.SessionOptions()
    options.intra_op_num_threads = 2
    options.inter_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    options.log_severity_level = 4
    options.enable_mem_pattern = False
    options.enable_profiling = False
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("tilewright.cache", str(tmp_path / "cache"))
    options.add_free_dimension_override_by_name("batch", 2)
    session = ort.InferenceSession(linear[0], options)
    assert session.model.threads == 2 and session.get_session_options() is options
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"
    assert session.run(None, {"x": X})[0].shape == (2, 5) and list((tmp_path / "cache").iterdir())
    with pytest.raises(tw.InvalidError, match="batch"):
        session.run(None, {"x": X[:1]})


@pytest.mark.parametrize(
    ("use", "error", "message"),
    [
        (lambda m: ort.InferenceSession(m, providers=["CUDAExecutionProvider"]), tw.UnsupportedError, "CUDAExecutionProvider"),
        (lambda m: ort.InferenceSession("nothing.onnx"), FileNotFoundError, "nothing.onnx"),
        (lambda m: ort.InferenceSession(b"no model"), tw.InvalidError, ""),
        (lambda m: ort.InferenceSession(m, magic=1), TypeError, "magic"),
        (lambda m: ort.InferenceSession(m).run(["z"], {"x": X}), tw.InvalidError, "there is no output 'z': there are y"),
        (lambda m: ort.InferenceSession(m).run(None, {"z": X}), tw.InvalidError, "there is no input `z`"),
        (lambda m: ort.InferenceSession(m).run(None, {}), tw.InvalidError, "input `x` is missing"),
        (lambda m: ort.InferenceSession(m).run(None, {"x": X.astype(float)}), tw.InvalidError, "f64"),
        (lambda m: ort.InferenceSession(m).run_async(None, {}, None, None), tw.UnsupportedError, "threads of your own"),
        (lambda m: ort.InferenceSession(m).end_profiling(), tw.UnsupportedError, "explain"),
        (lambda m: setattr(ort.SessionOptions(), "enable_profiling", True), tw.UnsupportedError, "explain"),
        (lambda m: setattr(ort.SessionOptions(), "optimized_model_filepath", "a"), tw.UnsupportedError, "save"),
        (lambda m: setattr(ort.SessionOptions(), "intra_op_threads", 2), AttributeError, "intra_op_threads"),
        (lambda m: ort.SessionOptions().register_custom_ops_library("a.so"), tw.UnsupportedError, "a.so"),
        (lambda m: ort.OrtValue.ortvalue_from_numpy(X, "cuda", 0), tw.UnsupportedError, "cuda"),
        (lambda m: ort.SparseTensor(), tw.UnsupportedError, "dense"),
    ],
    ids=range(16),
)
def test_what_has_no_meaning_is_refused(linear, use, error, message):
    with pytest.raises(error) as raised:
        use(linear[0])
    assert message in str(raised.value)


def test_a_session_is_shared_by_threads(in_parts):
    session, failures = ort.InferenceSession(in_parts), []

    def work(seed):
        for n in range(20):
            x = (np.random.default_rng(seed + n).random(10) > 0.5).astype(np.float32)
            if not np.array_equal(session.run(None, {"x": x})[0], np.stack(np.nonzero(x))):
                failures.append(seed)

    threads = [threading.Thread(target=work, args=(100 * i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_other_packages_find_it(tmp_path):
    model = onnx_model([helper.make_node("Neg", ["x"], ["y"])], [("x", INT64, [2])], [("y", INT64, [2])])
    path = tmp_path / "neg.onnx"
    path.write_bytes(model)
    code = f"""
import tilewright.onnxruntime; tilewright.onnxruntime.install()
import onnxruntime as ort, numpy as np
from onnxruntime import GraphOptimizationLevel, InferenceSession, SessionOptions
from onnxruntime.capi import _pybind_state
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument
session = InferenceSession({str(path)!r}, sess_options=SessionOptions(), providers=ort.get_available_providers())
print(session.run(None, {{"x": np.array([1, 2])}})[0])
try:
    session.run(None, {{"x": np.array([1.0])}})
except InvalidArgument as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["[-1 -2]", "input `x` is f64 1, but the compiled model wants i64 2"]
