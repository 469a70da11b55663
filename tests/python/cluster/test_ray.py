"""Ray Data on a cluster of two nodes: `make test-cluster`."""
import os
import signal

import numpy as np
import pandas
import pytest
from network import BATCH, WIDTH, in_one_process, network, rows
from pages import results

import tilewright as tw
from tilewright import _portable

ray = pytest.importorskip("ray", reason="ray is not installed")
pytest.importorskip("ray.data", reason="ray[data] is not installed", exc_type=ImportError)

import tilewright.ray  # noqa: E402
from ray.cluster_utils import Cluster  # noqa: E402

ROWS = 20 * BATCH + 3


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Two nodes with a core and a directory of modules each; the head has neither."""
    os.environ["RAY_DATA_DISABLE_PROGRESS_BARS"] = "1"
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    for i in range(2):
        cache = tmp_path_factory.mktemp(f"node{i}")
        cache.chmod(0o700)
        cluster.add_node(num_cpus=1, env_vars={"TILEWRIGHT_NODE_CACHE": str(cache)})
    folder = os.path.dirname(os.path.abspath(__file__))
    paths = os.pathsep.join([folder, os.path.dirname(folder), os.environ.get("PYTHONPATH", "")])
    ray.init(cluster.address, runtime_env={"env_vars": {"PYTHONPATH": paths}}, log_to_driver=False)
    ray.data.DataContext.get_current().enable_progress_bars = False
    yield cluster
    ray.shutdown()
    cluster.shutdown()


class Witness(tilewright.ray.Predictor):
    """Notes which node and which process ran a batch, and what that process did before."""

    def __call__(self, batch):
        result = super().__call__(batch)
        count = len(batch["id"])
        result["node"] = np.array([ray.get_runtime_context().get_node_id()] * count)
        result["pid"] = np.full(count, os.getpid())
        for event in ("fetched", "loaded"):
            result[event] = np.full(count, _portable.events[event])
        return result


class Mortal(Witness):
    """Ends its process in the middle of the first batch of all."""

    def __init__(self, model, marker):
        super().__init__(model)
        self.marker = marker

    def __call__(self, batch):
        try:
            os.close(os.open(self.marker, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return super().__call__(batch)
        os.kill(os.getpid(), signal.SIGKILL)


def dataset(x):
    """A block for each batch, so that there is work for both nodes."""
    ids = np.arange(len(x))
    parts = [slice(i, i + BATCH) for i in range(0, len(x), BATCH)]
    return ray.data.from_pandas([pandas.DataFrame({"id": ids[part], "x": list(x[part])}) for part in parts])


def sorted_rows(dataset):
    columns = {}
    for batch in dataset.iter_batches(batch_size=None, batch_format="numpy"):
        for name, column in batch.items():
            columns.setdefault(name, []).append(np.stack(list(column)))
    columns = {name: np.concatenate(parts) for name, parts in columns.items()}
    order = np.argsort(columns["id"])
    return {name: column[order] for name, column in columns.items()}


def check(found, x):
    """Each row came out once, with the outputs of one process."""
    assert np.array_equal(found["id"], np.arange(len(x)))
    for name, expected in zip(("y", "top"), in_one_process(x), strict=True):
        np.testing.assert_allclose(found[name], expected, rtol=1e-5, atol=1e-6)


def test_both_nodes_work_and_results_are_those_of_one_process(cluster):
    x = rows(ROWS)
    model = tilewright.ray.put(network(), batch_size=BATCH)
    actors = ray.data.ActorPoolStrategy(size=2)
    found = sorted_rows(
        dataset(x).map_batches(Witness, fn_constructor_args=[model], batch_size=BATCH, compute=actors, num_cpus=1)
    )
    check(found, x)
    assert len(set(found["node"])) == 2
    # the module came to each node once, and each actor loaded it once
    assert set(found["loaded"]) == {1} and set(found["fetched"]) == {1}
    # actors that come later find it on their node
    again = sorted_rows(
        dataset(x).map_batches(Witness, fn_constructor_args=[model], batch_size=BATCH, compute=actors, num_cpus=1)
    )
    assert set(again["fetched"]) == {0} and not set(again["pid"]) & set(found["pid"])


def test_map_batches_is_one_call(cluster, tmp_path):
    x = rows(ROWS)
    path = tmp_path / "model.onnx"
    path.write_bytes(network())
    scored = tilewright.ray.map_batches(dataset(x), path, batch_size=BATCH)
    found = sorted_rows(scored)
    assert set(found) == {"id", "y", "top"}
    check(found, x)
    renamed = dataset(x).rename_columns({"x": "features"})
    found = sorted_rows(
        tilewright.ray.map_batches(renamed, path, batch_size=BATCH, columns={"x": "features"}, outputs={"top": "score"})
    )
    assert set(found) == {"id", "y", "score"} and found["y"].shape == (ROWS, WIDTH)


def test_batches_of_a_lost_actor_are_run_again(cluster, tmp_path):
    x = rows(ROWS)
    model = tilewright.ray.put(network(), batch_size=BATCH)
    found = sorted_rows(
        dataset(x).map_batches(
            Mortal,
            fn_constructor_args=[model, str(tmp_path / "marker")],
            batch_size=BATCH,
            compute=ray.data.ActorPoolStrategy(size=2),
            num_cpus=1,
        )
    )
    assert (tmp_path / "marker").exists()
    check(found, x)


def test_a_module_for_another_processor_is_refused_by_name(cluster):
    other = next(name for name in tw.targets() if name not in tw.targets(runnable=True))
    model = tilewright.ray.put(network(), batch_size=BATCH, targets=[other])
    actor = ray.remote(tilewright.ray.Predictor).options(num_cpus=1).remote(model)
    with pytest.raises(ray.exceptions.RayActorError, match=f"Modules were carried for {other}"):
        ray.get(actor.__call__.remote({}))


def test_the_page_shows_what_runs(cluster, tmp_path, monkeypatch):
    x = rows(ROWS)
    (tmp_path / "model.onnx").write_bytes(network())
    monkeypatch.chdir(tmp_path)
    for scored in results("docs/cluster.md", "tilewright.ray.", tilewright=tilewright, dataset=dataset(x)):
        check(sorted_rows(scored), x)
