"""Tables of findings and of anything else: HTML in a notebook and the report, text elsewhere."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from perflib.lab.markup import escape
from perflib.model.escape import visible
from perflib.model.finding import Finding
from perflib.model.sentences import estimate
from perflib.stats.decide import Verdict

__all__ = ["STYLE", "Table", "interval", "table", "verdicts"]

_MARKS: dict[Verdict, str] = {"supported": "●", "refuted": "○", "inconclusive": "◐"}
_COLUMNS = ("subject", "what is so", "verdict", "estimate", "exact claim, and why")

STYLE = """
table.perflib-table { border-collapse: collapse; margin: 0.6em 0; font-size: 0.92em; }
table.perflib-table th, table.perflib-table td { text-align: left !important;
  vertical-align: top; padding: 0.3em 0.7em; white-space: normal; max-width: 46em;
  border-bottom: 1px solid rgba(128, 128, 128, 0.3); }
table.perflib-table th { border-bottom-width: 2px; white-space: nowrap; }
table.perflib-table td.name { white-space: nowrap; }
table.perflib-table td.prose { min-width: 20em; }
table.perflib-table td.number { text-align: right !important; white-space: nowrap;
  font-variant-numeric: tabular-nums; }
table.perflib-table td.command { font-family: ui-monospace, "DejaVu Sans Mono", monospace;
  font-size: 0.85em; overflow-wrap: anywhere; min-width: 14em; }
table.perflib-table td.exact { min-width: 18em; font-size: 0.88em; opacity: 0.8; }
table.perflib-table td.supported { font-weight: 600; white-space: nowrap; }
table.perflib-table td.anomaly.supported { color: #b34700; }
table.perflib-table td.refuted { color: #00695c; white-space: nowrap; }
table.perflib-table td.inconclusive { color: #6b6b6b; font-style: italic; white-space: nowrap; }
"""


@dataclass(frozen=True)
class Table:
    """Rows of words: ``_repr_html_`` for a notebook, ``str`` for a terminal.

    ``classes`` holds the style class of some cells, by row and column.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    classes: dict[tuple[int, int], str]

    def html(self) -> str:
        """The table alone, for a page that has ``STYLE``."""
        head = "".join(f'<th scope="col">{escape(name)}</th>' for name in self.columns)
        body = "".join(
            "<tr>" + "".join(self._cell(i, j, word) for j, word in enumerate(row)) + "</tr>\n"
            for i, row in enumerate(self.rows)
        )
        return (
            f'<table class="perflib-table"><thead><tr>{head}</tr></thead>\n'
            f"<tbody>{body}</tbody></table>"
        )

    def _cell(self, row: int, column: int, word: str) -> str:
        kind = self.classes.get((row, column))
        named = f' class="{escape(kind)}"' if kind else ""
        return f"<td{named}>{escape(word)}</td>"

    def _repr_html_(self) -> str:
        return f"<style>{STYLE}</style>{self.html()}"

    def __repr__(self) -> str:
        lines = [[visible(word) for word in row] for row in (self.columns, *self.rows)]
        widths = [max(map(len, words)) for words in zip(*lines, strict=True)]
        return "\n".join(
            "  ".join(word.ljust(width) for word, width in zip(line, widths, strict=True)).rstrip()
            for line in lines
        )


def table(frame: pd.DataFrame | Iterable[dict[str, Any]]) -> Table:
    """Any data frame or list of records as a table; numbers to the right, nothing for None."""
    frame = frame if isinstance(frame, pd.DataFrame) else pd.DataFrame(list(frame))
    rows = []
    classes = {}
    for i, values in enumerate(frame.itertuples(index=False)):
        rows.append([_word(value) for value in values])
        for j, value in enumerate(values):
            if isinstance(value, int | float) and not isinstance(value, bool):
                classes[i, j] = "number"
    return Table([str(name) for name in frame.columns], rows, classes)


def _word(value: Any) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return f"{value:g}" if isinstance(value, float) else str(value)


def interval(low: float, high: float) -> str:
    """The two ends of an interval in brackets; a dash where there is none."""
    return f"[{low:.2f}, {high:.2f}]" if math.isfinite(low) and math.isfinite(high) else "–"


def verdicts(findings: Iterable[Finding]) -> Table:
    """The findings, one a row: what is so, in plain words, and the exact claim with its reason."""
    rows = []
    classes = {}
    for i, finding in enumerate(findings):
        rows.append(
            [
                finding.subject,
                finding.plain,
                f"{_MARKS[finding.verdict]} {finding.verdict}",
                estimate(finding) if math.isfinite(finding.effect) else "–",
                f"“{finding.claim}.” {finding.reason}",
            ]
        )
        classes[i, 0] = "name"
        classes[i, 1] = "prose"
        classes[i, 2] = f"{finding.kind} {finding.verdict}"
        classes[i, 3] = "number"
        classes[i, 4] = "exact"
    return Table(_COLUMNS, rows, classes)
