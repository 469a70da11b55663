"""Expressions of the text language, built with Python's operators."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Sequence
from typing import Any, NoReturn

from .errors import InvalidError

__all__ = ["Expr", "Update", "expression", "written"]

#: Binding strengths of operators as in the grammar, loosest first; those of operands are above all.
_OR, _AND, _COMPARISON, _SUM, _PRODUCT, _UNARY, _OPERAND = range(1, 8)

_NAME = re.compile(r"[^\W\d]\w*")


class Expr:
    """A part of a program: an index, a size, an element of an array, or operators and functions of them.

    `+ - * / %` and `**` are arithmetic: integers divide towards zero, and `%` has the sign of the divisor. `== != < <= > >=` compare,
    `& | ~` join conditions. An expression has no value while the program is built: `if` and `and` need one.
    """

    # No subclasses: the comparisons of one would be asked before those of its base, with the operands exchanged.
    __slots__ = ("_array", "_strength", "_text")

    def __init__(self, text: str, strength: int = _OPERAND, array: str | None = None):
        self._text, self._strength = text, strength
        #: Name of the array of which this is an element.
        self._array = array

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"<tilewright expression `{self._text}`>"

    def __add__(self, other: Any) -> Expr:
        return _binary("+", _SUM, self, other)

    def __radd__(self, other: Any) -> Expr:
        return _binary("+", _SUM, other, self)

    def __sub__(self, other: Any) -> Expr:
        return _binary("-", _SUM, self, other)

    def __rsub__(self, other: Any) -> Expr:
        return _binary("-", _SUM, other, self)

    def __mul__(self, other: Any) -> Expr:
        return _binary("*", _PRODUCT, self, other)

    def __rmul__(self, other: Any) -> Expr:
        return _binary("*", _PRODUCT, other, self)

    def __truediv__(self, other: Any) -> Expr:
        return _binary("/", _PRODUCT, self, other)

    def __rtruediv__(self, other: Any) -> Expr:
        return _binary("/", _PRODUCT, other, self)

    def __mod__(self, other: Any) -> Expr:
        return _binary("%", _PRODUCT, self, other)

    def __rmod__(self, other: Any) -> Expr:
        return _binary("%", _PRODUCT, other, self)

    def __pow__(self, other: Any) -> Expr:
        return call("pow", self, other)

    def __rpow__(self, other: Any) -> Expr:
        return call("pow", other, self)

    def __floordiv__(self, other: Any) -> NoReturn:
        raise InvalidError("`//` rounds down, which the language has no operator for: `/` of integers rounds towards zero")

    __rfloordiv__ = __floordiv__

    def __neg__(self) -> Expr:
        return Expr(f"-{_inside(self, _UNARY)}", _UNARY)

    def __pos__(self) -> Expr:
        return self

    def __abs__(self) -> Expr:
        return call("abs", self)

    def __eq__(self, other: object) -> Expr:  # type: ignore[override]
        return _comparison("==", self, other)

    def __ne__(self, other: object) -> Expr:  # type: ignore[override]
        return _comparison("!=", self, other)

    def __lt__(self, other: Any) -> Expr:
        return _comparison("<", self, other)

    def __le__(self, other: Any) -> Expr:
        return _comparison("<=", self, other)

    def __gt__(self, other: Any) -> Expr:
        return _comparison(">", self, other)

    def __ge__(self, other: Any) -> Expr:
        return _comparison(">=", self, other)

    __hash__ = None  # type: ignore[assignment]

    def __and__(self, other: Any) -> Expr:
        return _binary("&&", _AND, self, other)

    def __rand__(self, other: Any) -> Expr:
        return _binary("&&", _AND, other, self)

    def __or__(self, other: Any) -> Expr:
        return _binary("||", _OR, self, other)

    def __ror__(self, other: Any) -> Expr:
        return _binary("||", _OR, other, self)

    def __invert__(self) -> Expr:
        return Expr(f"!{_inside(self, _UNARY)}", _UNARY)

    def __iadd__(self, other: Any) -> Update:  # type: ignore[misc]
        return Update("+=", other)

    def __isub__(self, other: Any) -> Update:  # type: ignore[misc]
        return Update("-=", other)

    def __imul__(self, other: Any) -> Update:  # type: ignore[misc]
        return Update("*=", other)

    def __itruediv__(self, other: Any) -> Update:  # type: ignore[misc]
        return Update("/=", other)

    def __bool__(self) -> NoReturn:
        raise InvalidError(
            f"`{self}` has no value while the program is built: use `select` or `when` instead of `if`, `&` and `|` instead of "
            "`and` and `or`, and two comparisons instead of a chain"
        )

    def __iter__(self) -> NoReturn:
        raise InvalidError(f"`{self}` cannot be iterated: a loop of a program is `each`")


class Update:
    """What `C[m, n] += value` gives to the array: an operator and a value."""

    __slots__ = ("symbol", "value")

    def __init__(self, symbol: str, value: Any):
        self.symbol, self.value = symbol, value


def checked(name: Any) -> str:
    """The name, where it can be one of the language."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidError(f"{name!r} is not a name")
    return name


def expression(value: Any) -> Expr:
    """An expression of an expression, a number, a truth value or the name of an index or a size.

    Raises:
        InvalidError: it is something else.
    """
    if isinstance(value, Expr):
        return value
    if isinstance(value, str):
        return Expr(checked(value))
    if isinstance(value, Update):
        raise InvalidError("an update is not a value: write `C[m, n] += value`, with the element on the left")
    if hasattr(value, "dtype") and getattr(value, "shape", None) == ():
        value = value.item()
    if isinstance(value, bool):
        return Expr("true" if value else "false")
    if isinstance(value, float):
        if math.isnan(value):
            return Expr("nan")
        text = "inf" if math.isinf(value) else repr(abs(value))
        return Expr(f"-{text}", _UNARY) if math.copysign(1, value) < 0 else Expr(text)
    try:
        number = operator.index(value)
    except TypeError:
        raise InvalidError(f"{value!r} is not an expression: it is neither a number nor made of indices, sizes and arrays") from None
    return Expr(str(number), _UNARY if number < 0 else _OPERAND)


def _inside(operand: Any, strength: int) -> str:
    """The text of an operand, in parentheses where it binds less."""
    operand = expression(operand)
    return str(operand) if operand._strength >= strength else f"({operand})"


def _binary(symbol: str, strength: int, left: Any, right: Any) -> Expr:
    return Expr(f"{_inside(left, strength)} {symbol} {_inside(right, strength + 1)}", strength)


def _comparison(symbol: str, left: Any, right: Any) -> Expr:
    return Expr(f"{_inside(left, _COMPARISON + 1)} {symbol} {_inside(right, _COMPARISON + 1)}", _COMPARISON)


def call(function: str, *operands: Any) -> Expr:
    """A function of the language."""
    return Expr(f"{function}({written(operands)})")


def written(expressions: Sequence[Any]) -> str:
    """Expressions with commas."""
    return ", ".join(str(expression(value)) for value in expressions)


#: Names of element types in the language, by NumPy's.
_DTYPES = {
    "float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16", "int64": "i64", "int32": "i32", "int16": "i16",
    "int8": "i8", "uint64": "u64", "uint32": "u32", "uint16": "u16", "uint8": "u8", "bool": "bool",
}  # fmt: skip


def dtype_name(dtype: Any) -> str:
    """The language's name of an element type: of `"f32"`, `"float32"`, `np.float32` or `np.dtype("f4")`.

    Raises:
        InvalidError: the language has no such type.
    """
    name = dtype if isinstance(dtype, str) else getattr(dtype, "name", None) or getattr(dtype, "__name__", None)
    found = _DTYPES.get(name, name)  # type: ignore[arg-type]
    if found not in _DTYPES.values():
        raise InvalidError(f"{dtype!r} is not an element type: there are {', '.join(_DTYPES.values())}")
    return found
