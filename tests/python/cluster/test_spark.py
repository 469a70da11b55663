"""Spark on a local cluster of two executors: `make test-cluster`."""
import os
import pathlib
import shutil
import signal
import sys

import numpy as np
import pytest
from network import BATCH, WIDTH, in_one_process, network, rows
from pages import results

import tilewright as tw

pytest.importorskip("pyspark", reason="pyspark is not installed")
pandas = pytest.importorskip("pandas", reason="pandas is not installed")
pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
if shutil.which("java") is None:
    pytest.skip("java is not installed", allow_module_level=True)

import tilewright.spark  # noqa: E402
from pyspark.errors import PythonException  # noqa: E402
from pyspark.sql import SparkSession, types  # noqa: E402

ROWS = 20 * BATCH + 3


@pytest.fixture(scope="module")
def spark(tmp_path_factory):
    """Two executors of one core, each with a directory of modules below its own working directory."""
    folder = os.path.dirname(os.path.abspath(__file__))
    paths = os.pathsep.join([folder, os.path.dirname(folder), os.environ.get("PYTHONPATH", "")])
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    settings = {
        "spark.executorEnv.PYTHONPATH": paths,
        "spark.executorEnv.TILEWRIGHT_NODE_CACHE": "modules",
        "spark.executor.memory": "512m",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "4",
        "spark.python.worker.faulthandler.enabled": "false",
        "spark.local.dir": str(tmp_path_factory.mktemp("spark")),
    }
    builder = SparkSession.builder.master("local-cluster[2,1,1024]").appName("tilewright")
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


def frame(spark, x, parts=10):
    fields = [types.StructField("id", types.LongType()), types.StructField("x", types.ArrayType(types.FloatType()))]
    data = [(i, row) for i, row in enumerate(x.tolist())]
    return spark.createDataFrame(spark.sparkContext.parallelize(data, parts), types.StructType(fields))


def check(found, x):
    found = sorted(found, key=lambda row: row["id"])
    assert [row["id"] for row in found] == list(range(len(x)))
    for name, expected in zip(("y", "top"), in_one_process(x), strict=True):
        np.testing.assert_allclose(np.array([row[name] for row in found]), expected, rtol=1e-5, atol=1e-6)


def test_both_executors_work_and_results_are_those_of_one_process(spark):
    x = rows(ROWS)
    model = tilewright.spark.broadcast(spark, network(), batch_size=BATCH)
    given = frame(spark, x)
    run = tilewright.spark.arrow_function(model)

    def witness(batches):
        from tilewright import _portable

        for part in run(batches):
            more = {"node": os.getcwd(), "pid": os.getpid()} | {name: _portable.events[name] for name in ("fetched", "loaded")}
            for name, value in more.items():
                part = part.append_column(name, pyarrow.array([value] * len(part)))
            yield part

    schema = tilewright.spark.schema(given, model).add("node", "string")
    for name in ("pid", "fetched", "loaded"):
        schema = schema.add(name, "long")
    found = given.mapInArrow(witness, schema).collect()
    check(found, x)
    nodes = {row["node"] for row in found}
    assert len(nodes) == 2
    # each executor wrote the module once, and each Python process loaded it once
    processes = {row["pid"]: row for row in found}
    assert all(row["loaded"] == 1 for row in processes.values())
    for node in nodes:
        assert sum(row["fetched"] for row in processes.values() if row["node"] == node) == 1
        assert len(list((pathlib.Path(node) / "modules").glob("*.tw"))) == 1


@pytest.mark.parametrize("way", ["map_in_arrow", "map_in_pandas"])
def test_a_frame_is_mapped_by_one_call(spark, tmp_path, way):
    map_rows = getattr(tilewright.spark, way)
    x = rows(ROWS)
    path = tmp_path / "model.onnx"
    path.write_bytes(network())
    scored = map_rows(frame(spark, x), str(path), batch_size=BATCH)
    assert scored.schema.simpleString() == "struct<id:bigint,y:array<float>,top:float>"
    check(scored.collect(), x)
    # columns of one number each
    columns = [f"c{i}" for i in range(WIDTH)]
    wide = spark.createDataFrame(pandas.DataFrame({"id": np.arange(ROWS)} | {name: x[:, i] for i, name in enumerate(columns)}))
    scored = map_rows(wide, str(path), batch_size=BATCH, columns={"x": columns})
    assert scored.columns == ["id", "y", "top"]
    check(scored.collect(), x)
    with pytest.raises(tw.InvalidError, match="there is no column `x`: there are id, c0"):
        map_rows(wide, str(path), batch_size=BATCH)


def test_types_of_columns(spark):
    """Bytes of rows, unsigned numbers that come back wider, booleans and rows of several dimensions."""
    text = "def q(u8(N, 2, 3) x, f32(N) w) -> (y, z, b) { y(n, i, j) = x(n, i, j) + x(n, i, j) z(n) = w(n) * 2 b(n, i) = x(n, i, 0) > 3 }"
    x, w = np.arange(30, dtype=np.uint8).reshape(5, 2, 3), np.arange(5, dtype=np.float32)
    data = [(i, bytearray(x[i].tobytes()), float(w[i])) for i in range(5)]
    given = spark.createDataFrame(spark.sparkContext.parallelize(data, 2), "id long, x binary, w float")
    scored = tilewright.spark.map_in_arrow(given, tw.program(text), batch_size=4)
    assert scored.schema.simpleString() == "struct<id:bigint,y:array<smallint>,z:float,b:array<boolean>>"
    for row in scored.collect():
        i = row["id"]
        assert row["y"] == (2 * x[i]).ravel().tolist() and row["z"] == 2 * w[i] and row["b"] == (x[i, :, 0] > 3).tolist()


def test_tasks_of_a_lost_executor_are_run_again(spark, tmp_path):
    x, marker = rows(ROWS), str(tmp_path / "marker")
    model = tilewright.spark.broadcast(spark, network(), batch_size=BATCH)
    given = frame(spark, x)
    run = tilewright.spark.arrow_function(model)

    def mortal(batches):
        for part in run(batches):
            try:
                os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                yield part
                continue
            # the parent is the daemon of the Python processes, its parent the executor
            parent = pathlib.Path(f"/proc/{os.getppid()}/stat").read_text().rsplit(")", 1)[1].split()[1]
            os.kill(int(parent), signal.SIGKILL)
            signal.pause()

    check(given.mapInArrow(mortal, tilewright.spark.schema(given, model)).collect(), x)
    assert pathlib.Path(marker).exists()


def test_a_module_for_another_processor_is_refused_by_name(spark):
    other = next(name for name in tw.targets() if name not in tw.targets(runnable=True))
    scored = tilewright.spark.map_in_arrow(frame(spark, rows(2), 1), network(), batch_size=BATCH, targets=[other])
    with pytest.raises(PythonException, match=f"Modules were carried for {other}"):
        scored.collect()


def test_the_page_shows_what_runs(spark, tmp_path, monkeypatch):
    x = rows(ROWS)
    (tmp_path / "model.onnx").write_bytes(network())
    monkeypatch.chdir(tmp_path)
    for scored in results("docs/cluster.md", "tilewright.spark.", tilewright=tilewright, frame=frame(spark, x)):
        check(scored.collect(), x)
