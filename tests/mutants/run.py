#!/usr/bin/env python3
"""Change the source at places chosen by a seed and see whether the quick tests notice.

usage: run.py [--seed N] [--count N] [--area NAME]... [--seconds N] [--list]

Each mutant is one small change: a comparison, a sign, a bound, a constant, `any` for `all`, a deleted statement, a function
that returns a constant. It is made in a copy of the source under target/mutants, which is built into the ordinary target
folder, so that dependencies are not built again. A mutant is killed when a test fails or runs longer than the limit; one that
does not compile is replaced by the next. The mutants that survive are printed as differences: each wants a test, or leaves the
meaning as it is. The same seed gives the same mutants of the same source.
"""
import argparse
import difflib
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TREE = ROOT / "target" / "mutants" / "tree"

# area -> (files, filters of the unit tests that should notice)
AREAS = {
    "dependences": (["src/poly/analysis/dependence.rs"], ["poly::"]),
    "legality": (["src/poly/analysis/legality.rs"], ["poly::"]),
    "waves": (["src/poly/tile.rs"], ["poly::"]),
    "extraction": (["src/graph/extract/*.rs"], ["graph::"]),
    "checker": (["src/codegen/regalloc/checker.rs"], ["codegen::"]),
    "memory plan": (["src/runtime/arena.rs"], ["arena::"]),
    "pool": (["src/runtime/pool.rs"], ["pool::", "session::"]),
    "encoders": (["src/codegen/x86/*.rs", "src/codegen/aarch64/*.rs"], ["codegen::"]),
}

# Text of the code -> replacements. Operators have spaces around them in formatted code.
SWAPS = {
    " < ": [" <= ", " > "], " <= ": [" < "], " > ": [" >= ", " < "], " >= ": [" > "], " == ": [" != "], " != ": [" == "],
    " && ": [" || "], " || ": [" && "], " + ": [" - "], " - ": [" + "], " + 1": [""], " - 1": [""], "..=": [".."],
    " += ": [" -= "], " -= ": [" += "], ".any(": [".all("], ".all(": [".any("], ".min(": [".max("], ".max(": [".min("],
    "(!": ["("], " !": [" "], "true": ["false"], "false": ["true"],
}
STATEMENT = re.compile(r"^\s+(?!let |return|use |break|continue|pub |fn |const |static |mod |//)[*a-z_][^{}]*;$")
FUNCTION = re.compile(r"^\s*(pub(\([a-z: ]+\))? )?fn .*-> bool \{$")


def code_lines(text):
    """Index and code of each line that may change: no comments, attributes, texts with escapes, and no tests."""
    for index, line in enumerate(text.split("\n")):
        if line.strip() == "#[cfg(test)]":
            return
        code = line.split("//")[0]
        if code.strip() and not code.strip().startswith("#") and '\\"' not in code:
            yield index, code


def changes_of_line(code):
    """Every line that one change makes of a line of code."""
    # Quoted text is not code.
    quoted = [m.span() for m in re.finditer(r'"[^"]*"|\'[^\' ]\'', code)]
    inside = lambda at: any(a <= at < b for a, b in quoted)
    for old, news in SWAPS.items():
        for match in re.finditer(re.escape(old), code):
            at, end = match.span()
            word = old.isalpha() and re.search(r"\w", code[at - 1:at] + code[end:end + 1])
            chain = old.strip() in ("&&", "||") and code[end:].startswith("let ")
            digits = old in (" + 1", " - 1") and re.match(r"[\w.]", code[end:end + 1])
            if inside(at) or word or chain or digits:
                continue
            for new in news:
                yield code[:at] + new + code[end:]
    for match in re.finditer(r"(?<![\w.])\d+(?![\w.])|(?<![\w.])\d+(?=\.\.)", code):
        if not inside(match.start()) and int(match.group()) <= 4096:
            yield code[:match.start()] + str(int(match.group()) + 1) + code[match.end():]
    balanced = all(code.count(a) == code.count(b) for a, b in ("()", "[]"))
    if STATEMENT.match(code) and balanced:
        yield ""
    if FUNCTION.match(code):
        yield code + " return true;"
        yield code + " return false;"


def mutants(areas):
    """(area, file, line, new line) of every change, in an order that depends on the source alone."""
    out = []
    for area in areas:
        files = sorted(f for pattern in AREAS[area][0] for f in ROOT.glob(pattern) if "test" not in f.name)
        for file in files:
            lines = file.read_text().split("\n")
            for index, code in code_lines(file.read_text()):
                for new in dict.fromkeys(changes_of_line(code)):
                    if new != lines[index]:
                        out.append((area, file.relative_to(ROOT), index, new))
    return out


def choose(all_mutants, areas, seed):
    """Mutants in random order, one of each area in turn."""
    rng = random.Random(seed)
    of_area = {area: [m for m in all_mutants if m[0] == area] for area in areas}
    for group in of_area.values():
        rng.shuffle(group)
    while any(of_area.values()):
        for group in of_area.values():
            if group:
                yield group.pop()


def copy_source():
    """Copies the files that version control knows or would know. Files that did not change keep their times."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, check=True, capture_output=True, text=True)
    for name in listed.stdout.splitlines():
        source, target = ROOT / name, TREE / name
        if source.is_file() and not (target.exists() and target.read_bytes() == source.read_bytes()):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)


def run(command, seconds):
    """Exit code, or None after the limit; the output. The memory of a mutant that runs wild is bounded."""
    limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (16 << 30, 16 << 30))
    environment = {**os.environ, "CARGO_TARGET_DIR": str(ROOT / "target"), "CARGO_TERM_PROGRESS_WHEN": "never"}
    process = subprocess.Popen(command, cwd=TREE, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               start_new_session=True, preexec_fn=limit)
    try:
        output, _ = process.communicate(timeout=seconds)
        return process.returncode, output
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return None, process.communicate()[0]


def test(area, seconds):
    """Runs the tests on the copy: killed, survived, or does not compile."""
    build, output = run(["cargo", "test", "-q", "--lib", "--no-run"], None)
    if build != 0:
        return "does not compile", output
    code, output = run(["cargo", "test", "-q", "--lib", "--", *AREAS[area][1]], seconds)
    if code is None:
        return f"killed, after {seconds} s", output
    failed = re.findall(r"^    ([\w:]+)$", output, re.M)
    return (f"killed by {failed[0] if failed else 'a crash'}" if code else "survived"), output


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=6)
    parser.add_argument("--area", action="append", choices=AREAS, help="only this area; may be given several times")
    parser.add_argument("--seconds", type=int, default=300, help="the limit of one run of the tests")
    parser.add_argument("--list", action="store_true", help="print the mutants without running them")
    options = parser.parse_args()
    areas = options.area or list(AREAS)
    all_mutants = mutants(areas)
    print(f"{len(all_mutants)} mutants; seed {options.seed}", flush=True)
    chosen = choose(all_mutants, areas, options.seed)
    if options.list:
        for area, file, index, new in [m for m, _ in zip(chosen, range(options.count))]:
            print(f"{area}: {file}:{index + 1}: {(ROOT / file).read_text().splitlines()[index].strip()}  ->  {new.strip() or 'nothing'}")
        return 0
    copy_source()
    for area in areas:
        result, output = test(area, 2 * options.seconds)
        if result != "survived":
            sys.exit(f"the tests of {area} fail without a change: {result}\n{output[-3000:]}")
    survivors, tried = [], 0
    for area, file, index, new in chosen:
        if tried == options.count:
            break
        path = TREE / file
        original = path.read_text()
        lines = original.split("\n")
        changed = "\n".join(lines[:index] + [new] + lines[index + 1:])
        path.write_text(changed)
        try:
            result, _ = test(area, options.seconds)
        finally:
            path.write_text(original)
        place = f"{area}: {file}:{index + 1}"
        if result == "does not compile":
            continue
        tried += 1
        print(f"{tried}. {place}: {result}", flush=True)
        if result == "survived":
            survivors.append("".join(difflib.unified_diff(
                original.splitlines(True), changed.splitlines(True), str(file), str(file), n=2)))
    print(f"\n{tried} mutants, {len(survivors)} survived")
    print("\n".join(survivors))
    return 0


if __name__ == "__main__":
    sys.exit(main())
