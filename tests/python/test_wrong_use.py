"""Wrong use gives an exception that says what is wrong, and never ends the process."""
import ctypes
import os
import pickle
import signal
import subprocess
import sys
import threading
import time

import ml_dtypes
import numpy as np
import pytest
from conftest import DOUBLE, GEMM, identity
from onnx import TensorProto

import tilewright as tw

X = np.ones((2, 8), np.float32)


def test_every_exception_has_one_base():
    for error in (tw.InvalidError, tw.UnsupportedError, tw.ScheduleError, tw.LimitError, tw.FileError, tw.InternalError):
        assert issubclass(error, tw.Error)
    assert issubclass(tw.InvalidError, ValueError) and issubclass(tw.UnsupportedError, NotImplementedError)
    assert issubclass(tw.FileError, OSError)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (X.astype(np.float64), "input `x` is f64, but the model wants f32"),
        (X[:, :7], "`x` is f32 2×7"),
        (X[0], "2 dimensions"),
        (X.astype(">f4"), "input `x` is big-endian"),
        (X.astype(complex), "format `Zd`"),
        (np.array([["a"] * 8] * 2), "which no model has"),
        (np.full((2, 8), None), "which no model has"),
        ([[1.0] * 8] * 2, "input `x` is a list"),
        (3.0, "input `x` is a float"),
        (None, "input `x` is a NoneType"),
        (X.astype(ml_dtypes.float8_e3m4), "type float8_e3m4, which no model has"),
        (X.astype(ml_dtypes.bfloat16).view(">u2"), "big-endian"),
    ],
    ids=range(12),
)
def test_wrong_inputs(linear, value, message):
    model = tw.compile(linear[0])
    for call in (lambda: model(value), lambda: model.run({"x": value})):
        with pytest.raises(tw.InvalidError) as raised:
            call()
        assert message in str(raised.value)
    assert model(X).shape == (2, 5)


def test_wrong_dlpack_capsules(linear):
    class Lender:
        def __init__(self, capsule):
            self.capsule = capsule

        def __dlpack__(self, **arguments):
            if isinstance(self.capsule, Exception):
                raise self.capsule
            return self.capsule

        def __dlpack_device__(self):
            return (1, 0)

    model = tw.compile(linear[0])
    once = Lender(X.__dlpack__())
    assert model(once).shape == (2, 5)
    for lender, cause in [(once, ValueError), (Lender(5), ValueError), (Lender(RuntimeError("gone")), RuntimeError)]:
        with pytest.raises(tw.InvalidError, match="input `x`: numpy.from_dlpack refuses it: ") as raised:
            model(lender)
        assert isinstance(raised.value.__cause__, cause)


def test_wrong_names_and_numbers_of_inputs(two):
    model = tw.compile(two)
    a = np.ones((2, 3), np.float32)
    for call, message in [
        (lambda: model(a), "input `b` is missing"),
        (lambda: model(), "input `a` is missing"),
        (lambda: model(a, a, a), "3 inputs given, but the model has 2"),
        (lambda: model(a, a=a, b=a), "input `a` is given twice"),
        (lambda: model(a, b=a, c=a), "there is no input `c`: there are a, b"),
        (lambda: model.run({"a": a}), "input `b` is missing"),
        (lambda: model.run({"a": a, "B": a}), "there is no input `B`"),
    ]:
        with pytest.raises(tw.InvalidError) as raised:
            call()
        assert message in str(raised.value)
    with pytest.raises(TypeError):
        model.run({1: a, 2: a})
    with pytest.raises(TypeError):
        model.run([a, a])


def test_wrong_out(two):
    model = tw.compile(two)
    a, b = np.ones((2, 3), np.float32), np.full((2, 3), 4, np.float32)
    fixed = np.zeros((2, 3), np.float32)
    fixed.flags.writeable = False
    joined = np.zeros((3, 3), np.float32)
    for out, message in [
        ({"sum": fixed}, "`out` for `sum` is read-only"),
        ({"sum": bytes(24)}, "read-only"),
        ({"sum": bytearray(24)}, "is u8 24"),
        ({"sum": np.zeros((2, 6), np.float32)[:, ::2]}, "is not contiguous"),
        ({"sum": np.zeros((3, 2), np.float32)}, "output `sum` is f32 3×2"),
        ({"sum": np.zeros((2, 3), np.float64)}, "output `sum` is f64 2×3"),
        ({"sum": np.zeros((2, 3), ">f4")}, "big-endian"),
        ({"sum": a}, "has memory of input `a`"),
        ({"sum": joined[:2], "difference": joined[1:]}, "has memory of output 0"),
        ({"total": joined[:2]}, "there is no output `total`: there are sum, difference"),
        ([joined[:2]], "`out` has 1 arrays, but the model has 2 outputs"),
        (joined[:2], "`out` has 1 arrays"),
        ([[1.0], None], "is a list"),
    ]:
        with pytest.raises(tw.InvalidError) as raised:
            model.run({"a": a, "b": b}, out=out)
        assert message in str(raised.value), message
    assert (a == 1).all() and not joined.any() and not fixed.any()


def test_wrong_out_of_a_model_in_parts(in_parts):
    model = tw.compile(in_parts)
    x = np.array([1, 0, 1], np.float32)
    for out, message in [(np.zeros((1, 3), np.int64), "i64 [1, 3]"), (np.zeros((1, 2), np.int32), "i32 [1, 2]")]:
        with pytest.raises(tw.InvalidError) as raised:
            model(x, out=out)
        assert message in str(raised.value)


def test_wrong_options(linear, tmp_path):
    model, _ = linear
    for options, error, message in [
        ({"threads": 0}, tw.InvalidError, "at least 1"),
        ({"threads": 1 << 30}, tw.LimitError, "threads"),
        ({"target": "z80"}, tw.InvalidError, "there is no target `z80`: there are x86-64-amx"),
        ({"dims": {"length": 3}}, tw.InvalidError, "length"),
        ({"dims": {"batch": -1}}, tw.Error, "batch"),
        ({"algorithm": "magic"}, tw.InvalidError, "there is no algorithm `magic`"),
        ({"precision": "f8"}, tw.InvalidError, "there is no precision `f8`"),
        ({"accumulate": "f64"}, tw.InvalidError, "there is no type of sums `f64`"),
        ({"quotients": "fast"}, tw.InvalidError, "there is no kind of quotients `fast`"),
        ({"optimise": True}, tw.InvalidError, "there is no option `optimise`: there are"),
        ({"growing": ["rows"]}, tw.InvalidError, "rows"),
        ({"inputs": ["q"]}, tw.InvalidError, "q"),
        ({"max_memory": 10, "dims": {"batch": 2}}, tw.LimitError, "10"),
        ({"schedules": "schedule a for b {"}, tw.InvalidError, "schedules:1"),
        ({"instructions": "instruction"}, tw.InvalidError, "instructions:1"),
    ]:
        with pytest.raises(error) as raised:
            tw.compile(model, **options)
        assert message in str(raised.value), options
    for options in (
        {"threads": "many"}, {"threads": 1.5}, {"dims": {"batch": "two"}}, {"dims": 3}, {"dims": ["batch"]}, {"max_error": "small"},
        {"precision": 16}, {"growing": "batch"}, {"inputs": "x"}, {"max_memory": -1}, {"max_memory": 1 << 70},
    ):  # fmt: skip
        with pytest.raises(tw.InvalidError, match=f"option `{next(iter(options))}`: "):
            tw.compile(model, **options)
    with pytest.raises(tw.FileError, match="nothing.onnx"):
        tw.compile(tmp_path / "nothing.onnx")
    with pytest.raises(tw.InvalidError):
        tw.compile(b"no model at all")
    with pytest.raises(tw.InvalidError):
        tw.compile(model[: len(model) // 2])
    with pytest.raises(tw.InvalidError, match="directory"):
        tw.compile(tmp_path / "a.onnx", directory=tmp_path)
    with pytest.raises((tw.InvalidError, TypeError)):
        tw.Model({})
    with pytest.raises(tw.InvalidError, match="there is no option `q`"):
        tw.Model({"bytes": model}, {"q": 1})


def test_files_that_are_no_modules(tmp_path, linear):
    path = tmp_path / "a.tw"
    tw.compile(linear[0], dims={"batch": 2}).save(path)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    cut = [bytes(data[: len(data) * part // 20]) for part in range(20)]
    for contents in (b"", b"no module", linear[0], bytes(data), bytes(data) * 2, *cut):
        path.write_bytes(contents)
        with pytest.raises(tw.InvalidError):
            tw.load(path)
    for place in (tmp_path, "/dev/zero"):
        with pytest.raises(tw.InvalidError, match="not a regular file"):
            tw.load(place)
    with pytest.raises(tw.FileError):
        tw.load(tmp_path / "nothing.tw")
    with pytest.raises(tw.FileError):
        tw.load("a\0b")
    with pytest.raises(tw.FileError):
        tw.compile(linear[0], dims={"batch": 2}).save(tmp_path / "no" / "folder.tw")


def test_a_closed_model_refuses_every_call(linear):
    with tw.compile(linear[0]) as model:
        assert not model.closed and model(X).shape == (2, 5)
    assert model.closed and "closed" in repr(model)
    for call in (lambda: model(X), lambda: model.run({"x": X}), lambda: model.inputs, lambda: model.outputs,
                 lambda: model.explain(X), lambda: model.save("a.tw"), lambda: model.threads, lambda: pickle.dumps(model)):
        with pytest.raises(tw.InvalidError, match="the model is closed"):
            call()
    model.close()


def test_a_model_is_closed_while_others_run_it(linear):
    for _ in range(5):
        model = tw.compile(linear[0], threads=2)
        model(X)
        errors = []

        def work(model=model, errors=errors):
            try:
                for _ in range(2000):
                    model(X)
            except tw.InvalidError as error:
                errors.append(str(error))

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        time.sleep(0.01)
        model.close()
        for thread in threads:
            thread.join()
        assert set(errors) <= {"the model is closed"}


def test_results_outlive_their_model(linear):
    model = tw.compile(linear[0])
    y = model(X)
    expected = y.copy()
    del model
    assert np.array_equal(y, expected)


def test_a_buffer_that_is_lent_cannot_be_resized():
    double = tw.program(DOUBLE).compile()
    x = bytearray(np.ones(1000, np.float32).tobytes())
    lent = memoryview(x).cast("f")
    assert double(lent).sum() == 2000
    lent.release()
    x.clear()


def test_operators_that_are_not_supported_are_listed(tmp_path):
    from conftest import onnx_model
    from onnx import helper

    model = onnx_model([helper.make_node("ImageDecoder", ["x"], ["y"])], [("x", TensorProto.UINT8, [3])], [("y", TensorProto.UINT8, [3])])
    with pytest.raises(tw.UnsupportedError, match="ImageDecoder"):
        tw.compile(model)


def test_subscripts_out_of_range_are_refused():
    gather = tw.program("def g(f32(N) x, i64(M) at) -> (y) { y(i) = x(at(i)) }").compile()
    x = np.arange(4, dtype=np.float32)
    assert gather(x, np.array([3, 0])).tolist() == [3, 0]
    with pytest.raises(tw.InvalidError):
        gather(x, np.array([3, 4]))


def wait_for(child, seconds=20):
    """The exit code of a child process, which is ended when it hangs."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "hangs"


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_runs_models_on_threads_of_its_own(linear, in_parts):
    model = tw.compile(linear[0], threads=2)
    parts = tw.compile(in_parts, threads=2)
    expected = model(X)
    parts(X[0])
    child = os.fork()
    if child == 0:
        alone = len(os.listdir("/proc/self/task")) == 1
        same = np.array_equal(model(X), expected) and model.threads == 2 and parts(X[0]).shape == (1, 8)
        larger = model(np.ones((5, 8), np.float32)).shape == (5, 5)
        anew = np.array_equal(tw.compile(linear[0], threads=2)(X), expected)
        started = len(os.listdir("/proc/self/task")) > 1
        os._exit(0 if alone and same and larger and anew and started else 1)
    assert wait_for(child) == 0
    assert model.threads == 2 and np.array_equal(model(X), expected)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forks_while_threads_run_and_compile_do_not_hang(linear):
    model = tw.compile(linear[0], threads=2)
    stop = threading.Event()

    def run():
        while not stop.is_set():
            model(X)

    def compile_sizes():
        rows = 3
        while not stop.is_set():
            model(np.ones((rows, 8), np.float32))
            rows += 1

    threads = [threading.Thread(target=run), threading.Thread(target=compile_sizes)]
    for thread in threads:
        thread.start()
    codes = []
    for turn in range(8):
        child = os.fork()
        if child == 0:
            fine = model(X).shape == (2, 5) and model(np.ones((3 + turn, 8), np.float32)).shape == (3 + turn, 5)
            os._exit(0 if fine else 1)
        codes.append(wait_for(child))
    stop.set()
    for thread in threads:
        thread.join()
    assert codes == [0] * 8


def test_a_process_ends_while_a_thread_runs_a_model():
    code = f"""
import threading, numpy as np, tilewright as tw
gemm = tw.program({GEMM!r}).compile(threads=2)
a, b = np.ones((400, 400), np.float32), np.ones((400, 400), np.float32)
gemm(a, b)
def work():
    while True:
        gemm(a, b)
threading.Thread(target=work, daemon=True).start()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_native_objects_cannot_be_made_or_misused():
    from tilewright import _native

    with pytest.raises(TypeError):
        _native.Memory()
    with pytest.raises(TypeError):
        _native.Model()
    with pytest.raises(tw.InvalidError):
        _native.Model({}, {})


def test_an_array_keeps_the_memory_that_it_has(in_parts):
    places = tw.compile(in_parts)(np.ones(100000, np.float32))
    part = places[:, 5:7]
    del places
    assert part.tolist() == [[5, 6]] and part.flags.writeable
    part[0, 0] = 9
    assert ctypes.cast(part.ctypes.data, ctypes.POINTER(ctypes.c_int64))[0] == 9


def test_bools_of_other_bytes_do_no_harm():
    x = np.array([0, 1, 2, 255], np.uint8).view(np.bool_)
    model = tw.compile(identity(TensorProto.BOOL, [4]))
    assert model(x).shape == (4,)
