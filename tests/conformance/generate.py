"""Writes the cases of ONNX's backend suite from the pinned `onnx` package: a folder a case with the model and the tensors
of its data sets, as ONNX lays them out."""
import pathlib
import shutil
import warnings

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

GROUPS = ["node", "simple", "pytorch-converted", "pytorch-operator"]


def message(value, info):
    """The message of a value of this declared type."""
    if isinstance(value, TensorProto):
        return value
    kind = info.type
    if kind.HasField("sequence_type"):
        return numpy_helper.from_list(value, info.name)
    if kind.HasField("optional_type"):
        return numpy_helper.from_optional(value, info.name)
    if kind.HasField("map_type"):
        return numpy_helper.from_dict(value, info.name)
    return numpy_helper.from_array(np.asarray(value), info.name)


def write(case, folder):
    """Returns why a case cannot be written, or nothing."""
    folder.mkdir(parents=True)
    (folder / "model.onnx").write_bytes(case.model.SerializeToString())
    for number, (inputs, outputs) in enumerate(case.data_sets):
        data = folder / f"test_data_set_{number}"
        data.mkdir()
        for name, values, infos in (("input", inputs, case.model.graph.input), ("output", outputs, case.model.graph.output)):
            for i, (value, info) in enumerate(zip(values, infos)):
                (data / f"{name}_{i}.pb").write_bytes(message(value, info).SerializeToString())


def generate(target):
    """Writes all cases below `target`, unless they are there."""
    stamp = target / "version.txt"
    if stamp.exists() and stamp.read_text() == onnx.__version__:
        return
    shutil.rmtree(target, ignore_errors=True)
    warnings.filterwarnings("ignore")
    import onnx.backend.test.case.model as models
    import onnx.backend.test.case.node as nodes
    for group, cases in (("node", nodes.collect_testcases(None)), ("simple", models.collect_testcases())):
        for case in cases:
            if case.kind == group:
                write(case, target / group / case.name)
    stored = pathlib.Path(onnx.__file__).parent / "backend" / "test" / "data"
    for group in GROUPS:
        for case in sorted((stored / group).glob("test_*")) if (stored / group).exists() else []:
            if not (target / group / case.name).exists():
                shutil.copytree(case, target / group / case.name)
    stamp.write_text(onnx.__version__)
