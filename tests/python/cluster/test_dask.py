"""Dask on two worker processes: `make test-cluster`."""
import os
import signal

import numpy as np
import pytest
from network import BATCH, WIDTH, in_one_process, network, rows
from pages import results

import tilewright as tw

dask = pytest.importorskip("dask", reason="dask is not installed")
distributed = pytest.importorskip("distributed", reason="distributed is not installed")
pandas = pytest.importorskip("pandas", reason="pandas is not installed")

import dask.array as da  # noqa: E402
import dask.bag as db  # noqa: E402
import dask.dataframe as dd  # noqa: E402
import tilewright.dask  # noqa: E402

ROWS = 20 * BATCH + 3


def events():
    from tilewright import _portable

    return dict(_portable.events)


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    """The directory of this machine's modules."""
    cache = tmp_path_factory.mktemp("node")
    cache.chmod(0o700)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TILEWRIGHT_NODE_CACHE", str(cache))
        yield cache


@pytest.fixture(scope="module")
def client(node):
    """Two worker processes of one thread."""
    folder = os.path.dirname(os.path.abspath(__file__))
    paths = os.pathsep.join([folder, os.path.dirname(folder), os.environ.get("PYTHONPATH", "")])
    with (
        dask.config.set({"distributed.nanny.environ.PYTHONPATH": paths, "distributed.comm.timeouts.connect": "120s"}),
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50) as cluster,
        distributed.Client(cluster, timeout="120s") as client,
    ):
        yield client


@pytest.fixture(scope="module")
def model(client):
    return tilewright.dask.carry(network(), client, batch_size=BATCH)


def check(y, top, x):
    for found, expected in zip((y, top), in_one_process(x), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_both_workers_work_and_results_are_those_of_one_process(client, node):
    x = rows(ROWS)
    # chunks that batches do not divide, cut along the columns too
    y, top = tilewright.dask.map_partitions(da.from_array(x, chunks=(10, 20)), network(), batch_size=BATCH)
    assert y.shape == (ROWS, WIDTH) and top.shape == (ROWS,) and y.chunks[0] == da.from_array(x, chunks=(10, 20)).chunks[0]
    check(*dask.compute(y, top), x)
    seen = list(client.run(events).values())
    # each process loaded the module once, and one of them wrote it for all of this machine
    assert [row["loaded"] for row in seen] == [1, 1] and sum(row.get("fetched", 0) for row in seen) == 1
    assert len(list(node.glob("*.tw"))) == 1


def test_several_inputs_are_several_arrays(client):
    program = tw.program("def mix(f32(N) a, f32(N, 3) b) -> (c) { c(n, i) = a(n) * b(n, i) }")
    a, b = rows(11)[:, 0], rows(11)[:, :3]
    found = tilewright.dask.map_partitions(
        [da.from_array(a, chunks=4), da.from_array(b, chunks=(5, 3))], program, batch_size=2
    )
    np.testing.assert_array_equal(found.compute(), a[:, None] * b)
    with pytest.raises(tw.InvalidError, match="1 arrays were given, but the model has 2 inputs"):
        tilewright.dask.map_partitions(da.from_array(b), program, batch_size=2)


def test_dataframes_and_bags(client, model):
    x = rows(ROWS)
    frame = pandas.DataFrame({f"c{i}": x[:, i] for i in range(WIDTH)} | {"id": np.arange(ROWS)})
    columns = {"x": [f"c{i}" for i in range(WIDTH)]}
    scored = tilewright.dask.map_partitions(
        dd.from_pandas(frame, npartitions=5), network(), batch_size=BATCH, columns=columns, outputs={"top": "score"}
    )
    assert list(scored.columns) == ["id", "y", "score"] and scored.dtypes["score"] == np.float32
    found = scored.compute().sort_values("id")
    check(np.stack(list(found["y"])), found["score"].to_numpy(), x)
    items = db.from_sequence([{"id": i, "x": row} for i, row in enumerate(x)], npartitions=5)
    found = sorted(tilewright.dask.map_partitions(items, model).compute(), key=lambda item: item["id"])
    assert set(found[0]) == {"id", "y", "top"}
    check(np.stack([item["y"] for item in found]), np.array([item["top"] for item in found]), x)
    with pytest.raises(tw.InvalidError, match="int is not an array, dataframe or bag"):
        tilewright.dask.map_partitions(3, model)


def die_once(block, marker):
    """Ends the worker's process in the middle of the computation."""
    try:
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return block
    os.kill(os.getpid(), signal.SIGKILL)


def test_partitions_of_a_lost_worker_are_computed_again(client, model, tmp_path):
    x = rows(ROWS)
    before = set(client.run(os.getpid).values())
    array = da.from_array(x, chunks=(BATCH, WIDTH)).map_blocks(die_once, str(tmp_path / "marker"), meta=x[:0])
    check(*dask.compute(*tilewright.dask.map_partitions(array, model)), x)
    assert (tmp_path / "marker").exists()
    # the worker that was started instead has the module from the plugin
    client.wait_for_workers(2)
    after = set(client.run(os.getpid).values())
    assert len(after) == 2 and len(after - before) == 1
    check(*dask.compute(*tilewright.dask.map_partitions(da.from_array(x, chunks=(BATCH, WIDTH)), model)), x)


def test_a_module_for_another_processor_is_refused_by_name(client):
    other = next(name for name in tw.targets() if name not in tw.targets(runnable=True))
    y, _ = tilewright.dask.map_partitions(da.from_array(rows(4)), network(), batch_size=BATCH, targets=[other])
    with pytest.raises(tw.UnsupportedError, match=f"Modules were carried for {other}"):
        y.compute()


def test_without_a_cluster_partitions_are_computed_here(node):
    x = rows(11)
    model = tilewright.dask.carry(network(), batch_size=BATCH)
    found = tilewright.dask.map_partitions(da.from_array(x, chunks=(4, WIDTH)), model)
    check(*dask.compute(*found, scheduler="threads"), x)


def test_the_page_shows_what_runs(client, tmp_path, monkeypatch):
    x = rows(ROWS)
    (tmp_path / "model.onnx").write_bytes(network())
    monkeypatch.chdir(tmp_path)
    collection = da.from_array(x, chunks=(BATCH, WIDTH))
    for scored in results("docs/cluster.md", "tilewright.dask.", tilewright=tilewright, collection=collection):
        check(*dask.compute(*scored), x)
