"""Schedules by hand: primitives in the order in which they apply."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from . import _native
from ._primitives import Primitives
from .errors import InvalidError

__all__ = ["Schedule"]

#: Word before it, name and kind of each argument of a primitive, by keyword; the last one may be absent where the flag says so.
_FORMS = {
    keyword: ([*arguments, optional] if optional else arguments, optional is not None)
    for keyword, _, arguments, optional in _native.primitives()
}


def _name(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a name")
    return value


def _names(value: Any) -> str:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise TypeError(f"{value!r} is not a list of names")
    return ", ".join(map(_name, value))


def _of_statement(value: Any) -> str:
    """`i`, or `S(i)` of the pair `("S", "i")`."""
    if isinstance(value, str):
        return value
    statement, name = value
    return f"{_name(statement)}({_name(name)})"


def _loops(value: Any) -> str:
    """`i, j`, or `S(i, j)` of the pair `("S", ["i", "j"])`."""
    if len(value) == 2 and isinstance(value[0], str) and not isinstance(value[1], str):
        return f"{value[0]}({_names(value[1])})"
    return _names(value)


def _integer(value: Any) -> str:
    return str(value.__index__())


#: How an argument of a kind is written.
_WRITERS: dict[str, Callable[[Any], str]] = {
    "Loop": _of_statement,
    "Loops": _loops,
    "Read": _of_statement,
    "LoopName": _name,
    "OuterLoop": _name,
    "NewLoop": _name,
    "NewPair": _names,
    "NewTiles": _names,
    "Statements": _names,
    "Tensor": _name,
    "NewTensor": _name,
    "Instruction": _name,
    "Count": _integer,
    "Iterations": _integer,
    "Factor": lambda value: f"{_integer(value)}*",
    "TileSizes": lambda value: "(" + ", ".join(map(_integer, value)) + ")",
    "Layout": lambda value: "(" + ", ".join(map(str, value)) + ")",
}


class Schedule(Primitives):
    """Primitives in the order in which they apply. Each method returns the schedule with one more.

        s = tw.Schedule().tile(("C", ["m", "n"]), [8, 32], ["mo", "no", "mi", "ni"]).vectorize("ni").parallel("mo")
        fast = program.schedule(s)

    A loop is `"i"`, or `("S", "i")` where several statements have loops of that name; several loops are `["i", "j"]`, or
    `("S", ["i", "j"])`. The methods are those of the text language, with the same arguments. A schedule is proven when a
    program with it is compiled.
    """

    def __init__(self, name: str = "by_hand", primitives: Sequence[str] = ()):
        self.name = name
        #: The text of each primitive.
        self.primitives = tuple(primitives)

    def _then(self, keyword: str, *values: Any) -> Schedule:
        arguments, optional = _FORMS[keyword]
        if optional and values[-1] is None:
            values = values[:-1]
        text = keyword
        for position, ((word, name, kind), value) in enumerate(zip(arguments, values, strict=False)):
            try:
                written = _WRITERS[kind](value)
            except (TypeError, ValueError, AttributeError) as error:
                raise InvalidError(f"`{keyword}`: {value!r} is no {kind} for `{name}`: {error}") from None
            text += f" {word} {written}" if word else (f" {written}" if position == 0 else written)
        return Schedule(self.name, (*self.primitives, text))

    def text(self, program: str) -> str:
        """The schedule as text, for the program of this name."""
        lines = "".join(f"    {primitive}\n" for primitive in self.primitives)
        return f"schedule {self.name} for {program} {{\n{lines}}}\n"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schedule) and (self.name, self.primitives) == (other.name, other.primitives)

    def __hash__(self) -> int:
        return hash((self.name, self.primitives))

    def __repr__(self) -> str:
        return f"Schedule({self.name!r}, [{', '.join(map(repr, self.primitives))}])"
