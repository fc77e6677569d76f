"""What samples of the code segment say: knees, pages, cores, and what explains the time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pandas as pd

from perflib.experiments.code_size import claims
from perflib.experiments.code_size import tables as frames
from perflib.experiments.code_size.analyse import (
    core_findings,
    knee_finding,
    page_finding,
    shared_tables,
    split_finding,
)
from perflib.experiments.code_size.code_segment.compiled import (
    BOTH,
    both_switches,
    same_knee,
    same_knee_simulated,
)
from perflib.experiments.code_size.hypotheses import hypotheses
from perflib.experiments.code_size.reaches import Reaches
from perflib.experiments.code_size.table import COMPILED, CodeTable
from perflib.framework.page_control import PageControl
from perflib.measure.pages.kinds import SMALL_PAGES
from perflib.model.finding import Finding
from perflib.model.run import Run
from perflib.stats.knees import Knees


def findings(run: Run) -> list[Finding]:
    """The knee of each pattern; each core; the pages; what explains the time of large code."""
    machine = run.provenance.get("machine", {})
    table, reaches, control = CodeTable(run.samples), Reaches.of(machine), PageControl.of(run)
    threshold = run.params["threshold_percent"]
    pages = [page_finding(table, pattern, threshold, control) for pattern in table.sweeps]
    main = table.sweeps[0]  # that of Guerri et al., where it was measured
    compared = _compiled(run, table, control) if set(BOTH) <= set(table.patterns) else []
    return [
        *control.findings,
        *compared,
        *_knees(run, table, CodeTable.shared(run.samples), reaches, control),
        *[one for one in pages if one is not None],
        *core_findings(table, main, reaches, threshold, machine),
        *hypotheses(table, main, reaches, threshold, control),
    ]


def _knees(
    run: Run, table: CodeTable, shared: CodeTable | None, reaches: Reaches, control: PageControl
) -> list[Finding]:
    """The chase's knee, against the best control there is; those of the other patterns.

    The chase's also while the sibling is busy, where that was seen, and what the two say together.
    """
    judged = partial(
        knee_finding,
        tolerance=run.params["knee_percent"],
        visible=run.params["visible_percent"],
    )
    prevented = control.prevents(table.huge[0]) if table.huge else None
    on_huge = bool(table.huge) and SMALL_PAGES in table.backings
    ring = table.has_ring_control and (prevented is not None or not on_huge)
    found = []
    if ring or (on_huge and "chase" in table.patterns):

        def knees(of: CodeTable) -> Knees:
            return of.ring_knees() if ring else of.knees("chase", of.huge[0])

        why = None if ring else prevented
        whole, halved = (
            (claims.RING_KNEE, claims.RING_KNEE_SHARED)
            if ring
            else (claims.KNEE, claims.KNEE_SHARED)
        )
        found.append(judged(whole, knees(table), reaches, pattern="chase", prevented=why))
        if shared is not None:
            while_shared = knees(shared)
            both = judged(halved, while_shared, reaches.halved, pattern="chase", prevented=why)
            rows = shared.ring_rows() if ring else shared.page_rows("chase", table.huge[0])
            found += [both, split_finding(knees(table), *rows)]
    for pattern in ("page", "random", COMPILED) if on_huge else ():
        if pattern in table.patterns:
            claim = claims.KNEE_OF_PATTERN if found else claims.KNEE
            known = table.knees(pattern, table.huge[0])
            found.append(judged(claim, known, reaches, pattern=pattern, prevented=prevented))
    return found


def _compiled(run: Run, table: CodeTable, control: PageControl) -> list[Finding]:
    """Is the compiled switch's knee the assembled one's? By times, and by simulated misses."""
    tolerance, found = run.params["knee_percent"], []
    if table.huge and SMALL_PAGES in table.backings:
        prevented = control.prevents(table.huge[0])
        found.append(same_knee(table, tolerance, run.params["visible_percent"], prevented))
    if "simulated" in run.provenance:
        simulated = same_knee_simulated(table, run.provenance["simulated"], tolerance)
        found += [] if simulated is None else [simulated]
    return found


def tables(run: Run) -> dict[str, Callable[[], pd.DataFrame]]:
    """The derived tables; see ``CodeSegment.tables``."""
    table, reaches = CodeTable(run.samples), Reaches.of(run.provenance.get("machine", {}))
    shared = CodeTable.shared(run.samples)
    made: dict[str, Callable[[], pd.DataFrame]] = {
        f"time_{pattern}": partial(frames.times, table, pattern, reaches, shared)
        for pattern in table.sweeps
    }
    made["knees"] = lambda: frames.knees(table, shared)
    if table.has_ring_control:
        made["ring_ratio"] = lambda: frames.ring_ratio(table, shared)
    if set(BOTH) <= set(table.patterns):
        made["compiled"] = lambda: both_switches(table, run.provenance.get("simulated"))
    made |= shared_tables(run, table, table.sweeps[0])
    if "simulated" in run.provenance:
        made["misses"] = lambda: frames.misses(table, run.provenance["simulated"])
    return made
