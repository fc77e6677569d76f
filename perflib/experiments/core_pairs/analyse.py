"""Findings about any matrix of cores: its groups, what the kernel names, single cores."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perflib.experiments.core_pairs.cells import Cells
from perflib.experiments.core_pairs.claims import GROUPS, KERNEL, PARTNERS, SLOWER
from perflib.machine.cpulist import format_cpus, parse_cpus
from perflib.model.finding import Finding
from perflib.model.run import Run
from perflib.stats.clusters import Groups
from perflib.stats.decide import Decision, Reason, decide
from perflib.stats.interval import Interval, columns, percent, percent_of
from perflib.stats.intervals import Floats, t_interval

Labels = NDArray[np.int64]
_KINDS = ("node", "package", "die", "last-level cache", "core")
_HALVES = 4  # cores, of which two and two can be groups
_LEAST_SHARE = 0.5  # of the pairs of cores: of a sparser matrix a bound would not hold
_ONE_GROUP = 1.0
_MIN_PARTNERS = 5  # cores that one was measured with, for its pairs to show their scatter


def found_groups(cells: Cells, run: Run) -> Groups:
    """The groups of which all claims here speak."""
    return cells.groups(least=math.log1p(run.params["threshold_percent"] / 100))


# --- groups --------------------------------------------------------------------------------------


def groups_finding(
    cells: Cells, run: Run, what: str, classes: Sequence[Mapping[str, Any]] | None = None
) -> Finding:
    """How many groups of cores are there, by the latency of ``what``?

    The effect is their number. ``supported``: several; ``refuted``: one, and what could hide in
    the noise is below the threshold; else ``inconclusive``. ``classes``: as of ``class_records``,
    with whatever else is known of them.
    """
    found = found_groups(cells, run)
    latencies = {"latencies": _latencies(cells, found), "latency_unit": cells.columns.unit}
    decision, bound = _shown(cells, found, run.params["threshold_percent"], latencies)
    classes = class_records(cells, found) if classes is None else classes
    return GROUPS.found(
        decision,
        Interval(float(found.count), math.nan, math.nan),
        about={"what": what},
        threshold=_ONE_GROUP,
        facts={"apart": run.params["threshold_percent"], "bound": bound, **latencies},
        evidence={
            "unit": cells.columns.unit,
            "groups": _by_cpu(cells, found.labels),
            "classes": classes,
            "hierarchy": [_by_cpu(cells, level) for level in found.hierarchy],
            "partners": [list(pair) for pair in found.partners],
            "cpus": list(cells.cpus),
            "membership": found.membership,
            "p": found.p,
            "bound_percent": bound,
        },
    )


def class_records(cells: Cells, found: Groups) -> list[dict[str, Any]]:
    """The classes of distance, from near to far: latency with its interval, number of pairs."""
    pairs = found.membership[np.triu_indices(len(cells.cpus), 1)]
    return [
        columns("latency", near) | {"pairs": int((pairs == number).sum())}
        for number, near in enumerate(found.classes)
    ]


def _latencies(cells: Cells, found: Groups) -> list[float]:
    """What distinguishes the groups: of single cores, the first is that of each to itself."""
    own = cells.matrix.diagonal()[found.labels >= 0]
    near = [float(np.exp(np.log(own).mean()))] if _single(found) else []
    return [*near, *(one.effect for one in found.classes)]


def _single(found: Groups) -> bool:
    """Whether each group is one core."""
    return 1 < found.count == int((found.labels >= 0).sum())


def _shown(
    cells: Cells, found: Groups, apart: float, latencies: Mapping[str, Any]
) -> tuple[Decision, float]:
    """Does the matrix show several groups? And what it can hide, in percent (NaN: anything)."""
    if found.count > 1:
        code = "far" if _single(found) else "classes"
        return Decision("supported", (Reason(code, {**latencies, "p": found.p}),)), math.nan
    bound = percent_of(found.bound)
    to_themselves = cells.matrix.diagonal()[found.labels >= 0]
    if not math.isfinite(bound) or to_themselves.size < 2:
        pair = to_themselves.size == 2 and np.isnan(to_themselves).any()
        code = "pair" if pair else "too_few"
        return Decision("inconclusive", (Reason(code),)), math.nan
    share = _share_of_pairs(cells)
    if share < _LEAST_SHARE:
        return Decision("inconclusive", (Reason("sparse", {"share": share}),)), math.nan
    verdict = decide(Interval(0.0, 0.0, bound), apart).verdict
    reasons = [Reason(_bounded(cells, found), {"bound": bound})]
    if verdict == "inconclusive":
        reasons.append(Reason("wide", {"apart": apart}))
    return Decision(verdict, tuple(reasons)), bound


def _bounded(cells: Cells, found: Groups) -> str:
    """Of what the bound is; see ``Groups.bound``."""
    chosen = found.labels >= 0
    if chosen.sum() >= _HALVES:
        return "halves"
    return "own" if np.isfinite(cells.matrix.diagonal()[chosen]).all() else "cells"


def _share_of_pairs(cells: Cells) -> float:
    """How many pairs of cores were measured, in one direction at least."""
    known = cells.known()
    return float((known | known.T)[np.triu_indices(len(known), 1)].mean())


def _by_cpu(cells: Cells, labels: Labels) -> dict[str, int]:
    return {str(cpu): int(label) for cpu, label in zip(cells.cpus, labels, strict=True)}


# --- single cores --------------------------------------------------------------------------------


def core_findings(cells: Cells, run: Run, doing: str, *, both: bool = False) -> list[Finding]:
    """Is a core slower than usual in its group? And of which cores are there too few pairs?

    ``doing`` continues "cpu3 is slower than the other cores of its group ...": for example "in
    loading memory". ``both``: see ``Cells.cores``. The distances of its pairs are a core's, too:
    one of few partners is not judged, and of the others the pairs have to agree.
    """
    threshold = run.params["threshold_percent"]
    places = run.provenance.get("machine", {}).get("cpus", ())
    where = {place["cpu"]: place["where"] for place in places}
    compared, away = cells.cores(found_groups(cells, run), both=both)
    findings = _partners(cells, away, both=both)
    few = findings[0].facts["few"] if findings else []
    for cpu, effect, column in zip(cells.cpus, compared.effects, away.T, strict=True):
        if f"cpu{cpu}" in few:
            continue
        decision = effect.decide(threshold)
        known = column[np.isfinite(column)]
        pairs = percent(t_interval(known))
        if (
            decision.verdict == "supported"
            and len(known) >= _MIN_PARTNERS
            and (pairs.low <= threshold)
        ):
            decision = Decision("inconclusive", (Reason("few_pairs", {"pairs": pairs}),))
        if decision.verdict == "supported" and cpu in where:
            decision = effect.decide(threshold, [Reason("where", {"where": where[cpu]})])
        evidence = {
            "p_holm": effect.p_holm,
            "segments_percent": list(effect.segments),
            "where": where.get(cpu),
        }
        findings.append(
            SLOWER.found(
                decision,
                effect.slowdown,
                about={"cpu": cpu},
                threshold=threshold,
                facts={"doing": doing},
                evidence=evidence,
            )
        )
    return findings


def _partners(cells: Cells, away: Floats, *, both: bool) -> list[Finding]:
    """Of a matrix that is not whole, of which cores there are too few pairs."""
    known = cells.known() | np.eye(len(away), dtype=bool)
    if known.all():
        return []
    partners = np.isfinite(away).sum(axis=0)
    enough = partners >= min(_MIN_PARTNERS, len(away) - 1)
    few = [f"cpu{cpu}" for cpu, there in zip(cells.cpus, enough, strict=True) if not there]
    return [
        PARTNERS.found(
            Decision("refuted" if few else "supported", (Reason("half" if both else "one_way"),)),
            Interval(100 * float(enough.mean()), math.nan, math.nan),
            facts={"few": few, "share": _share(known)},
            evidence={"partners": dict(zip(map(str, cells.cpus), partners.tolist(), strict=True))},
        )
    ]


def _share(known: NDArray[np.bool_]) -> float:
    """Of the cells off the diagonal."""
    return float(known[~np.eye(len(known), dtype=bool)].mean())


# --- what the kernel names -----------------------------------------------------------------------


def kernel_finding(cells: Cells, run: Run, shown: Finding, kind: str = "node") -> Finding | None:
    """Are the groups of cores that were found among those that the kernel names?

    Parameters
    ----------
    cells
        The matrix.
    run
        Its provenance describes the machine.
    shown
        What ``groups_finding`` says: where the data cannot show groups, nothing is compared.
    kind
        Of which groups one is expected where one group was found: ``node``, ``package``, ``die``
        or ``last-level cache``.

    Returns
    -------
    The effect is the share of pairs of cores that are together or apart in both, for the kind of
    the kernel's groups that fits best. ``None`` where it is not known what the kernel names.
    """
    found = found_groups(cells, run)
    named = _named_groups(cells, run.provenance.get("machine", {}))
    chosen = np.flatnonzero(found.labels >= 0)
    if kind not in named or chosen.size < 2:
        return None
    named = {name: labels[chosen] for name, labels in named.items()}
    if len(set(named.get("core", ()))) == chosen.size:
        named.pop("core")  # that two cores are two cores says nothing of groups
    levels = [level[chosen] for level in found.hierarchy] or [found.labels[chosen]]
    alike = {name: _agreement(levels[0], labels) for name, labels in named.items()}
    best = kind if found.count == 1 else max(alike, key=lambda name: alike[name])
    counts = {name: len(set(labels.tolist())) for name, labels in named.items()}
    facts = {
        "count": found.count,
        "kind": best,
        "named": [f"{count} by {name}" for name, count in counts.items()],
    }
    decision = Decision("inconclusive", shown.reasons)
    if shown.verdict != "inconclusive":
        same = alike[best] == 1
        reasons = [Reason("alike" if same else "unlike")]
        if cores := _measured_cores(cells, run):
            reasons.append(Reason("measured", {"cores": cores}))
        decision = Decision("supported" if same else "refuted", tuple(reasons))
    return KERNEL.found(
        decision,
        Interval(100 * alike[best], math.nan, math.nan),
        about=shown.about,
        facts=facts,
        evidence={
            "kernel": {
                name: [_cpus_of(cells, chosen[labels == one]) for one in np.unique(labels)]
                for name, labels in named.items()
            },
            "agreement_percent": {name: 100 * share for name, share in alike.items()},
            "levels": [
                {
                    "groups": int(level.max()) + 1,
                    "equal_to": [name for name in named if _agreement(level, named[name]) == 1],
                }
                for level in levels
            ],
        },
    )


def _cpus_of(cells: Cells, places: Labels) -> str:
    return format_cpus(cells.cpus[place] for place in places)


def _named_groups(cells: Cells, machine: Mapping[str, Any]) -> dict[str, Labels]:
    """The group of each core as the kernel names it; only kinds that are known of all cores."""
    known = {place["cpu"]: place for place in machine.get("cpus", ())}
    if not set(cells.cpus) <= set(known):
        return {}
    shared = last_level_caches(machine)
    keys: dict[str, list[Any]] = {
        "node": [known[cpu]["node"] for cpu in cells.cpus],
        "package": [known[cpu]["package"] for cpu in cells.cpus],
        "die": [(known[cpu]["package"], known[cpu]["die"]) for cpu in cells.cpus],
        "last-level cache": [shared.get(cpu) for cpu in cells.cpus],
        "core": [tuple(kernel_siblings(known[cpu])) for cpu in cells.cpus],
    }
    return {
        kind: np.unique([str(key) for key in keys[kind]], return_inverse=True)[1]
        for kind in _KINDS
        if not any(key is None or None in np.atleast_1d(key) for key in keys[kind])
    }


def _measured_cores(cells: Cells, run: Run) -> list[str]:
    """Which of the CPUs are of one core as measured, though the kernel says of several."""
    machine = run.provenance.get("machine", {})
    cores = {
        tuple(sorted({*place["siblings"]} & {*cells.cpus}))
        for place in machine.get("cpus", ())
        if not {*place["siblings"]} <= {*kernel_siblings(place)}
    }
    return [f"cpu{format_cpus(core)}" for core in sorted(cores) if len(core) > 1]


def kernel_siblings(place: Mapping[str, Any]) -> Sequence[int]:
    """The threads of a CPU's core as the kernel has them, whatever was measured."""
    found: Sequence[int] | None = place.get("kernel_siblings")
    return place["siblings"] if found is None else found


def last_level_caches(machine: Mapping[str, Any]) -> dict[int, int]:
    """The first CPU that shares the last-level cache of each CPU."""
    unified = [cache for cache in machine.get("caches", ()) if cache["kind"] == "unified"]
    last = max((int(cache["level"]) for cache in unified), default=None)
    lists = [text for cache in unified if cache["level"] == last for text in cache["shared_by"]]
    return {cpu: min(parse_cpus(text)) for text in lists for cpu in parse_cpus(text)}


def _agreement(one: Labels, other: Labels) -> float:
    """The share of pairs that both put together, or both put apart (Rand's index)."""
    above = np.triu_indices(len(one), 1)
    together = (one[:, None] == one)[above], (other[:, None] == other)[above]
    return float((together[0] == together[1]).mean())
