"""tract, a runtime in Rust: the program in tract/, built for this processor. It runs on one thread."""
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
BUILT = HERE.parent.parent / "target" / "bench" / "tract"
REQUIRES = []
KINDS = {"onnx", "product"}


def command(workload, threads, folder):
    """A program that answers by itself, in place of a Contestant."""
    if threads != 1:
        raise RuntimeError("tract runs on one thread")
    environment = {**os.environ, "CARGO_TARGET_DIR": str(BUILT), "RUSTFLAGS": "-C target-cpu=native"}
    if not (BUILT / "release" / "tract-peer").exists():
        print("bench: building tract, which takes minutes the first time", file=sys.stderr, flush=True)
    build = subprocess.run(["cargo", "build", "--release", "--locked", "--quiet", "--manifest-path", str(HERE / "tract" / "Cargo.toml")],
                           env=environment, capture_output=True, text=True)
    if build.returncode != 0:
        raise RuntimeError("tract cannot be built: " + (build.stderr.strip().splitlines() or ["no message"])[-1])
    return [str(BUILT / "release" / "tract-peer"), workload, folder]
