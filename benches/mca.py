#!/usr/bin/env python3
"""Judge the inner loops of AArch64 kernels by llvm-mca: cycles of an iteration beside the port limit.

Each kernel of benches/mca.tile is compiled for a target of AArch64; of its code the innermost loop that sums most products, of equals the one
with most vector arithmetic, is simulated for ITERATIONS iterations on each core. The port limit is the number of cycles that the busiest unit,
or the width of dispatch, needs for one iteration: what a loop without latencies would take. llvm-mca knows no caches: loads take the time of the first one.

Of a core that runs in order llvm-mca issues an instruction only when it ends no earlier than those before it, so that loads behind products wait
for them: on a Cortex-A510, 16 loads and 16 bfmmla that do not depend on each other take 17 cycles one kind after the other and 33 in turn, for a
limit of 11. Loops with as many loads as products cannot come near the limit there, in whatever order.

Of a Cortex-A55 llvm-mca starts a dot product or an `fmul` of 128 bits only at the beginning of a cycle, and what follows ends too early to start beside it:
a loop of dot products takes a cycle for each of them and one for each load, where the limit counts the products alone. 24 products of 12 by 8
sums, with both operands packed, need 5 loads, so that no block comes within 15 % of the limit there. On a Cortex-A510, where a dot product ends
four cycles and a load two cycles after its start, 50 dot products and 20 loads that do not depend on each other take 36 cycles at least, the loads
in a row, and 52 where a load stands behind each two or three of them, for a limit of 25. The models let `fmla` end out of order: a loop with
`fmla` in place of `sdot` takes 44 cycles instead of 73 on the one, and 32 instead of 45 on the other.
"""
import argparse
import json
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAMS = ROOT / "benches" / "mca.tile"
CORES = ["neoverse-n1", "neoverse-v2", "cortex-a55", "cortex-a510"]
# Kernel -> features beyond Advanced SIMD that it may use.
KERNELS = {
    "gemm_f32": "", "gemm_f64": "", "conv_3x3": "", "depthwise_3x3": "", "softmax": "", "layer_norm": "",
    "gemm_i8": "+dotprod", "gemm_i8_matrices": "+dotprod+i8mm", "gemm_u8_i8": "+dotprod+i8mm", "gemm_bf16": "+bf16", "gemm_f16": "",
    "gemm_f16_sums": "+fp16",
}
# Cores that lack a feature are left out for kernels that need it.
LACKS = {"neoverse-n1": {"i8mm", "bf16"}, "cortex-a55": {"i8mm", "bf16"}}
ITERATIONS = 100
# The goal: cycles over the port limit, and on how many of the cores.
WITHIN, CORES_WITHIN = 1.15, 3
PRODUCTS = re.compile(r"f?ml[as]$|[su]+dot$|[su]+mmla$|bfdot$|bfmmla$")
ARITHMETIC = re.compile(r"f?(ml[as]|add|sub|mul|div|max|min|sqrt|maxnm|minnm)$|[su]+dot$|[su]+mmla$|bfdot$|bfmmla$|fcm|cm|scvtf|fcvt")


def tool(name):
    """The newest `name` of LLVM that is installed and knows all cores, or None."""
    found = [path for version in range(25, 15, -1) if (path := shutil.which(f"{name}-{version}"))]
    return next(iter(found), None)


def say(text):
    print(f"mca: {text}", file=sys.stderr, flush=True)


def words(listing):
    """The words of each phase of a listing of `explain --stage asm`."""
    phases = []
    for line in listing.splitlines():
        match = re.match(r"\s*([0-9a-f]+)\s+\.word (0x[0-9a-f]{8})", line)
        if match:
            if int(match[1], 16) == 0:
                phases.append([])
            phases[-1].append(int(match[2], 16))
    return phases


def decode(code):
    """The text of each instruction; constants behind the code are left out."""
    lines = []
    for number, word in enumerate(code):
        lines.append(" ".join(f"{byte:#04x}" for byte in word.to_bytes(4, "little")))
    command = [tool("llvm-mc"), "--disassemble", "-triple=aarch64", "-mattr=+all"]
    # Constants stand behind the return.
    end = code.index(0xD65F03C0) + 1
    said = subprocess.run(command, input="\n".join(lines[:end]), capture_output=True, text=True, check=True)
    text = [line.strip().split("//")[0].strip() for line in said.stdout.splitlines()]
    text = [line for line in text if line and not line.startswith(".")]
    if len(text) != end:
        raise RuntimeError(f"{end} words are {len(text)} instructions: {said.stderr.strip().splitlines()[:1]}")
    return text


def innermost_loops(text):
    """The instructions of each innermost loop: a branch backwards, and no other one inside."""
    loops = []
    for at, line in enumerate(text):
        match = re.match(r"b\.ne\s+#-(\d+)$", line)
        if match:
            head = at - int(match[1]) // 4
            if not loops or loops[-1][0] < head:
                loops.append((head, at))
    return [text[head:at + 1] for head, at in loops]


def arithmetic(loop):
    """Vector instructions of a loop that sum products, and all of its vector arithmetic."""
    vectors = [line.split()[0] for line in loop if re.search(r"\bv\d+\.", line)]
    return tuple(sum(1 for word in vectors if kind.match(word)) for kind in (PRODUCTS, ARITHMETIC))


def simulate(loop, core, iterations=ITERATIONS):
    """Cycles of an iteration, and its port limit."""
    body = [re.sub(r"#-\d+$", ".Lhead", line) if line.startswith("b.") else line for line in loop]
    command = [tool("llvm-mca"), "-mtriple=aarch64", f"-mcpu={core}", "-mattr=+all", f"-iterations={iterations}", "-json"]
    said = subprocess.run(command, input=".Lhead:\n" + "\n".join(body) + "\n", capture_output=True, text=True)
    if said.returncode:
        raise RuntimeError("; ".join(said.stderr.split("\n")[:2]))
    view = json.loads(said.stdout)["CodeRegions"][0]["SummaryView"]
    return view["TotalCycles"] / iterations, view["BlockRThroughput"]


def is_within(figures):
    """The goal: of the cores that have the instructions all but one."""
    return sum(f["cycles"] > WITHIN * f["limit"] for f in figures) <= len(CORES) - CORES_WITHIN


def compiled(program, kernel, target):
    """The innermost loop with most arithmetic of a kernel."""
    command = [program, "explain", PROGRAMS, "--program", kernel, "--size", "LARGE", "--target", target, "--stage", "asm", "--quiet"]
    said = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if said.returncode:
        raise RuntimeError((said.stderr.strip().splitlines() or ["no message"])[-1])
    loops = [loop for code in words(said.stdout) for loop in innermost_loops(decode(code))]
    if not loops:
        raise RuntimeError("no loop")
    return max(loops, key=arithmetic)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", nargs="*", help="parts of names of kernels; all by default")
    parser.add_argument("--program", help="the tilewright to ask; the built one by default")
    parser.add_argument("--show", action="store_true", help="print the loops")
    parser.add_argument("--json", type=pathlib.Path, help="write the figures to this file")
    arguments = parser.parse_args()
    if not tool("llvm-mca") or not tool("llvm-mc"):
        say("llvm-mca is not here: install the package llvm-19; nothing is judged")
        return 0
    program = arguments.program or ROOT / "target" / "release" / "tilewright"
    print(f"{'cycles over port limit':22}" + "".join(f"{core:>24}" for core in CORES))
    figures, short = {}, []
    for kernel, features in KERNELS.items():
        if arguments.rows and not any(row in kernel for row in arguments.rows):
            continue
        try:
            loop = compiled(program, kernel, f"aarch64-neon{features}")
        except RuntimeError as why:
            print(f"{kernel:22} {why}")
            short.append(kernel)
            continue
        figures[kernel] = {}
        cells = []
        for core in CORES:
            if LACKS.get(core, set()) & set(features.split("+")):
                cells.append("lacks it")
                continue
            cycles, limit = simulate(loop, core)
            figures[kernel][core] = {"cycles": cycles, "limit": limit, "instructions": len(loop)}
            cells.append(f"{cycles:.1f} / {limit:.1f} = {cycles / limit:.2f}")
        print(f"{kernel:22}" + "".join(f"{cell:>24}" for cell in cells))
        if not is_within(figures[kernel].values()):
            short.append(kernel)
        if arguments.show:
            print("\n".join(f"    {line}" for line in loop))
    print(f"within {WITHIN:.2f} on {CORES_WITHIN} of {len(CORES)} cores: all" if not short else f"not within {WITHIN:.2f} on {CORES_WITHIN} cores: {', '.join(short)}")
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
