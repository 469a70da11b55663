"""A vector sum over as many bytes as the weights of the workload have: what the memory allows, so its outputs are others."""
import json
import pathlib

REQUIRES = []
KINDS = {"weights"}
COMPARED = False
PROGRAM = """# The sum of N numbers.
loop vector_sum(N) {
    inout i64 sum
    in i64 x[N]
    for i in 0..N
        sum += x[i]
}
"""


def command(workload_file, threads, outputs):
    workload = json.loads(pathlib.Path(workload_file).read_text())
    program = pathlib.Path(workload_file).with_suffix(".tile")
    program.write_text(PROGRAM)
    count = workload["bytes"] // 8
    return [workload["tilewright"], "bench", str(program), "--dim", f"N={count}", "--quiet", "--threads", threads, "--interactive", "--save", outputs]
