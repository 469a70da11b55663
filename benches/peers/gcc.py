"""gcc -O3 on the C that tilewright prints for a program of its text language: the same loops, arrays and initial values."""
import pathlib
import subprocess
import tempfile

REQUIRES = ["numpy"]
KINDS = {"tile"}
TOLERANCE = 1e-9
COMMAND = ["gcc", "-O3", "-march=native"]


def version(command=COMMAND):
    said = subprocess.run([command[0], "--version"], capture_output=True, text=True).stdout.splitlines()
    return f"{said[0]}, {' '.join(command[1:])}"


class Contestant:
    def __init__(self, workload, threads, command=COMMAND):
        self.folder = tempfile.TemporaryDirectory()
        self.program = pathlib.Path(self.folder.name) / "program"
        sizes = [f"--dim={name}={size}" for name, size in workload.get("dims", {}).items()] + workload.get("options", [])
        text = subprocess.run([workload["tilewright"], "explain", workload["path"], "--stage", "c", "--quiet", *sizes], capture_output=True, text=True)
        if text.returncode != 0:
            raise RuntimeError(text.stderr.strip())
        source = self.program.with_suffix(".c")
        source.write_text(text.stdout)
        built = subprocess.run([*command, str(source), "-o", str(self.program), "-lm"], capture_output=True, text=True)
        if built.returncode != 0:
            raise RuntimeError((built.stderr.strip().splitlines() or ["no message"])[0])

    def run(self):
        said = subprocess.run([str(self.program), "1"], check=True, capture_output=True, text=True).stdout
        return float(said.split()[-1])

    def outputs(self):
        import numpy
        subprocess.run([str(self.program), "1", self.folder.name], check=True, capture_output=True)
        count = len(list(pathlib.Path(self.folder.name).glob("output_*.npy")))
        return [numpy.load(pathlib.Path(self.folder.name) / f"output_{i}.npy") for i in range(count)]
