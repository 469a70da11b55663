"""What the pages show of Python runs as it stands there."""
import pytest
from conftest import FLOAT, ROOT, identity
from pages import blocks, run

ALONE = ["Five minutes", "In place of ONNX Runtime", "Programs and schedules", "Programs built in Python"]
#: Needs PyTorch: `test_torch.py` runs it.
ELSEWHERE = ["PyTorch"]

ARRAYS = """
import numpy as np
x = given = np.random.default_rng(0).standard_normal((4, 8), np.float32)
a, b = np.ones((48, 32), np.float32), np.full((32, 64), 2, np.float32)
"""


@pytest.fixture
def folder(tmp_path, linear):
    """A folder with the model that pages name, and a package that imports ONNX Runtime."""
    (tmp_path / "model.onnx").write_bytes(linear[0])
    (tmp_path / "rapidocr_onnxruntime.py").write_text("from onnxruntime import InferenceSession\n")
    return tmp_path


def test_the_page_of_python(folder):
    after = """
(again,) = session.run(None, {"x": given})
assert np.allclose(y, again) and (outputs["y"] == y).all()
assert rapidocr_onnxruntime.InferenceSession is tilewright.onnxruntime.InferenceSession
assert (c == 64).all() and (fast(a, b) == 64).all()
assert np.allclose(prefix.build()(given[0]), np.cumsum(given[0]))
"""
    said = run("docs/python.md", ALONE, folder, ARRAYS, after)
    assert "name='x'" in said and "(3, 32)" in said, said


def test_every_block_of_the_page_is_run():
    assert {heading for heading, _, _ in blocks("docs/python.md")} == {*ALONE, *ELSEWHERE}


def test_the_page_of_the_repository(folder):
    run("README.md", ["Start"], folder, ARRAYS, "assert np.array_equal(y, model(x)) and (c == 64).all()")


def test_the_page_of_the_package(folder):
    (folder / "model.onnx").write_bytes(identity(FLOAT, ["batch", 3, 224, 224]))
    before = "import numpy as np; x = np.ones((2, 3, 224, 224), np.float32)"
    run("src/python/README.md", ["tilewright"], folder, before, "assert not y.any() and (outputs['y'] == x).all()")


def test_errors_name_the_line_of_the_page(folder):
    number, text = next((first, text) for heading, first, text in blocks("docs/python.md") if heading == "Programs and schedules")
    line = number + next(i for i, line in enumerate(text.splitlines()) if line.startswith("c = gemm"))
    with pytest.raises(AssertionError, match=f'{ROOT}/docs/python.md", line {line}, in'):
        run("docs/python.md", ["Programs and schedules"], folder, "import tilewright as tw\na = b = None")
