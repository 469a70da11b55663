#!/usr/bin/env python3
"""Power spectra with Ray Data, on a cluster of two nodes on this machine: `make test-cluster` runs it.

usage: PYTHONPATH=target/python target/cluster-venv/bin/python examples/cluster/with_ray.py
"""
import numpy as np
import pandas
import ray
from ray.cluster_utils import Cluster
from spectrum import check, signals, spectrum

import tilewright.ray

BATCH, LENGTH = 256, 1024

# Two nodes of one core. With a cluster of your own: ray.init(address="auto").
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
for _ in range(2):
    cluster.add_node(num_cpus=1)
ray.init(cluster.address, log_to_driver=False)

# Rows of any source: ray.data.read_parquet(…), read_images(…). Each block is one unit of work.
x = signals(10 * BATCH, LENGTH)
ids = np.arange(len(x))
blocks = [pandas.DataFrame({"id": ids[i::10], "x": list(x[i::10])}) for i in range(10)]
dataset = ray.data.from_pandas(blocks)

# Compiled here, once, for batches of 256 signals. Each node gets the module once; each actor has a session.
spectra = tilewright.ray.map_batches(dataset, spectrum(), batch_size=BATCH, dims={"T": LENGTH})

# Lazy like all of Ray Data: what follows runs it. Columns that are not inputs stay, `x` is replaced by `power`.
found = [(batch["id"], np.stack(list(batch["power"]))) for batch in spectra.iter_batches(batch_format="numpy")]
check(np.concatenate([ids for ids, _ in found]), np.concatenate([power for _, power in found]), x)

ray.shutdown()
cluster.shutdown()
