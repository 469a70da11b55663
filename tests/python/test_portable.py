"""Models that are carried to other processes: batches, columns, targets, and the files of a node."""
import multiprocessing
import os
import pickle

import numpy as np
import pytest
from conftest import DOUBLE, FLOAT, identity

import tilewright as tw
from tilewright import _portable
from tilewright._portable import portable

RNG = np.random.default_rng(3)


@pytest.fixture(autouse=True)
def node(tmp_path, monkeypatch):
    """A node of its own, in which nothing was loaded."""
    monkeypatch.setenv("TILEWRIGHT_NODE_CACHE", str(tmp_path / "node"))
    monkeypatch.setattr(_portable, "_LOADED", {})
    monkeypatch.setattr(_portable, "events", _portable.Counter())
    return tmp_path / "node"


@pytest.fixture(scope="module")
def carried(linear):
    """The model of `linear` for batches of 4 rows."""
    model, data = portable(linear[0], batch_size=4)
    return model, data, linear[1]


def test_any_number_of_rows_is_run_in_batches(carried):
    model, _, expected = carried
    x = RNG.standard_normal((11, 8), np.float32)
    for count in (0, 1, 3, 4, 5, 8, 11):
        (y,) = model.run([x[:count]])
        assert y.shape == (count, 5) and y.dtype == np.float32
        np.testing.assert_allclose(y, expected(x[:count]), rtol=1e-5, atol=1e-6)
    # a row has the same bits wherever it stands
    assert np.array_equal(model.run([x])[0][3:], model.run([x[3:]])[0])


def test_rows_of_other_types_and_forms(carried):
    model, _, expected = carried
    x = RNG.standard_normal((3, 8), np.float32)
    cells = np.empty(3, object)
    cells[:] = list(x)
    for given in (x.astype(np.float64), np.asfortranarray(x), cells, [row.tolist() for row in x]):
        np.testing.assert_allclose(model.run([given])[0], expected(x), rtol=1e-5, atol=1e-6)
    for wrong, message in [
        (x[:, :7], r"rows have the shape \(7,\), the model takes \(8,\)"),
        (x.astype(np.complex64), "rows are of complex64, the model takes float32"),
    ]:
        with pytest.raises(tw.InvalidError, match=message):
            model.run([wrong])


def test_columns_that_are_missing_are_named(linear):
    model, _ = portable(linear[0], batch_size=2)
    with pytest.raises(tw.InvalidError, match="input `x`: there is no column `x`: there are a, b"):
        model.run_columns({"a": [1], "b": [2]})
    for arguments in ({"columns": {"z": "a"}}, {"outputs": {"z": "a"}}):
        with pytest.raises(tw.InvalidError, match="the model has no `z`"):
            portable(linear[0], batch_size=2, **arguments)


def test_two_inputs_of_as_many_rows(two):
    model, _ = portable(two)
    assert model.batch_size == 2
    a, b = RNG.standard_normal((2, 5, 3), np.float32)
    total, difference = model.run([a, b])
    assert np.array_equal(total, a + b) and np.array_equal(difference, a - b)
    with pytest.raises(tw.InvalidError, match="different numbers of rows: a: 5, b: 4"):
        model.run([a, b[:4]])


def test_what_can_be_carried(linear, tmp_path):
    x = RNG.standard_normal((3, 8), np.float32)
    path = tmp_path / "m.onnx"
    path.write_bytes(linear[0])
    compiled = tw.compile(linear[0], threads=1)
    compiled.save(tmp_path / "m.tw", [{"batch": 4}])
    for model, size in ((path, 4), (str(path), 4), (compiled, 4), (tmp_path / "m.tw", None)):
        (y,) = portable(model, batch_size=size)[0].run([x])
        np.testing.assert_allclose(y, linear[1](x), rtol=1e-5, atol=1e-6)
    double, _ = portable(tw.program(DOUBLE), batch_size=4)
    assert np.array_equal(double.run([np.arange(7, dtype=np.float32)])[0], 2 * np.arange(7))


def test_what_cannot_be_carried_is_refused_by_name(linear, tmp_path):
    compiled = tw.compile(linear[0], threads=1)
    compiled.save(tmp_path / "two.tw", [{"batch": 1}, {"batch": 4}])
    other = next(name for name in tw.targets() if name not in tw.targets(runnable=True))
    compiled.save(tmp_path / "one.tw", [{"batch": 4}])
    for model, arguments, message in [
        (linear[0], {}, "dimension `batch` counts the rows of a batch: pass `batch_size`"),
        (identity(FLOAT, [4, "n"]), {}, "dimension `n` has no size: pass it in `dims`"),
        (identity(FLOAT, [4, 2]), {"batch_size": 3}, "the model takes batches of 4 rows, not of 3"),
        (identity(FLOAT, []), {}, "first dimension of all inputs counts the rows"),
        (tmp_path / "two.tw", {"batch_size": 4}, "several sizes cannot be carried"),
        (tmp_path / "one.tw", {"targets": [other]}, "a module that was saved is for its target alone"),
    ]:
        with pytest.raises(tw.InvalidError, match=message):
            portable(model, **arguments)
    with pytest.raises(tw.FileError):
        portable(tmp_path / "no.onnx", batch_size=1)


def test_a_node_takes_the_module_of_its_processor(linear):
    runnable = tw.targets(runnable=True)
    other = next(name for name in tw.targets() if name not in runnable)
    both, data = portable(linear[0], batch_size=4, targets=[other, runnable[0]])
    assert len(data) == 2 and both.choose()[0] == runnable[0]
    x = RNG.standard_normal((3, 8), np.float32)
    np.testing.assert_allclose(both.run([x])[0], linear[1](x), rtol=1e-5, atol=1e-6)
    foreign, _ = portable(linear[0], batch_size=4, targets=[other])
    assert foreign.outputs == both.outputs
    with pytest.raises(tw.UnsupportedError, match=f"Modules were carried for {other}: name one for this processor in `targets`"):
        foreign.run([x])


def test_a_node_keeps_one_file_and_a_process_loads_it_once(carried, node):
    model, _, _ = carried
    x = np.zeros((2, 8), np.float32)
    for _ in range(3):
        pickle.loads(pickle.dumps(model.carried_by(_Given(carried[1])))).run([x])
    assert dict(_portable.events) == {"fetched": 1, "loaded": 1}
    (path,) = node.glob("*.tw")
    assert path.stem == model.modules[0][1] and not list(node.glob("*.part"))
    # another process finds the file; one that is damaged is written again
    for damage, fetched in ((b"", 0), (b"damage", 1)):
        if damage:
            path.unlink()
            path.write_bytes(damage)
        with multiprocessing.get_context("spawn").Pool(2) as pool:
            seen = pool.map(_work, [model.carried_by(_Given(carried[1]))] * 2, chunksize=1)
        pids = {pid: events for pid, events in seen}
        assert sum(events.get("fetched", 0) for events in pids.values()) == fetched
        assert all(events["loaded"] == 1 for events in pids.values())


class _Given:
    """Modules that travel along."""

    def __init__(self, modules):
        self.modules = modules

    def __call__(self, digest):
        return self.modules[digest]


def _work(model):
    model.run([np.zeros((2, 8), np.float32)])
    return os.getpid(), dict(_portable.events)


def test_a_directory_of_others_is_refused(carried, node):
    node.mkdir(mode=0o777)
    node.chmod(0o777)
    with pytest.raises(tw.FileError, match="nobody else may write"):
        carried[0].run([np.zeros((1, 8), np.float32)])
    node.chmod(0o700)
    with pytest.raises(tw.InvalidError, match="arrived with other bytes"):
        carried[0].carried_by(lambda digest: b"no module").run([np.zeros((1, 8), np.float32)])
