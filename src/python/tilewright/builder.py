"""Programs of the text language, built in Python with the words of the Rust module `tilewright::builder`.

    from tilewright import builder as tb

    m, n, k = tb.names("m n k")
    gemm = tb.define("gemm")
    A = gemm.input("f32", "A", ("M", "K"))
    B = gemm.input("f32", "B", ("K", "N"))
    C = gemm.output("C")
    C[m, n] += A[m, k] * B[k, n]
    program = gemm.build()              # as tw.program(str(gemm))
    c = program(a, b)

`loops(name)` builds programs of loops. Types, ranges and names are checked by the language: an error shows the line of the
program and the line of the Python file that wrote it.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ._expression import Expr, Update, call, checked, dtype_name, expression, written
from ._program import Program, program
from ._schedule import Schedule
from .errors import InvalidError

__all__ = [
    "Array", "Definition", "Expr", "Loops", "abs", "acos", "acosh", "asin", "asinh", "at_least", "at_most", "atan", "atanh",
    "bit_and", "bit_not", "bit_or", "bit_xor", "both", "cast", "ceil", "cos", "cosh", "define", "either", "equal", "erf", "exp",
    "floor", "greater", "less", "log", "loops", "max", "min", "name", "names", "popcount", "pow", "round", "select", "shl", "shr", "sin",
    "sinh", "sqrt", "tan", "tanh", "unequal", "within",
]  # fmt: skip

#: Symbols of `equation`, and of `set`.
_ASSIGNMENTS = ("=", "+=", "*=", "min=", "max=", "+=!", "*=!", "min=!", "max=!")
_UPDATES = ("=", "+=", "-=", "*=", "/=", "min=", "max=")

_FOLDER = os.path.dirname(os.path.abspath(__file__))


def _caller() -> str:
    """File and line of the code that called this package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and os.path.dirname(frame.f_code.co_filename) in (_FOLDER, os.path.dirname(contextlib.__file__)):
        frame = frame.f_back
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"


class Array:
    """An array of a program: `A[m, k]` is an element of it, `A[()]` that of an array without dimensions.

    `C[m, n] = value` and `C[m, n] += value` add an equation, or a statement of a loop program. The first `+=` and `*=` of a
    definition start from the neutral element (`+=!`), later ones from what an earlier equation gave.
    """

    __slots__ = ("_builder", "name")

    # Python would ask for the elements 0, 1, … without an end.
    __iter__ = None
    __contains__ = None

    def __init__(self, builder: _Builder, name: str):
        self._builder, self.name = builder, checked(name)

    def __getitem__(self, subscripts: Any) -> Expr:
        return self._builder._element(self.name, subscripts if isinstance(subscripts, tuple) else (subscripts,))

    def __setitem__(self, subscripts: Any, value: Any) -> None:
        symbol, value = (value.symbol, value.value) if isinstance(value, Update) else ("=", value)
        self._builder._assign(self, self[subscripts], symbol, value)

    def __repr__(self) -> str:
        return f"<array `{self.name}`>"


class _Builder:
    """What definitions and loop programs have in common: a name, lines with their place in Python, sets of sizes."""

    def __init__(self, name: str):
        self.name = checked(name)
        self._depth = 1
        self._lines: list[tuple[str, str]] = []
        self._sizes: list[tuple[str, str]] = []
        self._initial: list[tuple[str, str]] = []
        self._schedules: list[Schedule] = []

    def _element(self, name: str, subscripts: Sequence[Any]) -> Expr:
        raise NotImplementedError

    def _assign(self, array: Array, target: Expr, symbol: str, value: Any) -> None:
        raise NotImplementedError

    def _head(self) -> list[tuple[str, str]]:
        raise NotImplementedError

    def _line(self, text: str) -> None:
        self._lines.append(("    " * self._depth + text, _caller()))

    def sizes(self, name: str, values: Mapping[str, int] | None = None, **named: int) -> None:
        """A set of sizes: `sizes("SMALL", M=48, N=64)`; `tw.program` takes its name."""
        given = {**(values or {}), **named}
        rows = ", ".join(f"{checked(size)} = {value.__index__()}" for size, value in given.items())
        self._sizes.append((f"    sizes {checked(name)} {{ {rows} }}", _caller()))

    def initial(self, target: Expr, value: Any) -> None:
        """Initial values of an array that is not given, such as `initial(A[i, j], (i + j) % 7)`."""
        self._initial.append((f"        {target} = {expression(value)}", _caller()))

    def schedule(self, schedule: Schedule) -> None:
        """Adds a schedule, which `Program.schedule` finds by its name."""
        self._schedules.append(schedule)

    def _text(self, is_marked: bool) -> str:
        initial = [("    init {", ""), *self._initial, ("    }", "")] if self._initial else []
        rows = [*self._head(), *initial, *self._lines, ("}", "")]
        lines = [f"{text}  # {place}" if is_marked and place else text for text, place in rows]
        return "\n".join(lines) + "\n" + "".join("\n" + schedule.text(self.name) for schedule in self._schedules)

    def __str__(self) -> str:
        """The text of the program."""
        return self._text(False)

    def build(self, **options: Any) -> Program:
        """The program; options are those of `tilewright.program`.

        Raises:
            InvalidError: the program has no meaning; the message shows its line, and the line of Python that wrote it.
        """
        if self._depth != 1:
            raise InvalidError(f"`{self.name}` is built inside of a loop: leave `with` first")
        return program(self._text(True), **options)


class Definition(_Builder):
    """A program of tensor expressions; `define` makes it."""

    def __init__(self, name: str):
        super().__init__(name)
        self._inputs: list[str] = []
        self._outputs: list[str] = []
        self._given: set[str] = set()
        self._place = _caller()

    def input(self, dtype: Any, name: str, shape: Any = ()) -> Array:
        """An input: its element type (`"f32"`, `np.float32`), name and extents, which are numbers, names of sizes or expressions."""
        self._inputs.append(f"{dtype_name(dtype)}{_shape(shape)} {checked(name)}")
        return Array(self, name)

    def output(self, name: str) -> Array:
        """An output; type and shape follow from its equation."""
        self._outputs.append(checked(name))
        return Array(self, name)

    def temporary(self, name: str) -> Array:
        """An array that is neither input nor output; type and shape follow from its equation."""
        return Array(self, name)

    def equation(self, target: Expr, assign: str, value: Any, where: Sequence[Expr | str] = ()) -> None:
        """`target assign value where conditions`: assign is `=`, `+=!`, `max=!` …, a condition an expression or `within(…)`.

        `+=!` starts from the neutral element, `+=` from the value that an earlier equation gave. Indices that the target lacks
        are reduced.

        Raises:
            InvalidError: there is no such assignment, or the target is not an element.
        """
        if assign not in _ASSIGNMENTS:
            raise InvalidError(f"`{assign}` is not an assignment: there are {' '.join(_ASSIGNMENTS)}")
        if target._array is None:
            raise InvalidError(f"`{target}` is not an element of an array")
        self._given.add(target._array)
        conditions = ", ".join(str(condition) for condition in where)
        self._line(f"{target} {assign} {expression(value)}" + (f" where {conditions}" if conditions else ""))

    def _element(self, name: str, subscripts: Sequence[Any]) -> Expr:
        return Expr(f"{name}({written(subscripts)})", array=name)

    def _assign(self, array: Array, target: Expr, symbol: str, value: Any) -> None:
        if symbol in ("+=", "*=") and array.name not in self._given:
            symbol += "!"
        self.equation(target, symbol, value)

    def _head(self) -> list[tuple[str, str]]:
        head = f"def {self.name}({', '.join(self._inputs)}) -> ({', '.join(self._outputs)}) {{"
        return [(head, self._place), *self._sizes]


class Loops(_Builder):
    """A program of loops, whose statements run in their order; `loops` makes it.

        prefix = tb.loops("prefix_sum")
        N = prefix.size("N")
        x = prefix.array("f32", "x", N)
        with prefix.each("i", 1, N) as i:
            x[i] += x[i - 1]
    """

    def __init__(self, name: str):
        super().__init__(name)
        self._parameters: list[str] = []
        self._arrays: list[tuple[str, str]] = []
        self._branches: list[int] = []
        self._place = _caller()

    def size(self, name: str, value: int | None = None) -> Expr:
        """A size, with a value that holds where no other is given."""
        self._parameters.append(checked(name) if value is None else f"{checked(name)} = {value.__index__()}")
        return expression(name)

    def array(self, dtype: Any, name: str, shape: Any = (), access: str = "") -> Array:
        """An array: its element type, name and extents. Access is `in`, `out` or `inout`; what the statements do by default."""
        if access not in ("", "in", "out", "inout", "temp"):
            raise InvalidError(f"`{access}` is not an access: there are in, out, inout, temp")
        extents = "".join(f"[{expression(extent)}]" for extent in _extents(shape))
        self._arrays.append((f"    {access + ' ' if access else ''}{dtype_name(dtype)} {checked(name)}{extents}", _caller()))
        return Array(self, name)

    def temporary(self, dtype: Any, name: str, shape: Any = ()) -> Array:
        """An array that exists only inside of the program."""
        return self.array(dtype, name, shape, "temp")

    @contextmanager
    def each(self, index: str | Expr, lower: Any, upper: Any, step: int = 1) -> Iterator[Expr]:
        """`for index in lower..upper`, up to upper - 1: the statements inside of `with` are its body. A negative step walks the same
        interval down from upper - 1."""
        index = expression(index)
        suffix = "" if step == 1 else f" step {step.__index__()}"
        with self._block(f"for {index} in {expression(lower)}..{expression(upper)}{suffix} {{"):
            yield index

    @contextmanager
    def when(self, condition: Expr) -> Iterator[None]:
        """`if condition`: the statements inside of `with` are its body."""
        with self._block(f"if {expression(condition)} {{"):
            yield
        self._branches.append(len(self._lines))

    @contextmanager
    def otherwise(self) -> Iterator[None]:
        """`else` of the `when` that ends right before it.

        Raises:
            InvalidError: there is none.
        """
        if len(self._lines) not in self._branches:
            raise InvalidError("`otherwise` stands right after a `when`")
        self._lines.pop()
        with self._block("} else {"):
            yield

    @contextmanager
    def _block(self, head: str) -> Iterator[None]:
        self._line(head)
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
        self._lines.append(("    " * self._depth + "}", ""))

    def set(self, target: Expr, update: str, value: Any, label: str | None = None) -> None:
        """`label: target update value`: the update is `=`, `+=`, `max=` …; schedules call the statement by its label.

        Raises:
            InvalidError: there is no such update, or the target is not an element.
        """
        if update not in _UPDATES:
            raise InvalidError(f"`{update}` is not an update: there are {' '.join(_UPDATES)}")
        if target._array is None:
            raise InvalidError(f"`{target}` is not an element of an array")
        self._line(f"{checked(label) + ': ' if label else ''}{target} {update} {expression(value)}")

    def _element(self, name: str, subscripts: Sequence[Any]) -> Expr:
        return Expr(name + "".join(f"[{expression(subscript)}]" for subscript in subscripts), array=name)

    def _assign(self, array: Array, target: Expr, symbol: str, value: Any) -> None:
        self.set(target, symbol, value)

    def _head(self) -> list[tuple[str, str]]:
        return [(f"loop {self.name}({', '.join(self._parameters)}) {{", self._place), *self._sizes, *self._arrays]


def _extents(shape: Any) -> Sequence[Any]:
    return shape if isinstance(shape, (tuple, list)) else (shape,)


def _shape(shape: Any) -> str:
    extents = _extents(shape)
    return f"({written(extents)})" if extents else ""


def define(name: str) -> Definition:
    """A program of tensor expressions."""
    return Definition(name)


def loops(name: str) -> Loops:
    """A program of loops."""
    return Loops(name)


def name(text: str) -> Expr:
    """The index or size of this name."""
    return expression(text)


def names(text: str) -> tuple[Expr, ...]:
    """Several of them, with spaces or commas: `m, n, k = names("m n k")`."""
    return tuple(expression(word) for word in text.replace(",", " ").split())


def within(index: str | Expr, lower: Any, upper: Any) -> str:
    """`index in lower..upper`, for `where` of an equation."""
    return f"{expression(index)} in {expression(lower)}..{expression(upper)}"


def equal(a: Any, b: Any) -> Expr:
    """`a == b`."""
    return expression(a) == b


def unequal(a: Any, b: Any) -> Expr:
    """`a != b`."""
    return expression(a) != b


def less(a: Any, b: Any) -> Expr:
    """`a < b`."""
    return expression(a) < b


def at_most(a: Any, b: Any) -> Expr:
    """`a <= b`."""
    return expression(a) <= b


def greater(a: Any, b: Any) -> Expr:
    """`a > b`."""
    return expression(a) > b


def at_least(a: Any, b: Any) -> Expr:
    """`a >= b`."""
    return expression(a) >= b


def both(a: Any, b: Any) -> Expr:
    """`a && b`."""
    return expression(a) & b


def either(a: Any, b: Any) -> Expr:
    """`a || b`."""
    return expression(a) | b


def min(a: Any, b: Any) -> Expr:
    """The smaller of two values."""
    return call("min", a, b)


def max(a: Any, b: Any) -> Expr:
    """The larger of two values."""
    return call("max", a, b)


def pow(a: Any, b: Any) -> Expr:
    """`a` to the power of `b`."""
    return call("pow", a, b)


def select(condition: Any, a: Any, b: Any) -> Expr:
    """`a` where the condition holds, else `b`."""
    return call("select", condition, a, b)


def cast(dtype: Any, a: Any) -> Expr:
    """Conversion to an element type."""
    return call(dtype_name(dtype), a)


def bit_and(a: Any, b: Any) -> Expr:
    """The bits that both integers have."""
    return call("bit_and", a, b)


def bit_or(a: Any, b: Any) -> Expr:
    """The bits that one of two integers has, or both."""
    return call("bit_or", a, b)


def bit_xor(a: Any, b: Any) -> Expr:
    """The bits that exactly one of two integers has."""
    return call("bit_xor", a, b)


def shl(a: Any, b: Any) -> Expr:
    """The integer `a` times 2 to the power of `b`."""
    return call("shl", a, b)


def shr(a: Any, b: Any) -> Expr:
    """The integer `a` divided by 2 to the power of `b`, rounded down."""
    return call("shr", a, b)


def exp(a: Any) -> Expr:
    """e to the power of a."""
    return call("exp", a)


def log(a: Any) -> Expr:
    """The natural logarithm."""
    return call("log", a)


def sqrt(a: Any) -> Expr:
    """The square root."""
    return call("sqrt", a)


def sin(a: Any) -> Expr:
    """The sine."""
    return call("sin", a)


def cos(a: Any) -> Expr:
    """The cosine."""
    return call("cos", a)


def tan(a: Any) -> Expr:
    """The tangent."""
    return call("tan", a)


def asin(a: Any) -> Expr:
    """The inverse of the sine."""
    return call("asin", a)


def acos(a: Any) -> Expr:
    """The inverse of the cosine."""
    return call("acos", a)


def atan(a: Any) -> Expr:
    """The inverse of the tangent."""
    return call("atan", a)


def sinh(a: Any) -> Expr:
    """The hyperbolic sine."""
    return call("sinh", a)


def cosh(a: Any) -> Expr:
    """The hyperbolic cosine."""
    return call("cosh", a)


def tanh(a: Any) -> Expr:
    """The hyperbolic tangent."""
    return call("tanh", a)


def asinh(a: Any) -> Expr:
    """The inverse of the hyperbolic sine."""
    return call("asinh", a)


def acosh(a: Any) -> Expr:
    """The inverse of the hyperbolic cosine."""
    return call("acosh", a)


def atanh(a: Any) -> Expr:
    """The inverse of the hyperbolic tangent."""
    return call("atanh", a)


def erf(a: Any) -> Expr:
    """The error function."""
    return call("erf", a)


def abs(a: Any) -> Expr:
    """The absolute value."""
    return call("abs", a)


def floor(a: Any) -> Expr:
    """The next integer below."""
    return call("floor", a)


def ceil(a: Any) -> Expr:
    """The next integer above."""
    return call("ceil", a)


def round(a: Any) -> Expr:
    """The nearest integer, ties to even."""
    return call("round", a)


def popcount(a: Any) -> Expr:
    """The number of bits of an integer that are one."""
    return call("popcount", a)


def bit_not(a: Any) -> Expr:
    """Every bit of an integer inverted."""
    return call("bit_not", a)
