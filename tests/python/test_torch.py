"""torch.compile with the backend of tilewright, and models out of modules: `make test-torch`."""
import warnings

import ml_dtypes
import numpy as np
import pytest
import torch
from pages import run

import tilewright as tw
import tilewright.torch

torch.manual_seed(0)


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Sequential(
            torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
            torch.nn.Flatten(), torch.nn.Linear(8 * 16, 10),
        )

    def forward(self, x):
        return torch.softmax(self.body(x), 1)


@pytest.fixture(autouse=True)
def anew():
    torch._dynamo.reset()


def test_a_compiled_module_computes_what_pytorch_computes():
    module, x = Network().eval(), torch.randn(2, 3, 8, 8)
    fast = torch.compile(module, backend="tilewright")
    with torch.no_grad():
        torch.testing.assert_close(fast(x), module(x), rtol=1e-4, atol=1e-5)
        # another size, then weights that were written
        larger = torch.randn(5, 3, 8, 8)
        torch.testing.assert_close(fast(larger), module(larger), rtol=1e-4, atol=1e-5)
        module.body[0].weight.mul_(2)
        torch.testing.assert_close(fast(x), module(x), rtol=1e-4, atol=1e-5)


def test_functions_with_several_outputs_and_numbers():
    def function(x, y, n):
        return x @ y + n, (x * n).sum(0)

    fast = torch.compile(function, backend="tilewright")
    x, y = torch.randn(4, 5), torch.randn(5, 3)
    with torch.no_grad():
        for n in (2, 3):
            for result, expected in zip(fast(x, y, n), function(x, y, n), strict=True):
                torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-5)


def test_a_model_of_a_module():
    module, x = Network().train(), torch.randn(2, 3, 8, 8)
    model = tw.from_torch(module, x, threads=1)
    assert module.training
    with torch.no_grad():
        expected = module.eval()(x).numpy()
    np.testing.assert_allclose(model(x), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(model(x.numpy()), expected, rtol=1e-4, atol=1e-5)
    batch = torch.export.Dim("batch")
    dynamic = tw.from_torch(module, (x,), dynamic_shapes=({0: batch},))
    np.testing.assert_allclose(dynamic(torch.cat([x, x]))[2:], expected, rtol=1e-4, atol=1e-5)


def test_tensors_of_types_that_numpy_lacks():
    x = torch.randn(3, 4).to(torch.bfloat16)
    array = tilewright.torch.to_numpy(x)
    assert array.dtype == ml_dtypes.bfloat16 and torch.equal(tilewright.torch.from_numpy(array), x)
    fast = torch.compile(lambda t: t + t, backend="tilewright")
    with torch.no_grad():
        assert torch.equal(fast(x), x + x)


def test_what_cannot_be_compiled_is_named():
    def function(x):
        return torch.linalg.svd(x)[1]

    x = torch.randn(3, 3)
    with torch.no_grad(), pytest.raises(Exception, match="ONNX|unsupported|svd"):
        torch.compile(function, backend="tilewright")(x)
    torch._dynamo.reset()
    with torch.no_grad(), warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        result = torch.compile(function, backend="tilewright", options={"fallback": True})(x)
    torch.testing.assert_close(result, function(x))
    assert any("PyTorch runs a graph" in str(w.message) for w in seen)


def test_gradients_are_refused():
    module, x = Network().eval(), torch.randn(2, 3, 8, 8)
    with pytest.raises(Exception, match="no_grad"):
        torch.compile(module, backend="tilewright")(x)


def test_the_page_shows_what_runs(tmp_path):
    before = """
import torch
import tilewright as tw
module, example = torch.nn.Sequential(torch.nn.Linear(8, 5), torch.nn.ReLU()).eval(), torch.randn(2, 8)
"""
    after = """
with torch.no_grad():
    torch.testing.assert_close(fast(example), module(example), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(torch.from_numpy(model(example)), module(example), rtol=1e-4, atol=1e-5)
"""
    run("docs/python.md", ["PyTorch"], tmp_path, before, after)
