"""The environment of the peers: target/bench/venv, made at the first use, with the pinned packages that a run needs."""
import importlib
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TARGET = ROOT / "target" / "bench"
BUILT = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
VENV = TARGET / "venv"
PEERS = ROOT / "benches" / "peers"
# Packages that the benchmark itself uses.
TOOLS = ["numpy", "onnx", "matplotlib", "tqdm"]


def say(text):
    print(f"bench: {text}", file=sys.stderr, flush=True)


def pinned():
    """Package name -> requirement with its version."""
    lines = (PEERS / "requirements.txt").read_text().split()
    return {line.split("==")[0]: line for line in lines}


def requirements(peer):
    """The packages that an adapter names in REQUIRES. Adapters import them only when they take part."""
    return importlib.import_module(f"peers.{peer}").REQUIRES


def names():
    """Every peer that has an adapter."""
    return sorted(path.stem for path in PEERS.glob("*.py") if path.stem != "__init__")


def install(line):
    """Nothing, or why a requirement cannot be installed."""
    command = [str(VENV / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
               "--retries", "1", line]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode == 0:
        return ""
    unreachable = re.search(r"(Failed to establish a new connection|timed out|name resolution|Connection refused)", result.stderr)
    return f"no package index: {unreachable[0].lower()}" if unreachable else (result.stderr.strip().splitlines() or ["no message"])[-1]


def enter(peers):
    """Makes the environment if need be, and starts this program again inside of it."""
    python = VENV / "bin" / "python"
    if sys.prefix == str(VENV):
        return
    stamp = VENV / "installed.txt"
    if not python.exists() or not stamp.exists():
        say("making an environment for the peers in target/bench/venv")
        made = subprocess.run([sys.executable, "-m", "venv", "--clear", str(VENV)], capture_output=True, text=True)
        if made.returncode != 0:
            reason = ((made.stderr + made.stdout).strip().splitlines() or ["no message"])[-1]
            say(f"python cannot make environments, install python3-venv ({reason}); measuring without peers that need packages")
            return
        stamp.write_text("")
    wanted, versions = list(TOOLS), pinned()
    for peer in peers:
        wanted += [package for package in requirements(peer) if package not in wanted]
    present, why = stamp.read_text().split(), ""
    for line in (versions[package] for package in wanted if versions[package] not in present):
        if not why.startswith("no package index"):
            say(f"installing {line}")
            why = install(line)
        if why:
            say(f"{line} cannot be installed and is left out ({why})")
        else:
            present.append(line)
            stamp.write_text("\n".join(present) + "\n")
    os.execv(python, [str(python), *sys.argv])
