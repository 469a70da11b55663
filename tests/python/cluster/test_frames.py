"""Frames of pandas, which Dask and Spark give."""
import numpy as np
import pytest

from tilewright._portable import portable

pandas = pytest.importorskip("pandas", reason="pandas is not installed")
RNG = np.random.default_rng(3)


def test_columns_of_numbers_are_rows(linear, tmp_path, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_NODE_CACHE", str(tmp_path / "node"))
    model, _ = portable(linear[0], batch_size=2, columns={"x": [f"c{i}" for i in range(8)]}, outputs={"y": "score"})
    x = RNG.standard_normal((3, 8), np.float32)
    frame = pandas.DataFrame({"id": [1, 2, 3]} | {f"c{i}": x[:, i].astype(np.float64) for i in range(8)})
    result = model.run_frame(frame)
    assert list(result.columns) == ["id", "score"]
    np.testing.assert_allclose(np.stack(result["score"]), linear[1](x), rtol=1e-5, atol=1e-6)
    assert len(model.run_frame(frame.iloc[:0])) == 0


def test_cells_with_rows(linear, tmp_path, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_NODE_CACHE", str(tmp_path / "node"))
    model, _ = portable(linear[0], batch_size=2)
    x = RNG.standard_normal((5, 8), np.float32)
    frame = pandas.DataFrame({"x": list(x), "id": range(5)}, index=[7, 7, 3, 1, 0])
    result = model.run_frame(frame)
    assert list(result.columns) == ["id", "y"] and list(result.index) == [7, 7, 3, 1, 0]
    np.testing.assert_allclose(np.stack(list(result["y"])), linear[1](x), rtol=1e-5, atol=1e-6)
