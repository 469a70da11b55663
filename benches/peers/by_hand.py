"""The program with a schedule written by hand: tilewright itself, in place of the ILP's schedule."""
import json
import pathlib

REQUIRES = []
KINDS = {"schedule"}
TOLERANCE = 1e-4


def command(workload, threads, folder):
    """A program that answers by itself, in place of a Contestant."""
    w = json.loads(pathlib.Path(workload).read_text())
    inputs = [f"--input={name}={file}" for name, file in w["inputs"].items()]
    return [w["tilewright"], "bench", w["path"], "--quiet", "--threads", str(threads), *inputs, *w["options"], "--schedule", w["schedule"],
            "--interactive", "--save", folder]
