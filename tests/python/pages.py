"""The blocks of Python on the pages of `docs/`, for tests that run them."""
import ast
import os
import pathlib
import subprocess
import sys

from conftest import ROOT


def blocks(page):
    """Of each block marked `python`: the heading above it, the number of its first line, and its text."""
    heading, first, lines = "", None, []
    for number, line in enumerate((ROOT / page).read_text().splitlines(), 1):
        if first is not None and line == "```":
            yield heading, first, "\n".join(lines)
            first, lines = None, []
        elif first is not None:
            lines.append(line)
        elif line == "```python":
            first = number + 1
        elif line.startswith("#"):
            heading = line.lstrip("# ")


def run(page, headings, folder: pathlib.Path, before="", after="", **arguments):
    """Runs the blocks below the headings, one after the other, as one program in `folder`; fails where it does.

    `before` makes what the page takes for given, `after` judges what it left. Errors have the page's lines.
    """
    found = [(first, text) for heading, first, text in blocks(page) if heading in headings]
    assert len(found) >= len(headings), f"{page}: {headings} have {len(found)} blocks"
    parts = [("before the page", 1, before), *((str(ROOT / page), *block) for block in found), ("after the page", 1, after)]
    program = folder / "page.py"
    program.write_text(
        f"space = {{'__name__': 'page'}}\nfor name, line, text in {parts!r}:\n"
        "    exec(compile('\\n' * (line - 1) + text, name, 'exec'), space)\n"
    )
    environment = os.environ | arguments.pop("env", {})
    done = subprocess.run(
        [sys.executable, program], cwd=folder, env=environment, capture_output=True, text=True, timeout=300, **arguments
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def results(page, name, **given):
    """What the statements of a page give that name `name`, with these values of other names: each by itself, in their order."""
    found = []
    for _, first, text in blocks(page):
        for statement in ast.parse("\n" * (first - 1) + text, page).body:
            if not isinstance(statement, (ast.Import, ast.ImportFrom)) and name in ast.unparse(statement):
                found.append(eval(compile(ast.Expression(statement.value), page, "eval"), given))
    assert found, f"{page}: no statement names {name}"
    return found
