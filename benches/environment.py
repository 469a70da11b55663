"""The environment of the peers: target/bench/venv, made at the first use, with the pinned packages that a run needs."""
import ast
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TARGET = ROOT / "target" / "bench"
VENV = TARGET / "venv"
PEERS = ROOT / "benches" / "peers"
# What the measuring itself uses.
TOOLS = ["numpy", "onnx", "matplotlib", "tqdm"]


def say(text):
    print(f"bench: {text}", file=sys.stderr, flush=True)


def pinned():
    """Package name -> requirement with its version."""
    lines = (PEERS / "requirements.txt").read_text().split()
    return {line.split("==")[0]: line for line in lines}


def requirements(peer):
    """The packages that an adapter names in REQUIRES; the adapter is not executed."""
    for node in ast.parse((PEERS / f"{peer}.py").read_text()).body:
        if isinstance(node, ast.Assign) and node.targets[0].id == "REQUIRES":
            return ast.literal_eval(node.value)
    return []


def names():
    """Every peer that has an adapter."""
    return sorted(path.stem for path in PEERS.glob("*.py") if path.stem != "__init__")


def install(line):
    command = [str(VENV / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
               "--retries", "1", line]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        reason = (result.stderr.strip().splitlines() or ["no message"])[-1]
        say(f"{line} cannot be installed and is left out ({reason})")
    return result.returncode == 0


def enter(peers):
    """Makes the environment if need be, and starts this program again inside of it."""
    python = VENV / "bin" / "python"
    if sys.prefix == str(VENV):
        return
    if not python.exists():
        say("making an environment for the peers in target/bench/venv")
        made = subprocess.run([sys.executable, "-m", "venv", str(VENV)], capture_output=True, text=True)
        if made.returncode != 0:
            say("python cannot make environments (install python3-venv): measuring tilewright alone")
            return
    wanted, versions = list(TOOLS), pinned()
    for peer in peers:
        wanted += [package for package in requirements(peer) if package not in wanted]
    stamp = VENV / "installed.txt"
    present = stamp.read_text().split() if stamp.exists() else []
    for line in (versions[package] for package in wanted):
        if line not in present:
            say(f"installing {line}")
            if install(line):
                present.append(line)
                stamp.write_text("\n".join(present) + "\n")
    os.execv(python, [str(python), *sys.argv])
