"""The exceptions of tilewright: one class for each kind of error, below `Error`."""

from __future__ import annotations

__all__ = [
    "Error",
    "FileError",
    "InternalError",
    "InvalidError",
    "LimitError",
    "ScheduleError",
    "UnsupportedError",
]

#: A statement and the trip numbers of its loops, outermost first.
Instance = tuple[str, tuple[int, ...]]


class Error(Exception):
    """Base of all exceptions of this package."""


class InvalidError(Error, ValueError):
    """The model, the program, the schedule's text or an argument is wrong."""


class UnsupportedError(Error, NotImplementedError):
    """The request is meaningful, but not supported: the message says what, where and why."""


class ScheduleError(Error):
    """A schedule was refused: it would not compute what the program says, or cannot be carried out.

    Attributes:
        reason: one sentence without its end.
        primitive: the primitive as it is written, or `None`.
        instances: two statement instances that would run in the wrong order, the one that comes too early and the one that
            it needs, each as `(statement, (trip, …))`; `None` where the reason is another one.
        place: names of kernels, file, line and column.
        tree: the loops that the primitive is about, marked; or `None`.
        excerpt: the line of the text with the primitive underlined, or `None`.
    """

    reason: str = ""
    primitive: str | None = None
    instances: tuple[Instance, Instance] | None = None
    place: str = ""
    tree: str | None = None
    excerpt: str | None = None


class LimitError(Error):
    """A size or an effort exceeds a limit; the message says which one and what raises it."""


class FileError(Error, OSError):
    """A file or the system refused: the message has the path and the reason."""


class InternalError(Error, RuntimeError):
    """A defect of tilewright: please report it with the model."""
