"""Programs of the text language: compiling, schedules, comparing them."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from . import _native
from ._model import Explanation, Model, options_of
from ._schedule import Schedule
from .errors import Error, InvalidError, ScheduleError

__all__ = ["Comparison", "ComparisonRow", "Program", "Schedule", "program"]


class Program:
    """A program of the text language. Calling it compiles it for this processor when that is first needed."""

    def __init__(self, source: dict[str, Any], options: dict[str, Any], names: tuple[str, list[str], list[str]]):
        self._source, self._options = source, options
        self._names = names
        self._model: Model | None = None

    @property
    def name(self) -> str:
        """Name of the program in its text."""
        return self._names[0]

    @property
    def schedules(self) -> list[str]:
        """Names of the schedules that the text has for it."""
        return list(self._names[1])

    @property
    def sizes(self) -> list[str]:
        """Names of the sets of sizes that the text has for it."""
        return list(self._names[2])

    def _with(self, **changes: Any) -> Program:
        source = {key: value for key, value in self._source.items() if key not in ("schedule", "schedules", "untransformed")}
        return Program({**source, **changes}, self._options, self._names)

    def schedule(self, schedule: str | Schedule) -> Program:
        """The program with a schedule: the name of one in its text, the text of one, or a `Schedule`.

        It is proven when the program is compiled, by the first call or by `compile`.
        """
        if isinstance(schedule, Schedule):
            return self._with(schedules=schedule.text(self.name))
        if not isinstance(schedule, str):
            raise InvalidError(f"a schedule is a name, a text or a tilewright.Schedule, not a {type(schedule).__name__}")
        if "{" in schedule:
            return self._with(schedules=schedule)
        if schedule not in self.schedules:
            raise InvalidError(f"`{self.name}` has no schedule `{schedule}`: there are {', '.join(self.schedules) or 'none'}")
        return self._with(schedule=schedule)

    def untransformed(self) -> Program:
        """The program in the order of its text, without tiles and vectors: schedules are compared with it."""
        return self._with(untransformed=True)

    def compile(self, **options: Any) -> Model:
        """Compiles the program; options as those of `tilewright.compile`, beside those of `tilewright.program`.

        Raises:
            ScheduleError: the schedule is refused; its attributes say why.
        """
        dims = {**(self._options.get("dims") or {}), **(options.pop("dims", None) or {})}
        given = {key: value for key, value in options_of(**options).items() if value is not None}
        return Model(self._source, {**self._options, **given, "dims": dims})

    @property
    def model(self) -> Model:
        """The program, compiled with the options that it was made with."""
        if self._model is None:
            self._model = self.compile()
        return self._model

    def __call__(self, *args: Any, out: Any = None, **named: Any) -> Any:
        """Runs the program on arrays in the order of its inputs, or by name. Arrays that it writes are results, too."""
        return self.model(*args, out=out, **named)

    def run(self, feed: Mapping[str, Any], out: Any = None) -> dict[str, Any]:
        """Runs the program on arrays by name; returns all results by name."""
        return self.model.run(dict(feed), out=out)

    def explain(self, *args: Any, **named: Any) -> Explanation | str:
        """As `Model.explain`."""
        return self.model.explain(*args, **named)

    def compare(
        self,
        *args: Any,
        schedules: Sequence[str | Schedule] | Mapping[str, str | Schedule] | None = None,
        seconds: float = 1.0,
        threads: int = 1,
        **named: Any,
    ) -> Comparison:
        """Runs the program on these inputs with each schedule, in turn, for about so many seconds together.

        The order of the text and the compiler's own schedule (`ilp`) always take part; by default all schedules of the text do.
        Results must be those of the order of the text before a time counts. What is refused, or computes something else, is in
        the table with its reason.
        """
        if schedules is None:
            schedules = self.schedules
        if not isinstance(schedules, Mapping):
            schedules = {s.name if isinstance(s, Schedule) else s.split("{")[0].strip(): s for s in schedules}
        programs: dict[str, Any] = {"untransformed": self.untransformed(), "ilp": self._with()}
        for name, schedule in schedules.items():
            programs[name] = schedule
        contest = _Contest(self, args, named, threads)
        for name, candidate in programs.items():
            contest.add(name, candidate)
        return contest.measure(seconds)

    def __reduce__(self) -> tuple:
        return (Program, (self._source, self._options, self._names))

    def __repr__(self) -> str:
        how = {"schedule", "schedules", "untransformed"} & set(self._source)
        return f"<tilewright.Program {self.name!r}{', scheduled' if how else ''}>"


class ComparisonRow(NamedTuple):
    """One schedule of a comparison."""

    name: str
    #: Least time of a run in milliseconds; `None` where it did not take part.
    ms: float | None
    #: Rate, by the program's operations.
    gflops: float | None
    #: Time that the compiler predicted for one thread, in milliseconds.
    predicted_ms: float | None
    #: Why it did not take part.
    reason: str | None = None


class Comparison:
    """Times of one program with several schedules. `str()` is a table, a notebook shows it with bars."""

    def __init__(self, program: str, threads: int, rows: list[ComparisonRow]):
        self.program, self.threads, self.rows = program, threads, rows

    def __getitem__(self, name: str) -> ComparisonRow:
        return next(row for row in self.rows if row.name == name)

    @property
    def best(self) -> ComparisonRow:
        """The fastest schedule."""
        return min((row for row in self.rows if row.ms is not None), key=lambda row: row.ms or 0.0)

    def __str__(self) -> str:
        from ._table import comparison_text

        return comparison_text(self)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from ._table import comparison_html

        return comparison_html(self)


#: Runs of one schedule before it is the next one's turn.
_RUNS = 5


class _Contest:
    """The candidates of a comparison."""

    def __init__(self, program: Program, args: tuple, named: dict[str, Any], threads: int):
        self.program, self.args, self.named, self.threads = program, args, named, threads
        self.expected: dict[str, Any] | None = None
        self.rows: dict[str, ComparisonRow] = {}
        self.models: dict[str, tuple[Model, dict[str, Any]]] = {}
        self.flops = 0

    def add(self, name: str, candidate: Program | Schedule | str) -> None:
        try:
            if not isinstance(candidate, Program):
                candidate = self.program.schedule(candidate)
            model = candidate.compile(threads=self.threads)
            feed = dict(zip((info.name for info in model.inputs), self.args, strict=False)) | self.named
            results = model.run(feed)
        except Error as error:
            reason = error.reason if isinstance(error, ScheduleError) else str(error)
            self.rows[name] = ComparisonRow(name, None, None, None, reason or str(error))
            return
        if self.expected is None:
            self.expected = results
        difference = _difference(self.expected, results)
        if difference is not None:
            self.rows[name] = ComparisonRow(name, None, None, None, difference)
            return
        explanation = model.explain(**feed)
        kernels = explanation.data["kernels"] if isinstance(explanation, Explanation) else []
        self.flops = self.flops or sum(kernel["flops"] for kernel in kernels)
        predicted = sum(kernel["predicted_us"] for kernel in kernels) / 1e3
        self.rows[name] = ComparisonRow(name, None, None, predicted)
        self.models[name] = (model, feed)

    def measure(self, seconds: float) -> Comparison:
        least = dict.fromkeys(self.models, float("inf"))
        end = time.perf_counter() + seconds
        rounds = 0
        while self.models and (rounds < 3 or time.perf_counter() < end):
            for name, (model, feed) in self.models.items():
                least[name] = min(least[name], model._time(feed, _RUNS) / 1e6)
            rounds += 1
        for name, ms in least.items():
            self.rows[name] = self.rows[name]._replace(ms=ms, gflops=self.flops / ms / 1e6 if self.flops else None)
            self.models[name][0].close()
        return Comparison(self.program.name, self.threads, list(self.rows.values()))


def _difference(expected: Mapping[str, Any], found: Mapping[str, Any]) -> str | None:
    """The reason why results are not those of the order of the text; sums may be in another order."""
    for name, right in expected.items():
        result = found[name]
        if right.dtype.kind not in "fV":
            same = np.array_equal(right, result)
        else:
            right, result = right.astype(np.float64), result.astype(np.float64)
            tolerance = 1e-9 if found[name].dtype == np.float64 else 1e-4 if found[name].dtype == np.float32 else 2e-2
            finite = np.abs(right[np.isfinite(right)])
            scale = finite.max() if finite.size else 1.0
            same = np.allclose(right, result, rtol=tolerance, atol=tolerance * scale, equal_nan=True)
        if not same:
            return f"`{name}` is not the result of the order of the text"
    return None


def program(
    text: str | os.PathLike[str],
    *,
    name: str | None = None,
    sizes: str | None = None,
    dims: Mapping[str, int] | None = None,
    **options: Any,
) -> Program:
    """A program of the text language: its text, or the path of a `.tile` file as a `pathlib.Path`.

    Args:
        name: the program of this name; the first by default.
        sizes: a set of sizes of the text, for sizes that inputs do not bind.
        dims: sizes by name.
        options: as those of `tilewright.compile`.

    Raises:
        InvalidError: the text has no meaning; the message has line, column and a caret.
    """
    where = "program"
    if not isinstance(text, (str, os.PathLike)):
        raise InvalidError(f"a program is its text or the pathlib.Path of a file, not a {type(text).__name__}")
    if isinstance(text, os.PathLike):
        where = os.fspath(text)
        try:
            text = Path(text).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            raise InvalidError(f"{where} is not a .tile text: it is not UTF-8") from None
        except OSError as error:
            from .errors import FileError

            raise FileError(str(error)) from None
    programs = _native.program_names(where, text)
    names = next((row for row in programs if name in (None, row[0])), None)
    if names is None:
        if not programs:
            raise InvalidError(f"{where} has no program: one begins with `def` or `loop`")
        raise InvalidError(f"there is no program `{name}`: there are {', '.join(row[0] for row in programs)}")
    if sizes is not None and sizes not in names[2]:
        raise InvalidError(f"`{names[0]}` has no sizes `{sizes}`: there are {', '.join(names[2]) or 'none'}")
    source = {"text": text, "name": where, "program": names[0], "sizes": sizes}
    given = {key: value for key, value in options_of(dims=dims, **options).items() if value is not None}
    return Program(source, given, names)
