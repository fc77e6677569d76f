"""Claims about matrices of cores: groups, single cores, and the kernel's word."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from perflib.experiments.core_pairs.cells import Cells
from perflib.framework.verdicts import slowness_verdict, threshold_verdict
from perflib.machine.cpulist import format_cpus, parse_cpus
from perflib.model.finding import Finding, Verdict
from perflib.stats.clusters import Groups
from perflib.stats.interval import percent

__all__ = [
    "core_findings",
    "distances_finding",
    "found_groups",
    "groups_finding",
    "kernel_finding",
    "own_finding",
]

Labels = NDArray[np.int64]
_KINDS = ("node", "package", "die", "last-level cache", "core")
_FEWEST = 4  # cores, of which two and two can be groups
_LEAST_SHARE = 0.5  # of the pairs of cores: of a sparser matrix a bound would not hold


def found_groups(cells: Cells, threshold_percent: float) -> Groups:
    """The groups of which all claims here speak."""
    return cells.groups(least=math.log1p(threshold_percent / 100))


def groups_finding(cells: Cells, what: str, unit: str, threshold_percent: float) -> Finding:
    """How many groups of cores are there, by the latency of ``what`` (in ``unit``)?

    The effect is their number. ``supported``: several; ``refuted``: one, and what could hide in
    the noise is below the threshold; else ``inconclusive``.
    """
    found = found_groups(cells, threshold_percent)
    bound = 100 * math.expm1(found.bound)
    verdict, reason = _groups_verdict(found, bound, threshold_percent)
    if found.count == 1 and _share_of_pairs(cells) < _LEAST_SHARE:
        verdict, bound = "inconclusive", math.nan
        reason = (
            f"One group, by {100 * _share_of_pairs(cells):.0f} % of the pairs of cores: too few "
            "cells were measured to bound what they hide."
        )
    pairs = found.membership[np.triu_indices(len(cells.cpus), 1)]
    classes = [
        {
            "latency": near.effect,
            "low": near.low,
            "high": near.high,
            "pairs": int((pairs == number).sum()),
        }
        for number, near in enumerate(found.classes)
    ]
    evidence = {
        "unit": unit,
        "groups": _by_cpu(cells, found.labels),
        "classes": classes,
        "hierarchy": [_by_cpu(cells, level) for level in found.hierarchy],
        "partners": [list(pair) for pair in found.partners],
        "cpus": list(cells.cpus),
        "membership": found.membership,
        "p": found.p,
        "bound_percent": bound,
    }
    return Finding(
        f"by the latency of {what}, the cores are several groups, more than "
        f"{threshold_percent:g} % apart",
        "groups", verdict, float(found.count), math.nan, math.nan, "groups",
        reason=reason, evidence=evidence,
    )  # fmt: skip


def _share_of_pairs(cells: Cells) -> float:
    """How many pairs of cores were measured, in one direction at least."""
    known = cells.known()
    return float((known | known.T)[np.triu_indices(len(known), 1)].mean())


def _groups_verdict(found: Groups, bound: float, threshold: float) -> tuple[Verdict, str]:
    if found.count > 1:
        near = ", ".join(f"{one.effect:.0f}" for one in found.classes)
        return "supported", f"The classes of distance are {near} (p = {found.p:.2g})."
    if not math.isfinite(bound):
        return "inconclusive", "It takes two cores or more, in two blocks of time or more."
    if (found.labels >= 0).sum() >= _FEWEST:
        said = f"that two halves of the cores are apart is bounded by {bound:.1f} %"
    else:
        said = f"no cell is farther than {bound:.1f} % from the mean of all"
    if bound < threshold:
        return "refuted", f"One group: {said}."
    return "inconclusive", f"One group, but all that can be said is: {said}."


def _by_cpu(cells: Cells, labels: Labels) -> dict[str, int]:
    return {str(cpu): int(label) for cpu, label in zip(cells.cpus, labels, strict=True)}


# --- single cores --------------------------------------------------------------------------------


def core_findings(
    cells: Cells,
    what: str,
    threshold_percent: float,
    side: Literal["from", "to"] = "to",
    where: Mapping[int, str] | None = None,
) -> list[Finding]:
    """Of each core: is ``what`` slower than usual in its group when this core asks (holds)?

    ``what`` goes on from "cpu3 is more than 2 % slower than the other cores of its group ...": for
    example "in loading memory". ``where``: where each core lies.
    """
    found = found_groups(cells, threshold_percent)
    compared = cells.cores(side, found)
    suffix = "" if side == "to" else " held"
    findings = []
    for cpu, effect in zip(cells.cpus, compared.effects, strict=True):
        verdict, reason = slowness_verdict(effect, threshold_percent)
        evidence = {
            "p_holm": effect.p_holm,
            "segments_percent": list(effect.segments),
            "where": (where or {}).get(cpu),
        }
        claim = (
            f"cpu{cpu} is more than {threshold_percent:g} % slower than the other cores of its "
            f"group {what}"
        )
        findings.append(
            Finding(
                claim, f"cpu{cpu}{suffix}", verdict, *effect.slowdown, unit="percent",
                reason=reason, evidence=evidence,
            )
        )  # fmt: skip
    return findings


def own_finding(cells: Cells, what: str, threshold_percent: float) -> Finding | None:
    """Is what a core itself holds nearer than what others of its group hold? ``None``: unknown."""
    apart = percent(found_groups(cells, threshold_percent).own)
    if not math.isfinite(apart.effect):
        return None
    verdict, reason = threshold_verdict(apart, threshold_percent)
    claim = f"{what} is more than {threshold_percent:g} % farther than a core's own"
    return Finding(claim, "own", verdict, *apart, unit="percent", reason=reason)


# --- the kernel's word ---------------------------------------------------------------------------


def kernel_finding(
    cells: Cells, machine: Mapping[str, Any], threshold_percent: float, kind: str = "node"
) -> Finding | None:
    """Are the groups of cores that were found among those that the kernel names?

    Parameters
    ----------
    cells, threshold_percent
        As for ``groups_finding``.
    machine
        The description of the machine in a run's provenance.
    kind
        Of which groups one is expected where one group was found: ``node``, ``package``, ``die``,
        ``last-level cache`` or ``core`` (its hardware threads).

    Returns
    -------
    The effect is the share of pairs of cores that are together or apart in both, for the kind of
    the kernel's groups that fits best. ``None`` where it is not known what the kernel says.
    """
    found = found_groups(cells, threshold_percent)
    named = _named_groups(cells, machine)
    chosen = np.flatnonzero(found.labels >= 0)
    if kind not in named or chosen.size < 2:
        return None
    named = {name: labels[chosen] for name, labels in named.items()}
    levels = [level[chosen] for level in found.hierarchy] or [found.labels[chosen]]
    alike = {name: _agreement(levels[0], labels) for name, labels in named.items()}
    best = kind if found.count == 1 else max(alike, key=lambda name: alike[name])
    counts = {name: len(set(labels.tolist())) for name, labels in named.items()}
    if alike[best] == 1:
        verdict: Verdict = "supported"
        reason = f"Found {_number(found.count, 'group')}; the kernel names "
        reason += f"{_number(counts[best], best)}, of the same cores."
    elif found.count == 1 and not 100 * math.expm1(found.bound) < threshold_percent:
        verdict = "inconclusive"
        reason = f"The kernel names {_number(counts[kind], kind)}, but the noise could hide them."
    else:
        verdict = "refuted"
        reason = f"Found {_number(found.count, 'group')}; the kernel names "
        reason += ", ".join(_number(count, name) for name, count in counts.items()) + "."
    evidence = {
        "kernel": {
            name: [_cpus_of(cells, chosen[labels == one]) for one in sorted(set(labels.tolist()))]
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
    }
    return Finding(
        "the groups of cores that were found are among those that the kernel names",
        "kernel", verdict, 100 * alike[best], math.nan, math.nan, "percent of pairs",
        reason=reason, evidence=evidence,
    )  # fmt: skip


def _number(count: int, name: str) -> str:
    return f"{count} {name}{'' if count == 1 else 's'}"


def _cpus_of(cells: Cells, places: Labels) -> str:
    return format_cpus(cells.cpus[place] for place in places)


def _named_groups(cells: Cells, machine: Mapping[str, Any]) -> dict[str, Labels]:
    """The group of each core by the kernel's word; only kinds that are known of all cores."""
    known = {place["cpu"]: place for place in machine.get("cpus", ())}
    if not set(cells.cpus) <= set(known):
        return {}
    keys: dict[str, list[Any]] = {
        "node": [known[cpu]["node"] for cpu in cells.cpus],
        "package": [known[cpu]["package"] for cpu in cells.cpus],
        "die": [(known[cpu]["package"], known[cpu]["die"]) for cpu in cells.cpus],
        "core": [tuple(known[cpu]["siblings"]) for cpu in cells.cpus],
    }
    shared = [cache for cache in machine.get("caches", ()) if cache["kind"] == "unified"]
    if shared:
        last = max(shared, key=lambda cache: int(cache["level"]))["level"]
        lists = [text for cache in shared if cache["level"] == last for text in cache["shared_by"]]
        group_of = {cpu: text for text in lists for cpu in parse_cpus(text)}
        keys["last-level cache"] = [group_of.get(cpu) for cpu in cells.cpus]
    return {
        kind: np.unique([str(key) for key in keys[kind]], return_inverse=True)[1]
        for kind in _KINDS
        if kind in keys and not any(key is None or None in np.atleast_1d(key) for key in keys[kind])
    }


def _agreement(one: Labels, other: Labels) -> float:
    """The share of pairs that both put together, or both put apart (Rand's index)."""
    above = np.triu_indices(len(one), 1)
    together = (one[:, None] == one)[above], (other[:, None] == other)[above]
    return float((together[0] == together[1]).mean())


def distances_finding(
    cells: Cells, machine: Mapping[str, Any], threshold_percent: float
) -> Finding | None:
    """Is what the kernel calls farther never nearer?

    The kernel's distances are those that the firmware claims (ACPI's SLIT, as ``numactl
    --hardware`` shows them). Each two pairs of cores whose distances differ and whose classes do,
    too, are compared; the effect is the share that both put into the same order.

    Returns
    -------
    ``None`` where the kernel knows of one distance only.
    """
    place_of = {node["node"]: place for place, node in enumerate(machine.get("nodes", ()))}
    claimed = [node["distances"] for node in machine.get("nodes", ())]
    node_of = {place["cpu"]: place["node"] for place in machine.get("cpus", ())}
    places = [place_of.get(node_of.get(cpu), -1) for cpu in cells.cpus]
    if -1 in places or any(len(row) != len(claimed) for row in claimed):
        return None
    distance = np.array(claimed)[np.ix_(places, places)]
    found = found_groups(cells, threshold_percent)
    paired = found.membership >= 0
    np.fill_diagonal(paired, val=False)
    kinds = sorted(set(distance[paired].tolist()))
    if len(kinds) < 2:
        return None
    counts = np.array(
        [
            [(paired & (distance == far) & (found.membership == n)).sum() for n in
             range(len(found.classes))]
            for far in kinds
        ],
        dtype=np.float64,
    )  # fmt: skip
    same, against = _orders(counts)
    share = 100 * same / (same + against) if same + against else math.nan
    verdict: Verdict = "inconclusive" if not same + against else "refuted"
    reason = "One class of distance was found: there is nothing to compare."
    if same + against:
        reason = f"{100 - share:.2g} % of the comparisons are the other way round."
    if same and not against:
        verdict, reason = "supported", "Where it says farther, it is at least as far."
    evidence = {
        "classes_at_distance": {
            str(far): [found.classes[n].effect for n in np.flatnonzero(row)]
            for far, row in zip(kinds, counts, strict=True)
        }
    }
    return Finding(
        "cores that are farther apart by the kernel's distances are never nearer",
        "distances", verdict, share, math.nan, math.nan, "percent of comparisons",
        reason=reason, evidence=evidence,
    )  # fmt: skip


def _orders(counts: NDArray[np.float64]) -> tuple[float, float]:
    """How many comparisons go the same way in a table of counts ``[distance, class]``, or not."""

    def beyond(table: NDArray[np.float64]) -> float:
        """Of each pair of entries, one lower and to the right of the other."""
        rows = range(len(table) - 1)
        columns = range(table.shape[1] - 1)
        return float(
            sum(table[i, j] * table[i + 1 :, j + 1 :].sum() for i in rows for j in columns)
        )

    return beyond(counts), beyond(counts[:, ::-1])
