"""Batches of Arrow, which Spark gives."""
import threading

import numpy as np
import pytest

import tilewright as tw
from tilewright._portable import portable

pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
from tilewright._arrow import run_batch  # noqa: E402

RNG = np.random.default_rng(3)


@pytest.fixture
def model(linear, tmp_path, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_NODE_CACHE", str(tmp_path / "node"))
    return portable(linear[0], batch_size=2)[0]


def columns(x):
    """The rows of x, one after two others that are cut off, in each way in which Arrow holds them."""
    padded = np.concatenate([np.zeros_like(x[:2]), x])
    lists = pyarrow.array(padded.tolist(), pyarrow.list_(pyarrow.float32()))
    return {
        "lists": lists,
        "large lists": lists.cast(pyarrow.large_list(pyarrow.float32())),
        "doubles": lists.cast(pyarrow.list_(pyarrow.float64())),
        "lists of one length": pyarrow.FixedSizeListArray.from_arrays(padded.reshape(-1), x.shape[1]),
        "lists of lists": pyarrow.array(padded.reshape(-1, 2, 4).tolist(), pyarrow.list_(pyarrow.list_(pyarrow.float32()))),
        "bytes": pyarrow.array([row.tobytes() for row in padded], pyarrow.binary()),
        "large bytes": pyarrow.array([row.tobytes() for row in padded], pyarrow.large_binary()),
        "bytes of one length": pyarrow.array([row.tobytes() for row in padded], pyarrow.binary(4 * x.shape[1])),
    }


def run(model, column):
    ids = pyarrow.array(range(len(column)))
    (result,) = run_batch(model, pyarrow.RecordBatch.from_arrays([ids, column], names=["id", "x"]), {})
    assert result.schema.names == ["id", "y"] and result.column("id").equals(ids)
    return result.column("y")


@pytest.mark.parametrize("kind", list(columns(np.zeros((1, 8), np.float32))))
def test_rows_of_each_kind_of_column(model, linear, kind):
    x = RNG.standard_normal((5, 8), np.float32)
    column = columns(x)[kind].slice(2)
    found = run(model, column)
    np.testing.assert_allclose(np.array(found.to_pylist(), np.float32), linear[1](x), rtol=1e-5, atol=1e-6)
    assert run(model, column.slice(0, 0)).to_pylist() == []


def test_numbers_are_not_copied(model, monkeypatch):
    x = RNG.standard_normal((2, 8), np.float32)
    seen = []
    monkeypatch.setattr(type(model), "run", lambda self, arrays: seen.append(arrays[0]) or [np.zeros((2, 5), np.float32)])
    for kind in ("lists", "lists of one length", "bytes", "bytes of one length"):
        column = columns(x)[kind].slice(2)
        run(model, column)
        addresses = [buffer.address for buffer in column.buffers() if buffer is not None]
        assert seen[-1].__array_interface__["data"][0] - 2 * 8 * 4 in addresses, kind


@pytest.mark.parametrize(
    ("values", "kind", "message"),
    [
        ([[1.0] * 8, [1.0] * 7], "list<float>", "rows of 7 to 8 elements"),
        ([[1.0] * 8, None], "list<float>", "1 entries without a value"),
        ([[1.0] * 7 + [None]] * 2, "list<float>", "2 entries without a value"),
        ([b"1" * 32, b"1" * 31], "binary", "rows of 31 to 32 elements"),
        ([b"1" * 31] * 2, "binary", "rows of 31 bytes"),
        ([[1.0] * 9] * 2, "list<float>", "the model takes"),
        (["a", "b"], "string", "the model takes"),
    ],
)
def test_wrong_columns(model, values, kind, message):
    kinds = {"list<float>": pyarrow.list_(pyarrow.float32()), "binary": pyarrow.binary(), "string": pyarrow.string()}
    with pytest.raises(tw.InvalidError, match=message):
        run(model, pyarrow.array(values, kinds[kind]))


def test_unsigned_numbers_come_back_wider(linear, tmp_path, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_NODE_CACHE", str(tmp_path / "node"))
    program = tw.program("def twice(u8(N, 3) x) -> (y) { y(n, i) = x(n, i) + x(n, i) }")
    model, _ = portable(program, batch_size=4)
    batch = pyarrow.RecordBatch.from_arrays([pyarrow.array([[1, 2, 100]] * 5, pyarrow.list_(pyarrow.uint8()))], names=["x"])
    (result,) = run_batch(model, batch, {"y": pyarrow.int16()})
    assert result.column("y").type == pyarrow.list_(pyarrow.int16()) and result.column("y").to_pylist() == [[2, 4, 200]] * 5


def test_the_next_batch_is_taken_while_one_runs(model, monkeypatch):
    spark = pytest.importorskip("tilewright.spark", reason="pyspark is not installed", exc_type=ImportError)
    taken, running = threading.Event(), []
    batch = pyarrow.RecordBatch.from_arrays([pyarrow.array([1])], names=["x"])

    def batches():
        yield batch
        taken.set()
        yield batch

    def run_batch(carried, given, types):
        running.append(taken.wait(30))
        yield given

    monkeypatch.setattr("tilewright._arrow.run_batch", run_batch)
    assert list(spark.arrow_function(model)(batches())) == [batch, batch]
    assert running == [True, True]


def test_an_error_of_the_engine_ends_the_batches(model):
    spark = pytest.importorskip("tilewright.spark", reason="pyspark is not installed", exc_type=ImportError)

    def batches():
        yield pyarrow.RecordBatch.from_arrays([columns(np.zeros((2, 8), np.float32))["lists"]], names=["x"])
        raise OSError("the connection is closed")

    results = spark.arrow_function(model)(batches())
    assert next(results).num_rows == 4
    with pytest.raises(OSError, match="the connection is closed"):
        next(results)
