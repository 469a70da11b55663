"""The examples of the engines run."""
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

FOLDER = pathlib.Path(__file__).resolve().parents[3] / "examples" / "cluster"


@pytest.mark.parametrize("engine", ["ray", "dask", "spark"])
def test_an_example_computes_what_one_process_computes(engine, tmp_path):
    package = {"spark": "pyspark", "dask": "distributed"}.get(engine, engine)
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    if engine == "spark" and shutil.which("java") is None:
        pytest.skip("java is not installed")
    environment = os.environ | {"TILEWRIGHT_NODE_CACHE": str(tmp_path), "SPARK_LOCAL_IP": "127.0.0.1"}
    tmp_path.chmod(0o700)
    command = [sys.executable, FOLDER / f"with_{engine}.py"]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2560 spectra as in one process" in done.stdout
