"""Programs that are measured in turn, each in a process of its own that waits between its turns."""
import importlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent


class Failure(Exception):
    """A contestant that cannot take part, with its reason."""


class Process:
    """A program that speaks like `tilewright bench --interactive`."""

    def __init__(self, command, folder, environment=None):
        self.folder = pathlib.Path(folder)
        self.errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True,
                                        env={**os.environ, **(environment or {})})
        ready = self.answer()
        self.version, self.prepare_ms = ready["version"], ready["prepare_ms"]

    def answer(self):
        line = self.process.stdout.readline()
        value = json.loads(line) if line.startswith(("{", "[")) else None
        if value is None or "error" in value:
            self.close()
            self.errors.seek(0)
            said = self.errors.read().strip().splitlines()
            raise Failure(value["error"] if value else said[-1] if said else f"ended with code {self.process.returncode}")
        return value

    def turn(self, seconds):
        """Latencies in ms."""
        try:
            self.process.stdin.write(f"{seconds}\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass
        return self.answer()

    def outputs(self):
        import numpy
        count = len(list(self.folder.glob("output_*.npy")))
        return [numpy.load(self.folder / f"output_{i}.npy") for i in range(count)]

    def cpu_seconds(self):
        try:
            fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
            return sum(int(f) for f in fields[11:15]) / os.sysconf("SC_CLK_TCK")
        except OSError:
            return 0.0

    def peak_memory(self):
        """Bytes of the whole process at its largest; nothing where the kernel does not say."""
        try:
            lines = pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        except OSError:
            return None
        return next((1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM")), None)

    def close(self):
        if self.process.poll() is None:
            self.process.stdin.close()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


class Tilewright:
    """One build of tilewright."""

    def __init__(self, name, program, extra=()):
        self.name, self.program, self.extra = name, str(program), list(extra)

    def arguments(self, workload, threads):
        inputs = [f"--input={name}={file}" for name, file in workload["inputs"].items()]
        dims = [f"--dim={name}={size}" for name, size in workload.get("dims", {}).items()]
        return [str(workload["path"]), "--quiet", "--threads", str(threads), *inputs, *dims, *workload.get("options", []), *self.extra]

    def start(self, workload, threads, folder):
        command = [self.program, "bench", *self.arguments(workload, threads), "--interactive", "--save", str(folder)]
        return Process(command, folder)

    def detail(self, workload, threads):
        """Kernels, operations and memory as `tilewright bench --json` tells them."""
        command = [self.program, "bench", *self.arguments(workload, threads), "--json", "--seconds", "0.3"]
        result = subprocess.run(command, capture_output=True, text=True)
        if result.returncode != 0:
            raise Failure((result.stderr.strip().splitlines() or ["no message"])[-1])
        return json.loads(result.stdout)

    def takes(self, workload):
        return True

    tolerance = 1e-3


class Peer:
    """A program with an adapter in peers/."""

    def __init__(self, name):
        self.name, self.adapter = name, importlib.import_module(f"peers.{name}")
        self.tolerance = getattr(self.adapter, "TOLERANCE", 1e-3)

    def takes(self, workload):
        return workload["kind"] in self.adapter.KINDS

    def start(self, workload, threads, folder):
        description = pathlib.Path(folder).with_suffix(".json")
        description.parent.mkdir(parents=True, exist_ok=True)
        description.write_text(json.dumps(workload))
        if hasattr(self.adapter, "command"):
            try:
                return Process(self.adapter.command(str(description), threads, str(folder)), folder)
            except RuntimeError as error:
                raise Failure(str(error)) from error
        cores = {name: str(threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
        return Process([sys.executable, str(HERE / "host.py"), self.name, str(description), str(threads), str(folder)], folder, cores)


def difference(ours, theirs):
    """Largest difference of two lists of outputs as a share of the largest value, or what does not match."""
    from method import distance
    if len(ours) != len(theirs):
        return f"{len(ours)} outputs instead of {len(theirs)}"
    worst = 0.0
    for i, (a, b) in enumerate(zip(ours, theirs)):
        if a.shape != b.shape:
            return f"output {i} is {list(a.shape)} instead of {list(b.shape)}"
        worst = max(worst, distance(a, b))
    return worst
