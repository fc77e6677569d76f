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
from perflib.lab.threads.figures import concurrency_figure, timeline_figure
from perflib.lab.threads.timeline import timeline
from perflib.lab.threads.views import thread_view

__all__ = [
    "Form",
    "Table",
    "concurrency_figure",
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
    "thread_view",
    "timeline",
    "timeline_figure",
    "verdicts",
    "write_report",
]
