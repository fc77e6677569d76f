"""What samples of random calls say: cores, caches, pages, and what explains the time."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd

from perflib.experiments.code_size import tables as frames
from perflib.experiments.code_size.analyse import (
    core_findings,
    page_finding,
    shared_tables,
    step_finding,
)
from perflib.experiments.code_size.claims import STEP, STEP_SHARED
from perflib.experiments.code_size.hypotheses import hypotheses
from perflib.experiments.code_size.reaches import Reaches
from perflib.experiments.code_size.table import CodeTable
from perflib.framework.page_control import PageControl
from perflib.model.finding import Finding
from perflib.model.run import Run


def findings(run: Run) -> list[Finding]:
    """Each core; each cache; the pages; and what explains the time of large code."""
    machine = run.provenance.get("machine", {})
    table, reaches, control = CodeTable(run.samples), Reaches.of(machine), PageControl.of(run)
    threshold, pattern = run.params["threshold_percent"], table.patterns[0]
    found = [*control.findings, *core_findings(table, pattern, reaches, threshold, machine)]
    shared = CodeTable.shared(run.samples)
    states = [(STEP, table)] + ([] if shared is None else [(STEP_SHARED, shared)])
    more = [
        step_finding(claim, of, pattern, *cache, threshold)
        for claim, of in states
        for cache in reaches.caches.items()
    ]
    more.append(page_finding(table, pattern, threshold, control))
    found += [one for one in more if one is not None]
    return found + hypotheses(table, pattern, reaches, threshold, control)


def tables(run: Run) -> dict[str, Callable[[], pd.DataFrame]]:
    """The derived tables; see ``RandomCalls.tables``."""
    table, reaches = CodeTable(run.samples), Reaches.of(run.provenance.get("machine", {}))
    pattern, shared = table.patterns[0], CodeTable.shared(run.samples)
    return {
        "time_per_call": lambda: frames.times(table, pattern, reaches, shared),
        "miss_costs": lambda: frames.miss_costs(table, pattern, reaches),
        **shared_tables(run, table, pattern),
    }
