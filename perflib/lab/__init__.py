"""What a person sees: figures, tables, the form and the report.

The only part of perflib that imports matplotlib, seaborn and ipywidgets at import time.
"""

from __future__ import annotations

from perflib.lab.flamegraph import flame_figure, flame_graph
from perflib.lab.form import Form, form
from perflib.lab.ledger import ledger
from perflib.lab.notebook import parameters, run
from perflib.lab.report import write_report
from perflib.lab.summary import summary
from perflib.lab.tables import Table, table, verdicts
from perflib.lab.theme import figures, png, show, themed

__all__ = [
    "Form",
    "Table",
    "figures",
    "flame_figure",
    "flame_graph",
    "form",
    "ledger",
    "parameters",
    "png",
    "run",
    "show",
    "summary",
    "table",
    "themed",
    "verdicts",
    "write_report",
]
