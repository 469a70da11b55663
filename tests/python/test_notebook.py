"""The notebook of the examples runs; only where nbclient and a kernel are installed."""

from __future__ import annotations

from pathlib import Path

import pytest

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")

NOTEBOOK = Path(__file__).resolve().parents[2] / "examples" / "notebook.ipynb"


def test_the_notebook_runs():
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(NOTEBOOK.parent)}}).execute()
    codes = [cell for cell in notebook.cells if cell.cell_type == "code"]
    report = next(cell for cell in codes if cell.source == "model.explain(image)")
    assert "text/html" in report.outputs[0]["data"]
    assert "would run before" in codes[-1].outputs[0]["text"]
