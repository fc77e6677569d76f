"""What loads through many pages say: entries of each level, compared with what is reported."""

from __future__ import annotations

import math
from collections.abc import Callable

import pandas as pd

from perflib.experiments.data_tlb import LINES
from perflib.experiments.data_tlb.claims import FIRST, SECOND, WAYS
from perflib.experiments.data_tlb.table import Entries, Rise, TlbTable
from perflib.experiments.data_tlb.trials import page_bytes
from perflib.experiments.data_tlb.ways import Ways, find_ways
from perflib.framework.knees import at_level, no_knee
from perflib.framework.page_control import PageControl
from perflib.measure.pages.kinds import SMALL_PAGES
from perflib.model.finding import Finding
from perflib.model.run import Run
from perflib.model.sentences import size
from perflib.stats.decide import Decision, Reason
from perflib.stats.interval import NO_INTERVAL, Interval, columns, exp, percent
from perflib.stats.intervals import t_intervals
from perflib.stats.knees import Knees

_ROOM = 1.5  # of a level's entries there must be so many times as many pages


def findings(run: Run) -> list[Finding]:
    """The control of page sizes; both levels on pages of 4 KiB, the first on pages of 2 MiB."""
    table, control = TlbTable(run.samples), PageControl.of(run)
    found = list(control.findings)
    for backing in dict.fromkeys((*table.backings[:1], *table.huge[:1])):
        levels = (1, 2) if backing == SMALL_PAGES else (1,)
        prevented = None if backing == SMALL_PAGES else control.prevents(backing)
        found += [_entries(run, table, backing, level, prevented) for level in levels]
    if table.strides:
        found.append(_ways(run, table))
    return found


def rise_of(level: int, rises: list[Rise], entries: Entries) -> Rise | None:
    """The knee that is a level's: the nearest, or by its place where entries are not known.

    ``None``: there is none, or it is nearer to the other level.
    """

    def away(rise: Rise, of: int) -> float:
        return abs(math.log(rise.half.effect / entries.by_level[of]))

    known = entries.by_level
    if level not in known:
        free = [rise for rise in rises if all(rise_of(of, rises, entries) != rise for of in known)]
        place = 0 if len(known) else level - 1
        return free[place] if len(free) > place else None
    if not rises:
        return None
    nearest = min(rises, key=lambda rise: away(rise, level))
    others = [of for of in known if of != level]
    return None if any(away(nearest, of) < away(nearest, level) for of in others) else nearest


def _entries(
    run: Run, table: TlbTable, backing: str, level: int, prevented: Reason | None
) -> Finding:
    """Does a level have the entries that are reported?

    ``supported``: they are within ``knee_percent`` of where the level's rise begins to where half
    of it has come, and the interval excludes half and twice of them. ``refuted``: no knee (it would
    have been seen from ``visible_percent`` on), or the whole interval is elsewhere.
    """
    entries = Entries.of(run.provenance.get("machine", {}), backing)
    known = entries.by_level.get(level)
    knees, rises, most = table.knees(backing), table.rises(backing), table.pages(backing)[-1]
    rise = rise_of(level, rises, entries)
    decision = _decision(run, knees, rise, {} if known is None else {"": known}, most)
    if prevented is not None:
        decision = Decision("inconclusive", (prevented,))
    said = (Reason("published", {"origin": entries.origin}),) if known and entries.origin else ()
    if rise is not None and rise.early:
        said = (*said, Reason("early", {"begins": rise.knee.size.effect}))
    page = size(page_bytes(backing))
    return (FIRST if level == 1 else SECOND).found(
        Decision(decision.verdict, (*decision.reasons, *said)),
        NO_INTERVAL if rise is None else rise.half,
        about={"page": page, "backing": backing, "level": level},
        facts={
            "entries": [str(known)] if known else ["unknown"],
            "tolerance": run.params["knee_percent"],
        },
        evidence={
            "entries": known,
            "begins_pages": [list(one.knee.size) for one in rises],
            "half_pages": [list(one.half) for one in rises],
            "heights_percent": [list(percent(one.knee.height)) for one in rises],
            "p": knees.p,
        },
    )


def _decision(
    run: Run, knees: Knees, rise: Rise | None, known: dict[str, int], most: int
) -> Decision:
    if any(most < _ROOM * entries for entries in known.values()):
        return Decision("inconclusive", (Reason("too_small", {"most": most}),))
    if not knees.knees:
        return no_knee(knees, run.params["visible_percent"])
    if rise is None:
        return Decision("inconclusive", (Reason("one_knee"),))
    begins = rise.knee.size.effect
    return at_level(rise.half, known, run.params["knee_percent"], begins)[0]


def _ways(run: Run, table: TlbTable) -> Finding:
    """Does one set of the first level hold as many pages as ways are reported?"""
    known = Entries.of(run.provenance.get("machine", {}), SMALL_PAGES)
    seen = ways_of(table, known)
    ways, decision = known.ways, seen.decide(known.ways)
    said = [Reason("published", {"origin": known.origin})] if ways and known.origin else []
    return WAYS.found(
        Decision(decision.verdict, (*decision.reasons, *said)),
        seen.fit,
        about={"backing": SMALL_PAGES},
        facts={"ways": ways if ways is not None else "unknown"},
        evidence={
            "ways": ways,
            "sets": seen.sets,
            "fit_pages": {
                str(stride): None if one is None else list(one)
                for stride, one in _fit(table).items()
            },
        },
    )


def ways_of(table: TlbTable, known: Entries) -> Ways:
    """What the pages that fit at each distance say of the first level's sets."""
    rise = rise_of(1, table.rises(SMALL_PAGES), known)
    blurred = rise is not None and rise.early
    return find_ways(None if rise is None else _held(rise), _fit(table), blurred=blurred)


def _held(rise: Rise) -> Interval:
    """The most pages that surely fit, to the fewest that do not."""
    return Interval(rise.half.effect, rise.knee.size.low, rise.half.high)


def _fit(table: TlbTable) -> dict[int, Interval | None]:
    rises = {stride: table.rises(SMALL_PAGES, stride) for stride in table.strides}
    return {stride: _held(found[0]) if found else None for stride, found in rises.items()}


# --- tables --------------------------------------------------------------------------------------


def tables(run: Run) -> dict[str, Callable[[], pd.DataFrame]]:
    """The derived tables; see ``DataTlb.tables``."""
    table = TlbTable(run.samples)
    made = {
        "loads": lambda: _loads(table),
        "knees": lambda: _knees(table),
        "entries": lambda: _known(run, table),
        "page_control": PageControl.of(run).table,
    }
    if table.strides:
        made["ways"] = lambda: _apart(table)
    return made


def _loads(table: TlbTable) -> pd.DataFrame:
    """Ns a load: ``spread_ns``, ``packed_ns`` and the difference ``extra_ns``, with their ends."""
    rows = []
    for backing in table.backings:
        spread, packed = (table.loads(backing, kind).log().intervals() for kind in LINES)
        extra = t_intervals(table.extra_ns(backing))
        rows += [
            {"backing": backing, "pages": pages}
            | columns("spread_ns", exp(one_a_page))
            | columns("packed_ns", exp(side_by_side))
            | columns("extra_ns", more)
            for pages, one_a_page, side_by_side, more in zip(
                table.pages(backing), spread, packed, extra, strict=True
            )
        ]
    return pd.DataFrame(rows)


def _knees(table: TlbTable) -> pd.DataFrame:
    """Each knee, ascending: where it begins and where half of it has come, in pages.

    ``cost_ns``: what it adds to a load at the most pages.
    """
    rows = []
    for backing in table.backings:
        level = table.base_ns(backing) * math.exp(table.knees(backing).offset.effect)
        for rise in table.rises(backing):
            above = level * math.exp(rise.knee.height.effect)
            rows.append((backing, *rise.knee.size, *rise.half, above - level, rise.knee.p))
            level = above
    ends = (name for kind in ("begins_pages", "half_pages") for name in columns(kind, NO_INTERVAL))
    return pd.DataFrame(rows, columns=["backing", *ends, "cost_ns", "p"])


def _apart(table: TlbTable) -> pd.DataFrame:
    """By distance and number of pages, how many times as long a load takes as through few lines.

    ``fit_pages_low`` to ``fit_pages_high``: the most pages that surely fit at that distance, and
    the fewest that do not; NaN where no knee was seen.
    """
    fit = _fit(table)
    rows = [
        {"stride": stride, "pages": pages}
        | columns("ratio", exp(ratio))
        | columns("fit_pages", fit[stride] or NO_INTERVAL)
        for stride in table.strides
        for pages, ratio in zip(
            table.pages(SMALL_PAGES, stride),
            t_intervals(table.log_rise(SMALL_PAGES, stride)),
            strict=True,
        )
    ]
    return pd.DataFrame(rows)


def _known(run: Run, table: TlbTable) -> pd.DataFrame:
    """Entries by size of pages and level, and who says so; none where nobody does."""
    rows = []
    for backing in table.backings:
        known = Entries.of(run.provenance.get("machine", {}), backing)
        rows += [
            (backing, level, entries, known.origin or "CPUID")
            for level, entries in known.by_level.items()
        ]
    return pd.DataFrame(rows, columns=["backing", "level", "entries", "origin"])
