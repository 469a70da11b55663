"""gcc -O3 on the C that tilewright prints for a program of its text language: the same loops, arrays and initial values."""
import pathlib
import subprocess
import tempfile

REQUIRES = ["numpy"]
KINDS = {"tile"}
SERIAL, IN_PROCESS = True, False
TOLERANCE = 1e-9
COMMAND = ["gcc", "-O3", "-march=native"]
# Without fused operations every product is rounded: the difference measures rounding.
NO_FUSED = ["-ffp-contract=off"]
# Least time of a process for runs of a short program, and the most runs in it.
PROCESS_MS, MOST_RUNS = 30, 20


def version(command=COMMAND):
    said = subprocess.run([command[0], "--version"], capture_output=True, text=True).stdout.splitlines()
    return f"{said[0]}, {' '.join(command[1:])}"


class Contestant:
    def __init__(self, workload, threads, command=COMMAND):
        self.folder = tempfile.TemporaryDirectory()
        self.program = pathlib.Path(self.folder.name) / "program"
        self.outputs_folder, self.ms = pathlib.Path(self.folder.name), None
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
        """One process; short programs run several times in it, the first time to warm up."""
        if self.ms is None:
            said = self.program_says("1", str(self.outputs_folder))
        else:
            said = self.program_says(str(1 + min(MOST_RUNS, int(PROCESS_MS / self.ms))))
        times = [float(line) for line in said.split()]
        self.ms = max(times[-1], 1e-3)
        return times[1:] or times

    def program_says(self, *arguments):
        return subprocess.run([str(self.program), *arguments], check=True, capture_output=True, text=True).stdout

    def outputs(self):
        if self.ms is None:
            self.run()
        import numpy
        count = len(list(self.outputs_folder.glob("output_*.npy")))
        return [numpy.load(self.outputs_folder / f"output_{i}.npy") for i in range(count)]


class Other(Contestant):
    def __init__(self, workload, threads):
        super().__init__(workload, threads, [*COMMAND, *NO_FUSED])
