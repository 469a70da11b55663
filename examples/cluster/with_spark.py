#!/usr/bin/env python3
"""Power spectra with PySpark, on a cluster of two executors on this machine: `make test-cluster` runs it. Needs Java.

usage: PYTHONPATH=target/python target/cluster-venv/bin/python examples/cluster/with_spark.py
"""
import os
import sys

import numpy as np
from pyspark.sql import SparkSession
from spectrum import check, signals, spectrum

import tilewright.spark

BATCH, LENGTH = 256, 1024

# Two executors of one core and 1 GiB. With a cluster of your own: .master("spark://host:7077"), .master("yarn") …
# The package `tilewright` is installed on all nodes; here its path is passed on.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
spark = (
    SparkSession.builder.master("local-cluster[2,1,1024]")
    .config("spark.executor.memory", "512m")
    .config("spark.executorEnv.PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    .config("spark.sql.execution.arrow.pyspark.enabled", "true")
    .config("spark.ui.enabled", "false")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("ERROR")

# Rows of any source: spark.read.parquet(…). A row of an input is an array of its elements, or a number.
x = signals(10 * BATCH, LENGTH)
rows = spark.sparkContext.parallelize(range(len(x)), 10).map(lambda i, data=spark.sparkContext.broadcast(x): (i, data.value[i].tolist()))
frame = spark.createDataFrame(rows, "id long, x array<float>")

# Compiled here, once, for batches of 256 signals. Each executor gets the module once, whatever the number of its tasks.
spectra = tilewright.spark.map_in_arrow(frame, spectrum(), batch_size=BATCH, dims={"T": LENGTH})
spectra.printSchema()

# Lazy like all of Spark. Columns that are not inputs stay, `x` is replaced by `power`.
found = spectra.collect()
check(np.array([row["id"] for row in found]), np.array([row["power"] for row in found]), x)

spark.stop()
