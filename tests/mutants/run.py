#!/usr/bin/env python3
"""Change the source at places chosen by a seed and see whether the quick tests notice.

usage: run.py [--seed N] [--count N] [--area NAME]... [--list]

Each mutant is one small change: a comparison, a sign, a bound, a constant, `any` for `all`, a deleted statement, a function
that returns a constant. All mutants of a run are compiled into one copy of the source under target/mutants, each function
with the changed bodies beside its own, and a variable of the environment chooses one (mutant schemata; Untch, Offutt and
Harrold, 1993); what stands outside of functions is changed and built by itself. A mutant is killed when a test fails or runs
much longer than without a change; one that does not compile is replaced by the next. The mutants that survive are printed as
differences: each wants a test, or leaves the meaning as it is and a place in equivalent.txt, which says why. The same seed
gives the same mutants of the same source, and most of them after a change elsewhere.
"""
import argparse
import difflib
import functools
import hashlib
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TREE = ROOT / "target" / "mutants" / "tree"
EQUIVALENT = pathlib.Path(__file__).with_name("equivalent.txt")

# area -> (files, the tests that should notice, quick ones first: a test target and filters). `tilewright` and
# `tilewright_runtime` are the unit tests.
PROOFS = [("tilewright", ["poly::analysis::dependence", "poly::analysis::legality"]), ("cases", ["scop", "primitives"]),
          ("tilewright", ["poly::brute_tests"])]
AREAS = {
    "dependences": (["src/poly/analysis/dependence.rs"], PROOFS),
    "legality": (["src/poly/analysis/legality.rs"], PROOFS),
    "waves": (["src/poly/tile.rs"], [("tilewright", ["poly::tile::tests::phases::", "poly::tile::tests::goldens",
                                                  "poly::tile::band::tests::parallel_loops"])]),
    "extraction": (["src/graph/extract/*.rs"], [("tilewright", ["graph::extract::"])]),
    "checker": (["src/codegen/regalloc/checker.rs"], [("tilewright", ["codegen::tests::registers", "codegen::tests::arguments"])]),
    "memory plan": (["src/runtime/arena.rs"], [("tilewright_runtime", ["arena::"])]),
    "pool": (["src/runtime/pool.rs"], [("tilewright_runtime", ["pool::", "session::"])]),
    "encoders": (["src/codegen/x86/*.rs", "src/codegen/aarch64/*.rs"],
                 [("tilewright", ["codegen::x86::", "codegen::tests::emission"]),
                  ("tilewright", ["codegen::tests::native", "codegen::tests::qemu"])]),
}

# What stands in the code -> what it becomes. Operators have spaces around them in formatted code.
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
    lines, after = text.split("\n"), 0
    for index, line in enumerate(lines):
        if line.strip() == "#[cfg(test)]":
            item = lines[index + 1]
            if item.strip().startswith("mod "):
                return
            # One line, or up to the brace that closes what it opens.
            closing = line[:line.index("#")] + "}"
            after = lines.index(closing, index) + 1 if item.endswith("{") else index + 2
        code = line.split("//")[0]
        if index >= after and code.strip() and not code.strip().startswith("#") and '\\"' not in code:
            yield index, code


def changes_of_line(code):
    """Every line that one change makes of a line of code."""
    # What stands in quotes is not code.
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


def balance(line):
    """Brackets of each kind that a line opens and does not close, and quotes that it leaves open; what is quoted and comments
    do not count."""
    code = re.sub(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.[^\']*)\'', "", line).split("//")[0]
    return [code.count(a) - code.count(b) for a, b in ("()", "[]", "{}")] + [code.count('"')]


def mutants(areas):
    """(area, file, line, new line) of every change."""
    out = []
    for area in areas:
        files = sorted(f for pattern in AREAS[area][0] for f in ROOT.glob(pattern) if "test" not in f.name)
        for file in files:
            lines = file.read_text().split("\n")
            for index, code in code_lines(file.read_text()):
                for new in dict.fromkeys(changes_of_line(code)):
                    # A brace too few is an error in another mutant than the one that lacks it.
                    if new != lines[index] and balance(new) == balance(lines[index]):
                        out.append((area, str(file.relative_to(ROOT)), index, new))
    return out


def choose(all_mutants, areas, seed):
    """Mutants in random order, one of each area in turn. The order of two depends on their texts alone."""
    def key(mutant):
        _, file, index, new = mutant
        return hashlib.sha256(f"{seed} {file} {source_line(file, index)} {new}".encode()).digest(), index
    of_area = {area: sorted((m for m in all_mutants if m[0] == area), key=key) for area in areas}
    while any(of_area.values()):
        for group in of_area.values():
            if group:
                yield group.pop()


@functools.cache
def source(file):
    return (ROOT / file).read_text().split("\n")


def source_line(file, index):
    return source(file)[index]


def read_equivalents():
    """(file, line, new line) -> why the meaning is the same, and those of them that are not made here. Blocks of four lines:
    file, `- line`, `+ new line`, reason; before those of a change that was made by hand stands `# by hand`."""
    out, by_hand = {}, set()
    for block in EQUIVALENT.read_text().split("\n\n"):
        lines = [line for line in block.strip().split("\n") if line and not line.startswith("#")]
        if lines:
            file, old, new, why = lines
            change = file, old[1:].strip(), new[1:].strip()
            out[change] = why
            if block.strip().startswith("# by hand"):
                by_hand.add(change)
    return out, by_hand


def place_of_function(lines, index):
    """The lines that open and close the outermost function whose body, or first line, is at `index`."""
    found = None
    for start in range(index, -1, -1):
        head = re.match(r"(\s*)(?:pub(?:\([a-z: ]+\))? )?(?:unsafe )?fn \w", lines[start])
        if not head:
            continue
        opening = next((i for i in range(start, len(lines)) if lines[i].endswith(("{", ";", "}"))), None)
        closing = next((i for i in range(start, len(lines)) if lines[i] == head.group(1) + "}"), -1)
        if opening is not None and opening <= index < closing and lines[opening].endswith("{"):
            found = opening, closing
    return found


def head_of_function(lines, opening):
    """The first line of the signature that `opening` ends."""
    return next((i for i in range(opening, -1, -1) if re.match(r"\s*(pub(\([a-z: ]+\))? )?(unsafe )?fn \w", lines[i])), opening)


def with_mutants(file, chosen):
    """The text of a file with all `chosen` (number, line, new line) in it; for each line of the text the numbers of the mutants
    that an error there may be of: one in a changed body, all of the function in its signature and its own body; and the
    numbers of those that stand in no function."""
    lines = (ROOT / file).read_text().split("\n")
    functions, alone = {}, set()
    for number, index, new in chosen:
        place = place_of_function(lines, index)
        if place is None or index == place[0] and not new.startswith(lines[index]):
            alone.add(number)
        else:
            functions.setdefault(place, []).append((number, index, new))
    text, owners, at = [], [], 0

    def emit(part, numbers=()):
        text.extend(part)
        owners.extend([numbers] * len(part))

    for (opening, closing), members in sorted(functions.items()):
        head, every = max(at, head_of_function(lines, opening)), tuple(number for number, _, _ in members)
        emit(lines[at:head])
        emit(lines[head:opening + 1] + ["match crate::mutant() {"], every)
        for number, index, new in members:
            changed = new[len(lines[index]):] if index == opening else new
            first = [changed] if index == opening else []
            body = [changed if i == index else lines[i] for i in range(opening + 1, closing)]
            emit([f"{number} => {{", *first, *body, "}"], (number,))
        emit(["_ => {", *lines[opening + 1:closing], "}", "}"], every)
        at = closing
    emit(lines[at:])
    return "\n".join(text), owners, alone


def copy_source(changed):
    """Copies what version control knows or would know, as it is now, with the texts `changed`. Files that did not change keep
    their times."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, check=True, capture_output=True, text=True)
    for name in listed.stdout.splitlines():
        source, target = ROOT / name, TREE / name
        if not source.is_file():
            continue
        data = changed[name].encode() if name in changed else source.read_bytes()
        if name in ("src/lib.rs", "src/runtime/lib.rs"):
            data += SWITCH.encode()
        if name == "Cargo.toml":
            # Another version has other names of files: what is built here is not taken for what is built of the source.
            data = data.replace(b'version = "0.1.0"\n', b'version = "0.1.999"\n', 1)
        if not (target.exists() and target.read_bytes() == data):
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)


SWITCH = """
/// The number of the mutant that runs.
pub fn mutant() -> u32 {
    static NUMBER: std::sync::OnceLock<u32> = std::sync::OnceLock::new();
    *NUMBER.get_or_init(|| std::env::var("TILEWRIGHT_MUTANT").ok().and_then(|n| n.parse().ok()).unwrap_or(0))
}
"""


def run(command, seconds=None, **variables):
    """Exit code, or None after the limit; the output. The memory of a mutant that runs wild is bounded."""
    limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (16 << 30, 16 << 30))
    environment = {**os.environ, "CARGO_TARGET_DIR": str(ROOT / "target"), "CARGO_TERM_PROGRESS_WHEN": "never", **variables}
    process = subprocess.Popen(command, cwd=TREE, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               start_new_session=True, preexec_fn=limit)
    try:
        output, _ = process.communicate(timeout=seconds)
        return process.returncode, output
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return None, process.communicate()[0]


def messages(output):
    for line in output.splitlines():
        if line.startswith("{"):
            yield json.loads(line)


PACKAGES = ["-p", "tilewright", "-p", "tilewright-runtime"]


def compile_together(numbered):
    """Writes the copy with all mutants that compile. Returns the numbers of these, and of those outside of functions."""
    numbered = dict(numbered)
    while True:
        of_file = {}
        for number, (_, file, index, new) in numbered.items():
            of_file.setdefault(file, []).append((number, index, new))
        made = {file: with_mutants(file, chosen) for file, chosen in of_file.items()}
        copy_source({file: text for file, (text, _, _) in made.items()})
        alone = set().union(*(a for _, _, a in made.values()))
        code, output = run(["cargo", "check", "-q", "--message-format=json", *PACKAGES])
        if code == 0:
            return set(numbered) - alone, alone
        # What is wrong in a body is the mutant's; else it may be that of any mutant of the function.
        wrong, possible = set(), set()
        for message in messages(output):
            for span in message.get("message", {}).get("spans", []):
                if message["message"]["level"] == "error" and span["is_primary"]:
                    name = os.path.relpath(TREE / span["file_name"], TREE)
                    owners = made[name][1] if name in made else made.get("src/runtime/" + name, ("", []))[1]
                    numbers = owners[span["line_start"] - 1] if owners else ()
                    (wrong if len(numbers) == 1 else possible).update(numbers)
        wrong = wrong or possible
        if not wrong:
            sys.exit(f"the copy does not compile\n{output[-3000:]}")
        for number in wrong:
            del numbered[number]


def build(areas):
    """Builds the tests of the areas: name of a test target -> program, or None."""
    targets = sorted({name for area in areas for name, _ in AREAS[area][1]})
    wanted = [word for name in targets if not name.startswith("tilewright") for word in ("--test", name)]
    code, output = run(["cargo", "test", "-q", "--no-run", "--message-format=json", *PACKAGES, "--lib", *wanted])
    made = {m["target"]["name"]: m["executable"] for m in messages(output) if m.get("executable") and m["profile"]["test"]}
    return made if code == 0 else None


def test(programs, area, number, seconds):
    """What the tests say of a mutant: killed, survived."""
    for name, filters in AREAS[area][1]:
        directory = TREE / "src/runtime" if name == "tilewright_runtime" else TREE
        code, output = run(["env", "-C", directory, programs[name], "-q", *filters], seconds, TILEWRIGHT_MUTANT=str(number))
        if code is None:
            return f"killed, after {seconds:.0f} s"
        if code:
            failed = re.findall(r"^    ([\w:]+)$", output, re.M)
            return f"killed by {failed[0] if failed else 'a crash'}"
    return "survived"


def limits(programs, areas):
    """Seconds that a mutant of each area may take; the tests must pass without a change."""
    out = {}
    for area in areas:
        begin = time.monotonic()
        result = test(programs, area, 0, None)
        if result != "survived":
            sys.exit(f"the tests of {area} fail without a change: {result}")
        out[area] = 30 + 5 * (time.monotonic() - begin)
    return out


def test_alone(mutant, programs, seconds):
    """Builds and tests a mutant that stands outside of functions; None when it does not compile."""
    area, file, index, new = mutant
    path = TREE / file
    text = path.read_text()
    old = source_line(file, index)
    path.write_text(text.replace(f"\n{old}\n", f"\n{new}\n", 1))
    try:
        changed = build([area])
        return changed and test({**programs, **changed}, area, 0, seconds)
    finally:
        path.write_text(text)


def difference(mutant):
    _, file, index, new = mutant
    lines = (ROOT / file).read_text().splitlines(True)
    changed = lines[:index] + [new + "\n"] + lines[index + 1:]
    return "".join(difflib.unified_diff(lines, changed, file, file, n=2))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--area", action="append", choices=AREAS, help="only this area; may be given several times")
    parser.add_argument("--list", action="store_true", help="print the mutants without running them")
    options = parser.parse_args()
    areas = options.area or list(AREAS)
    all_mutants, (equivalents, by_hand) = mutants(areas), read_equivalents()
    known = {(file, source_line(file, index).strip(), new.strip()) for _, file, index, new in mutants(AREAS)}
    stale = {change for change in equivalents if change not in known and change not in by_hand}
    lines = lambda change: map(str.strip, source(change[0]))
    for file, old, new in sorted(stale | {change for change in by_hand if change[1] not in lines(change)}):
        print(f"equivalent.txt lists a change that is not made: {file}: {old}  ->  {new}", file=sys.stderr)
    print(f"{len(all_mutants)} mutants; seed {options.seed}", flush=True)
    # Some do not compile.
    spare = options.count // 2 + 8
    numbered = {i + 1: m for i, (m, _) in enumerate(zip(choose(all_mutants, areas, options.seed), range(options.count + spare)))}
    if options.list:
        for area, file, index, new in list(numbered.values())[:options.count]:
            print(f"{area}: {file}:{index + 1}: {source_line(file, index).strip()}  ->  {new.strip() or 'nothing'}")
        return 0
    together, alone = compile_together(numbered)
    programs = build(areas) or sys.exit("the tests do not compile")
    seconds = limits(programs, areas)
    survivors, results = [], {}

    def judge(number, result):
        area, file, index, new = numbered[number]
        why = equivalents.get((file, source_line(file, index).strip(), new.strip()))
        results[number] = result
        note = f", as it may: {why}" if why and result == "survived" else ""
        print(f"{len(results)}. {area}: {file}:{index + 1}: {result}{note}", flush=True)
        if result == "survived" and not why:
            survivors.append(difference(numbered[number]))

    chosen = sorted(together | alone)[:options.count]
    for number in sorted(together & set(chosen)):
        area = numbered[number][0]
        judge(number, test(programs, area, number, seconds[area]))
    # Last, since what is built for these replaces the programs.
    for number in sorted(alone & set(chosen)):
        area = numbered[number][0]
        if result := test_alone(numbered[number], programs, seconds[area]):
            judge(number, result)
    print(f"\n{len(results)} mutants, {len(survivors)} survived that are not listed as equivalent")
    print("\n".join(survivors))
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
