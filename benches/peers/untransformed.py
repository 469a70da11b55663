"""The program in its original order: tilewright itself, with a schedule without primitives."""
import json
import pathlib
import re

REQUIRES = []
KINDS = {"tile"}
TOLERANCE = 1e-4


def command(workload, threads, folder):
    """A program that answers by itself, in place of a Contestant."""
    w = json.loads(pathlib.Path(workload).read_text())
    text = pathlib.Path(w["path"]).read_text()
    name = re.search(r"^(?:loop|def) (\w+)", text, re.M).group(1)
    path = pathlib.Path(folder) / "program.tile"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\nschedule as_written for {name} {{ }}\n")
    return [w["tilewright"], "bench", str(path), "--quiet", "--threads", str(threads), *w["options"], "--schedule", "as_written",
            "--interactive", "--save", folder]
