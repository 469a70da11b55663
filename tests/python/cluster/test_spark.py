"""Spark on a local cluster of two executors: `make test-cluster`."""
import os
import pathlib
import shutil
import signal
import sys

import numpy as np
import pytest
from network import BATCH, WIDTH, in_one_process, network, rows

import tilewright as tw

pytest.importorskip("pyspark", reason="pyspark is not installed")
pandas = pytest.importorskip("pandas", reason="pandas is not installed")
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
    run = tilewright.spark.function(model)

    def witness(frames):
        from tilewright import _portable

        for part in run(frames):
            events = {name: _portable.events[name] for name in ("fetched", "loaded")}
            yield part.assign(node=os.getcwd(), pid=os.getpid(), **events)

    schema = tilewright.spark.schema(given, model).add("node", "string")
    for name in ("pid", "fetched", "loaded"):
        schema = schema.add(name, "long")
    found = given.mapInPandas(witness, schema).collect()
    check(found, x)
    nodes = {row["node"] for row in found}
    assert len(nodes) == 2
    # each executor wrote the module once, and each Python process loaded it once
    processes = {row["pid"]: row for row in found}
    assert all(row["loaded"] == 1 for row in processes.values())
    for node in nodes:
        assert sum(row["fetched"] for row in processes.values() if row["node"] == node) == 1
        assert len(list((pathlib.Path(node) / "modules").glob("*.tw"))) == 1


def test_map_in_pandas_is_one_call(spark, tmp_path):
    x = rows(ROWS)
    path = tmp_path / "model.onnx"
    path.write_bytes(network())
    scored = tilewright.spark.map_in_pandas(frame(spark, x), str(path), batch_size=BATCH)
    assert scored.schema.simpleString() == "struct<id:bigint,y:array<float>,top:float>"
    check(scored.collect(), x)
    # columns of one number each
    columns = [f"c{i}" for i in range(WIDTH)]
    wide = spark.createDataFrame(pandas.DataFrame({"id": np.arange(ROWS)} | {name: x[:, i] for i, name in enumerate(columns)}))
    scored = tilewright.spark.map_in_pandas(wide, str(path), batch_size=BATCH, columns={"x": columns})
    assert scored.columns == ["id", "y", "top"]
    check(scored.collect(), x)
    with pytest.raises(tw.InvalidError, match="there is no column `x`: there are id, c0"):
        tilewright.spark.map_in_pandas(wide, str(path), batch_size=BATCH)


def test_tasks_of_a_lost_executor_are_run_again(spark, tmp_path):
    x, marker = rows(ROWS), str(tmp_path / "marker")
    model = tilewright.spark.broadcast(spark, network(), batch_size=BATCH)
    given = frame(spark, x)
    run = tilewright.spark.function(model)

    def mortal(frames):
        for part in run(frames):
            try:
                os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                yield part
                continue
            # the parent is the daemon of the Python processes, its parent the executor
            parent = pathlib.Path(f"/proc/{os.getppid()}/stat").read_text().rsplit(")", 1)[1].split()[1]
            os.kill(int(parent), signal.SIGKILL)
            signal.pause()

    check(given.mapInPandas(mortal, tilewright.spark.schema(given, model)).collect(), x)
    assert pathlib.Path(marker).exists()


def test_a_module_for_another_processor_is_refused_by_name(spark):
    other = next(name for name in tw.targets() if name not in tw.targets(runnable=True))
    scored = tilewright.spark.map_in_pandas(frame(spark, rows(2), 1), network(), batch_size=BATCH, targets=[other])
    with pytest.raises(PythonException, match=f"Modules were carried for {other}"):
        scored.collect()
