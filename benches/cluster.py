#!/usr/bin/env python3
"""Measures the share of a worker's time that is not in `run`, for batches in Ray, Dask and Spark on two nodes of one core.

usage: PYTHONPATH=target/python target/cluster-venv/bin/python benches/cluster.py [ENGINE …]     (after `make test-cluster`)

The network has 16 layers of 1024 by 1024: 34 MFLOP and 4 kB a row, as image networks have, and 64 MiB of weights. Batches have 96
rows; an engine hands over eight at once, Ray and Spark from partitions of four such blocks and more. The model is loaded before.
Of each worker process, the time from the beginning of its first call to the end of its
last one counts, and that in `Model.run` in it: by the clock, and in seconds of the processor (all threads of the process). An engine
runs ROUNDS times, the first to warm up; in between, batches run in this process. All of it shares the machine's cores: what others do
shows in the times by the clock.
"""
import os
import pathlib
import statistics
import sys
import time

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = [ROOT / "benches", ROOT / "tests" / "python", ROOT / "tests" / "python" / "cluster"]
sys.path[:0] = map(str, FOLDERS)

from network import network, rows  # noqa: E402

from tilewright import _model, _portable  # noqa: E402

WIDTH, LAYERS, BATCH, BLOCK, BLOCKS, ROUNDS = 1024, 16, 96, 768, 24, 4
#: Blocks of a partition of Ray; the variable of this name says another number.
PARTITION = int(os.environ.get("PARTITION", "4"))
PATHS = os.pathsep.join([*map(str, FOLDERS), os.environ.get("PYTHONPATH", "")])
#: Process, its clock and its processor's nanoseconds at the begin and at the end of a call, those of the runs in it, and the
#: processor's of the thread that called.
COLUMNS = ["pid", "begin", "begin_cpu", "end", "end_cpu", "run", "run_cpu", "runs", "call_cpu"]


class Timed(_model.Model):
    """A model that adds up the time of its runs."""

    totals = [0, 0, 0]

    def run(self, feed, out=None):
        wall, cpu = time.perf_counter_ns(), time.thread_time_ns()
        result = super().run(feed, out=out)
        spent = (time.perf_counter_ns() - wall, time.thread_time_ns() - cpu, 1)
        Timed.totals = [total + part for total, part in zip(Timed.totals, spent, strict=True)]
        return result


def take_times():
    """Lets this process load models that add up the time of their runs."""
    _portable.load = lambda path, threads: Timed({"module": os.fspath(path)}, {"threads": threads})


def clock(call, *arguments):
    """What the call returns, and a row of COLUMNS."""
    take_times()
    before, begin, thread = Timed.totals, (time.perf_counter_ns(), time.process_time_ns()), time.thread_time_ns()
    result = call(*arguments)
    thread, end = time.thread_time_ns() - thread, (time.perf_counter_ns(), time.process_time_ns())
    return result, [os.getpid(), *begin, *end, *(b - a for a, b in zip(before, Timed.totals, strict=True)), thread]


def shares(found):
    """Of each process with three calls and more: the shares of time that are not in `run`, of what calls take of the processor, of all
    time by the clock, and of the processor's; and the milliseconds of a run, by the clock and of the processor."""
    calls, wall, cpu = [], [], []
    for pid in {row[0] for row in found}:
        mine = sorted(row for row in found if row[0] == pid)
        if len(mine) >= 3:
            calls.append(1 - sum(row[6] for row in mine) / sum(row[8] for row in mine))
            wall.append(1 - sum(row[5] for row in mine) / (max(row[3] for row in mine) - min(row[1] for row in mine)))
            cpu.append(1 - sum(row[6] for row in mine) / (max(row[4] for row in mine) - min(row[2] for row in mine)))
    return calls, wall, cpu, [row[5] / row[7] / 1e6 for row in found], [row[6] / row[7] / 1e6 for row in found]


def with_ray(model, modules, x):
    import ray
    from ray.cluster_utils import Cluster

    import tilewright.ray

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    for _ in range(2):
        cluster.add_node(num_cpus=1)
    ray.init(cluster.address, runtime_env={"env_vars": {"PYTHONPATH": PATHS}}, log_to_driver=False)
    ray.data.DataContext.get_current().enable_progress_bars = False
    carried = model.carried_by(tilewright.ray._ObjectStore(modules))
    dataset = ray.data.from_numpy(np.split(x, BLOCKS // PARTITION)).rename_columns({"data": "x"}).materialize()
    for _ in range(ROUNDS):
        actors = ray.data.ActorPoolStrategy(size=2)
        done = dataset.map_batches(
            RayActor, fn_constructor_args=[carried], batch_size=BLOCK, compute=actors, num_cpus=1, zero_copy_batch=True
        )
        yield np.concatenate([batch["row"] for batch in done.iter_batches(batch_size=None, batch_format="numpy")])
    ray.shutdown()
    cluster.shutdown()


class RayActor:
    """`tilewright.ray.Predictor`, whose results have a column with a row of COLUMNS for each row."""

    def __init__(self, model):
        from tilewright.ray import Predictor

        take_times()
        self.predictor = Predictor(model)

    def __call__(self, batch):
        result, row = clock(self.predictor, batch)
        return result | {"row": np.array([row] * len(result["y"]))}


def dask_chunk(block, model):
    """The results of a chunk stay on the worker; a row of COLUMNS comes back."""
    return clock(model.run, [block])


def with_dask(model, modules, x):
    import dask
    import dask.array as da
    from distributed import Client, LocalCluster

    import tilewright.dask

    dask.config.set({"distributed.nanny.environ.PYTHONPATH": PATHS})
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
        carried = model.carried_by(tilewright.dask._from_plugin)
        client.register_plugin(tilewright.dask.ModulePlugin(carried, modules))
        array = da.from_array(x, chunks=(BLOCK, WIDTH)).persist()
        for _ in range(ROUNDS):
            results = [dask.delayed(dask_chunk)(block, carried) for block in array.to_delayed().ravel()]
            results = dask.persist(*results)
            yield dask.compute(*[result[1] for result in results])


def with_spark(model, modules, x):
    import pyarrow
    from pyspark.sql import SparkSession

    import tilewright.spark

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master("local-cluster[2,1,2048]").config("spark.executor.memory", "1g")
    builder = builder.config("spark.executorEnv.PYTHONPATH", PATHS).config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.execution.arrow.maxRecordsPerBatch", str(BLOCK)).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    carried = model.carried_by(tilewright.spark._Broadcasts(spark.sparkContext, modules))
    # rows that the executors make: those of Python would take a minute to send
    elements = f"transform(sequence(1, {WIDTH}), i -> cast(sin(id * {WIDTH} + i) as float))"
    frame = spark.range(len(x), numPartitions=2).selectExpr("id", f"{elements} as x").cache()
    frame.count()

    def timed(batches):
        """`tilewright.spark.arrow_function`, whose results have COLUMNS too."""
        from tilewright._arrow import run_batch

        for batch in tilewright.spark._ahead(batches):
            (result,), row = clock(lambda: list(run_batch(carried, batch, {})))
            for name, number in zip(COLUMNS, row, strict=True):
                result = result.append_column(name, pyarrow.array(np.full(len(batch), number)))
            yield result

    schema = tilewright.spark.schema(frame, carried)
    for name in COLUMNS:
        schema = schema.add(name, "long")
    for _ in range(ROUNDS):
        # all outputs are written, as by a sink; the times alone come here
        done = frame.mapInArrow(timed, schema).where("size(y) > 0").select(*COLUMNS).distinct()
        yield [tuple(row) for row in done.collect()]
    spark.stop()


def main(engines):
    x = rows(BLOCK * BLOCKS, WIDTH)
    model, modules = _portable.portable(network(WIDTH, LAYERS), batch_size=BATCH)
    clock(model.run, [x[:BATCH]])
    for engine in engines:
        results, alone = [[] for _ in range(5)], []
        for number, found in enumerate({"ray": with_ray, "dask": with_dask, "spark": with_spark}[engine](model, modules, x)):
            row = clock(model.run, [x[:BLOCK]])[1]
            alone.append(row[5] / row[7] / 1e6)
            if number:
                for total, part in zip(results, shares({tuple(map(int, row)) for row in found}), strict=True):
                    total += part
        calls, wall, cpu = ([100 * share for share in part] for part in results[:3])
        run, run_cpu = map(statistics.median, results[3:])
        print(
            f"{engine}: not in run {statistics.median(wall):.1f} % by the clock ({min(wall):.1f} to {max(wall):.1f}), "
            f"{statistics.median(cpu):.1f} % of the processor ({min(cpu):.1f} to {max(cpu):.1f}), {statistics.median(calls):.1f} % of it in "
            f"tilewright's calls; a run {run:.1f} ms, {run_cpu:.1f} ms of the processor, alone {statistics.median(alone):.1f} ms; load "
            f"{os.getloadavg()[0]:.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main(sys.argv[1:] or ["ray", "dask", "spark"])
