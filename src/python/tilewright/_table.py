"""Tables of comparisons and reports, as text and as HTML."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._model import Explanation
    from ._program import Comparison

_STYLE = "text-align:left;padding:2px 12px 2px 0"
_NUMBER = "text-align:right;padding:2px 12px 2px 0"


def _number(value: float | None, digits: int = 3) -> str:
    return "" if value is None else f"{value:.{digits}f}" if value < 100 else f"{value:.1f}"


def _title(comparison: Comparison) -> str:
    threads = "1 thread" if comparison.threads == 1 else f"{comparison.threads} threads"
    return f"{comparison.program}, {threads}, least time of a run"


def comparison_text(comparison: Comparison) -> str:
    """The rows of a comparison, aligned."""
    head = ("schedule", "ms", "GFLOP/s", "predicted ms", "")
    rows = [
        (row.name, _number(row.ms), _number(row.gflops, 1), _number(row.predicted_ms), row.reason or "")
        for row in comparison.rows
    ]
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(4)]
    lines = [_title(comparison)]
    for row in [head, *rows]:
        cells = [row[0].ljust(widths[0]), *(row[i].rjust(widths[i]) for i in (1, 2, 3)), row[4]]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def _page(title: str, head: list[str], rows: list[str]) -> str:
    cells = "".join(f'<th style="{_STYLE}">{escape(cell)}</th>' for cell in head)
    return f"<table><caption>{escape(title)}</caption><tr>{cells}</tr>{''.join(rows)}</table>"


def comparison_html(comparison: Comparison) -> str:
    """The rows of a comparison with a bar for each time."""
    longest = max((row.ms for row in comparison.rows if row.ms is not None), default=1.0)
    rows = []
    for row in comparison.rows:
        if row.ms is None:
            last = escape(row.reason or "")
        else:
            width = max(1, round(240 * row.ms / longest))
            last = f'<div style="background:#4878a8;height:0.8em;width:{width}px"></div>'
        numbers = "".join(
            f'<td style="{_NUMBER}">{cell}</td>'
            for cell in (_number(row.ms), _number(row.gflops, 1), _number(row.predicted_ms))
        )
        rows.append(f'<tr><td style="{_STYLE}">{escape(row.name)}</td>{numbers}<td style="{_STYLE}">{last}</td></tr>')
    return _page(_title(comparison), ["schedule", "ms", "GFLOP/s", "predicted ms", ""], rows)


def explanation_html(explanation: Explanation) -> str:
    """The kernels of a report."""
    data = explanation.data
    parts = data.get("parts")
    kernels = data.get("kernels") or [k for part in parts or [] for k in (part.get("report") or {}).get("kernels", [])]
    longest = max((kernel["predicted_us"] for kernel in kernels), default=1.0) or 1.0
    rows = []
    for kernel in kernels:
        width = round(240 * kernel["predicted_us"] / longest)
        operators = ", ".join(kernel["operators"])
        rows.append(
            f'<tr><td style="{_STYLE}" title="{escape(operators)}">{escape(kernel["name"])}</td>'
            f'<td style="{_NUMBER}">{_number(kernel["predicted_us"], 1)}</td>'
            f'<td style="{_STYLE}"><div style="background:#4878a8;height:0.8em;width:{width}px"></div></td></tr>'
        )
    return _page(f"{data.get('model')} for {data.get('target')}", ["kernel", "predicted µs", ""], rows)
