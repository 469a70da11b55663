#!/usr/bin/env python3
"""Power spectra with Dask, on two worker processes on this machine: `make test-cluster` runs it.

usage: PYTHONPATH=target/python target/cluster-venv/bin/python examples/cluster/with_dask.py
"""
import dask.array as da
import dask.bag as db
import numpy as np
from distributed import Client, LocalCluster
from spectrum import check, signals, spectrum

import tilewright.dask

BATCH, LENGTH = 256, 1024


def main() -> None:
    # Two processes of one thread. With a cluster of your own: Client("scheduler:8786").
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
        # Compiled here, once, for batches of 256 signals; a plugin takes the module to each worker once.
        model = tilewright.dask.carry(spectrum(), client, batch_size=BATCH, dims={"T": LENGTH})

        # An array: chunks of rows, of any size. The result has the same chunks.
        x = signals(10 * BATCH, LENGTH)
        power = tilewright.dask.map_partitions(da.from_array(x, chunks=(BATCH, LENGTH)), model)
        check(np.arange(len(x)), power.compute(), x)

        # The strongest frequencies of all signals: Dask goes on with the chunks where they are.
        strongest = da.argmax(power, axis=1)
        print("most frequent:", np.bincount(strongest.compute()).argmax())

        # A bag of dictionaries, or a dataframe, is mapped over its partitions too.
        items = db.from_sequence([{"id": i, "x": row} for i, row in enumerate(x[:100])], npartitions=4)
        found = tilewright.dask.map_partitions(items, model).compute()
        check(np.array([item["id"] for item in found]), np.stack([item["power"] for item in found]), x[:100])


# Workers are processes that import this file.
if __name__ == "__main__":
    main()
