#!/usr/bin/env python3
"""Write the methods of `tilewright.Schedule`, one for each primitive of the text language.

usage: make_primitives.py [--write]      without --write the text is printed; needs the package
"""
import pathlib
import sys
import textwrap

from tilewright import _native

FILE = pathlib.Path(__file__).resolve().parents[2] / "src" / "python" / "tilewright" / "_primitives.py"

HEAD = '''"""The methods of schedules, one for each primitive: written by `tests/python/make_primitives.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._schedule import Schedule

#: A loop, or a statement and its loop.
Loop = str | tuple[str, str]
#: Loops, or a statement and its loops.
Loops = Sequence[str] | tuple[str, Sequence[str]]
#: An array that is read, or a statement and the array that it reads.
Read = str | tuple[str, str]


class Primitives:
    """One method for each primitive."""

    def _then(self, keyword: str, *values: Any) -> Schedule:
        raise NotImplementedError
'''

TYPES = {
    "Loop": "Loop",
    "Loops": "Loops",
    "Read": "Read",
    "NewPair": "tuple[str, str] | Sequence[str]",
    "NewTiles": "Sequence[str]",
    "Statements": "Sequence[str]",
    "Count": "int",
    "Iterations": "int",
    "Factor": "int",
    "TileSizes": "Sequence[int]",
    "Layout": "Sequence[str]",
}


def parameter(name):
    """A name that is not a word of Python."""
    return f"{name}_" if name in ("with", "as") else name


def method(keyword, doc, arguments, optional):
    head = ["self", *(f"{parameter(name)}: {TYPES.get(kind, 'str')}" for _, name, kind in arguments)]
    names = [parameter(name) for _, name, _ in arguments]
    if optional:
        _, name, kind = optional
        head.append(f"{parameter(name)}: {TYPES.get(kind, 'str')} | None = None")
        names.append(parameter(name))
    line = f"    def {keyword}({', '.join(head)}) -> Schedule:"
    if len(line) > 120:
        line = f"    def {keyword}(\n        {', '.join(head)}\n    ) -> Schedule:"
    words = textwrap.wrap(f'"""{doc}"""', 112)
    text = "\n".join(f"        {word}" for word in words)
    return f"\n{line}\n{text}\n        return self._then({', '.join([repr(keyword).replace(chr(39), chr(34)), *names])})\n"


def text():
    return HEAD + "".join(method(*row) for row in _native.primitives())


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        FILE.write_text(text(), encoding="utf-8")
    else:
        sys.stdout.write(text())
