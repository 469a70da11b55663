"""Programs that are measured in turn, each in a process of its own that is stopped between its turns: threads that a library leaves
spinning would take the processor from the next.
"""
import contextlib
import importlib
import json
import os
import pathlib
import select
import shutil
import signal
import subprocess
import sys
import tempfile

import method

HERE = pathlib.Path(__file__).resolve().parent


# How long a contestant may take to prepare, or longer than asked for a turn, before it is given up.
PATIENCE = 300.0


class Failure(Exception):
    """A contestant that cannot take part, with its reason."""


@contextlib.contextmanager
def on_core(core):
    """Binds processes that are started here to one core; to any core where it is None."""
    if core is None:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def cores():
    """The cores that programs may be bound to; one that is None where the system cannot."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [None]


def ending(code):
    """How a process ended, in words."""
    if code is not None and code < 0:
        return f"was ended by {signal.Signals(-code).name}"
    return f"ended with code {code}"


class Process:
    """A program that speaks like `tilewright bench --interactive`. It runs while it prepares and in its turns."""

    def __init__(self, command, folder, environment=None):
        self.folder = pathlib.Path(folder)
        self.errors = tempfile.TemporaryFile("w+")
        # In a group of its own, so that an interrupt reaches this program alone, and a hung one ends with what it has started.
        self.process = subprocess.Popen([str(word) for word in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors,
                                        text=True, env={**os.environ, **(environment or {})}, start_new_session=True)
        try:
            ready = self.answer(PATIENCE)
        except BaseException:
            self.close()
            raise
        self.version, self.prepare_ms, self.first_ms = ready["version"], ready["prepare_ms"], ready.get("first_ms", 0.0)
        self.signal(signal.SIGSTOP)

    def signal(self, number):
        """To the program and what it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def answer(self, patience):
        """The next line, as a value. There is at most one: each follows a question."""
        if not select.select([self.process.stdout], [], [], patience)[0]:
            self.kill()
            raise Failure(f"gave no answer for {patience:.0f} s")
        line = self.process.stdout.readline()
        try:
            value = json.loads(line)
            assert isinstance(value, (dict, list))
        except (ValueError, AssertionError):
            value = None
        if value is None or "error" in value:
            said = self.close().strip().splitlines()
            how = ending(self.process.returncode)
            raise Failure(value["error"] if value else said[-1] if said and self.process.returncode >= 0 else how)
        return value

    def turn(self, seconds):
        """Latencies in ms."""
        self.signal(signal.SIGCONT)
        try:
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.write(f"{seconds}\n")
                self.process.stdin.flush()
            return self.answer(PATIENCE + seconds)
        finally:
            self.signal(signal.SIGSTOP)

    def outputs(self):
        try:
            import numpy
            count = len(list(self.folder.glob("output_*.npy")))
            return [method.numbers(numpy.load(self.folder / f"output_{i}.npy")) for i in range(count)]
        except (ImportError, ValueError) as error:
            raise Failure(f"outputs cannot be compared: {error}") from error

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

    def kill(self):
        if self.process.poll() is None:
            self.signal(signal.SIGKILL)
            self.process.wait()

    def close(self):
        """Ends the process; returns what it said on standard error."""
        self.signal(signal.SIGCONT)
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(2)
        except subprocess.TimeoutExpired:
            self.kill()
        self.process.stdout.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        if self.errors.closed:
            return ""
        with self.errors:
            self.errors.seek(0)
            return self.errors.read()


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
    serial = False
    compared = in_process = True
    has_other = has_definition = False


class Peer:
    """A program with an adapter in peers/."""

    def __init__(self, name):
        self.name, self.adapter = name, importlib.import_module(f"peers.{name}")
        self.tolerance = getattr(self.adapter, "TOLERANCE", 1e-3)
        self.serial = getattr(self.adapter, "SERIAL", False)
        self.compared = getattr(self.adapter, "COMPARED", True)
        self.in_process = getattr(self.adapter, "IN_PROCESS", True)
        self.has_other = hasattr(self.adapter, "Other")
        self.has_definition = hasattr(self.adapter, "Definition")

    def takes(self, workload):
        return workload["kind"] in self.adapter.KINDS

    def start(self, workload, threads, folder, which="Contestant"):
        description = pathlib.Path(f"{folder}.json")
        description.parent.mkdir(parents=True, exist_ok=True)
        description.write_text(json.dumps(workload))
        if hasattr(self.adapter, "command"):
            try:
                return Process(self.adapter.command(str(description), threads, str(folder)), folder)
            except (RuntimeError, OSError) as error:
                raise Failure(str(error)) from error
        cores = {name: str(threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
        return Process([sys.executable, str(HERE / "host.py"), self.name, str(description), str(threads), str(folder), which], folder, cores)


def difference(ours, theirs, rounded=False):
    """Largest difference of two lists of outputs as a share of the largest value, or what does not match. Integers are equal unless they are rounded."""
    if len(ours) != len(theirs):
        return f"{len(ours)} outputs instead of {len(theirs)}"
    worst = 0.0
    for i, (a, b) in enumerate(zip(ours, theirs)):
        if a.shape != b.shape:
            return f"output {i} is {list(a.shape)} instead of {list(b.shape)}"
        a, b = (x.astype("f4") if rounded and x.dtype.kind in "iu" else x for x in (a, b))
        worst = max(worst, method.distance(a, b))
    return worst
