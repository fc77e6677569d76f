"""Claims about the size of the environment, the link order, and random addresses."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from perflib.experiments.aliasing.environment.table import AliasEnvTable
from perflib.framework.verdicts import slowness_verdict, threshold_verdict
from perflib.model.finding import Finding, Verdict
from perflib.stats.compare import compare_cores
from perflib.stats.interval import Interval, percent
from perflib.stats.intervals import share_interval, t_interval

__all__ = ["findings"]

_NONE = Interval(math.nan, math.nan, math.nan)
_HALF = 50.0  # percent


def findings(table: AliasEnvTable, threshold: float) -> list[Finding]:
    """All that the samples allow."""
    found = [_environment(table, threshold), _simulated(table)] if table.sizes else []
    if len(table.orders) > 1:
        found += [_link_order(table, threshold), *_order_aliases(table, threshold)]
    if table.has_aslr:
        found.append(_aslr(table))
    return found


def _environment(table: AliasEnvTable, threshold: float) -> Finding:
    effect = percent(t_interval(table.extra()))
    claim = (
        "sizes of the environment at which addresses agree in the low 12 bits make the program "
        f"more than {threshold:g} % slower than the others"
    )
    evidence: dict[str, Any] = {
        "predicted_bytes": table.predicted,
        "pairs": _pairs(table),
        "sizes": len(table.sizes),
        "rounds": len(table.rounds),
    }
    if not table.predicted:
        reason = "At none of the sizes do they agree: step_bytes=16 visits every place."
        return Finding(claim, "environment", "inconclusive", *effect, "percent", reason=reason,
                       evidence=evidence)  # fmt: skip
    verdict, reason = threshold_verdict(effect, threshold)
    if not math.isfinite(effect.half_width):
        reason = "It takes two rounds or more, and sizes that are not predicted."
    elif verdict == "refuted":
        most = max(effect.high, 0.0)
        bound_ns = table.base_ns * most / 100
        reason += f" It is below {most:.2g} %, {bound_ns:.2g} ns an iteration."
    return Finding(claim, "environment", verdict, *effect, "percent", reason=reason,
                   evidence=evidence)  # fmt: skip


def _pairs(table: AliasEnvTable) -> dict[int, str]:
    """Which variables agree at each predicted size, by the addresses printed."""
    if "pairs" not in table.sweep:
        return {}
    marked = table.sweep[table.sweep["environment_bytes"].isin(table.predicted)]
    pairs = zip(marked["environment_bytes"], marked["pairs"], strict=True)
    return {int(size): str(which) for size, which in sorted(set(pairs))}


def _simulated(table: AliasEnvTable) -> Finding:
    """Exactly the sizes at which printed addresses agree, and no others?"""
    subject, unit = "simulated environment", "sizes that disagree"
    claim = (
        "the simulated count of 4K aliases has its spikes at exactly the sizes at which the "
        "printed addresses agree"
    )
    counts, actual = table.simulated_counts, set(_actual(table))
    if counts is None or table.simulated is None or not np.isfinite(counts).any():
        reason = "Nothing was simulated."
        return Finding(claim, subject, "inconclusive", *_NONE, unit, reason=reason)
    spikes = {size for size, count in zip(table.sizes, counts, strict=True) if count >= 0.5}
    moved = [row["environment_bytes"] for row in table.simulated["rows"] if not row["same_place"]]
    evidence = {
        "spikes_bytes": sorted(spikes),
        "printed_bytes": sorted(actual),
        "aliases_per_iteration": [
            float(count) for size, count in zip(table.sizes, counts, strict=True) if size in spikes
        ],
        "elsewhere_per_iteration": float(
            np.nanmax([0.0, *(c for s, c in zip(table.sizes, counts, strict=True)
                              if s not in spikes)])
        ),
        "model": f"simulated: {table.simulated['model']}",
    }  # fmt: skip
    wrong = len(spikes ^ actual)
    agree = f"{len(spikes & actual)} of {len(actual)} predicted sizes have a spike"
    if moved:
        verdict: Verdict = "inconclusive"
        reason = f"At {len(moved)} sizes the simulated program had its variables elsewhere."
    elif not actual:
        verdict = "inconclusive" if not wrong else "refuted"
        reason = f"At no size do addresses agree, and {len(spikes)} have a spike (simulated)."
    else:
        verdict = "refuted" if wrong else "supported"
        reason = f"{agree}, and {len(spikes - actual)} others (simulated)."
    effect = Interval(float(wrong), math.nan, math.nan)
    return Finding(claim, subject, verdict, *effect, unit, reason=reason, evidence=evidence)


def _actual(table: AliasEnvTable) -> list[int]:
    """Sizes at which the printed addresses agree: none where the variables were held."""
    if "pairs" not in table.sweep:
        return table.predicted
    return sorted({int(s) for s in table.sweep["environment_bytes"][table.sweep["pairs"] != ""]})


def _link_order(table: AliasEnvTable, threshold: float) -> Finding:
    """Is any order slower than the others, for whatever reason?"""
    compared = compare_cores(table.order_log_ns(), table.start_s)
    slowest = int(np.nanargmax([_known(effect.slowdown.effect) for effect in compared.effects]))
    effect = compared.effects[slowest]
    verdict, reason = slowness_verdict(effect, threshold)
    reason = reason.replace("cores", "orders")
    if not math.isfinite(effect.slowdown.half_width):
        reason = "It takes two orders or more, in two rounds or more."
    claim = (
        f"some link order of the same objects is more than {threshold:g} % slower than the median "
        "of the others, in the same environment"
    )
    evidence = {
        "slowest": table.orders[slowest],
        "percent": {
            order: list(each.slowdown)
            for order, each in zip(table.orders, compared.effects, strict=True)
        },
        "pairs": table.order_pairs,
        "p_holm": effect.p_holm,
    }
    reason = f"The slowest has its objects in the order {table.orders[slowest]}. {reason}"
    return Finding(claim, "link order", verdict, *effect.slowdown, "percent", reason=reason,
                   evidence=evidence)  # fmt: skip


def _known(value: float) -> float:
    return value if math.isfinite(value) else -math.inf


def _order_aliases(table: AliasEnvTable, threshold: float) -> list[Finding]:
    """Are the orders slower in which addresses agree?"""
    pairs = table.order_pairs
    marked = np.array([bool(pairs[order]) for order in table.orders])
    if marked.all() or not marked.any():
        return []
    logs = table.order_log_ns()
    extra = logs[:, marked].mean(axis=1) - logs[:, ~marked].mean(axis=1)
    effect = percent(t_interval(table.by_block(extra)))
    verdict, reason = threshold_verdict(effect, threshold)
    claim = (
        "link orders in which addresses agree in the low 12 bits are more than "
        f"{threshold:g} % slower than the others, in the same environment"
    )
    evidence = {"pairs": pairs}
    return [Finding(claim, "link order aliases", verdict, *effect, "percent", reason=reason,
                    evidence=evidence)]  # fmt: skip


def _aslr(table: AliasEnvTable) -> Finding:
    """At a predicted size, with random addresses: how many starts still have the agreement?"""
    rows = table.randomised
    hit = rows["predicted"].astype(bool).to_numpy()
    weight = np.ones(len(rows))
    share = share_interval(hit, weight, np.zeros(len(rows), dtype=np.int64))
    effect = Interval(*(100 * end for end in share))
    bytes_ = sorted({int(size) for size in rows["environment_bytes"]})
    expected = 100 * len(_actual(table)) / max(len(table.sizes), 1)
    claim = (
        "with addresses randomised, the size of the environment no longer decides: at a predicted "
        "size less than half of the starts have addresses that agree"
    )
    verdict: Verdict = "inconclusive"
    if effect.high < _HALF:
        verdict = "supported"
    elif effect.low > _HALF:
        verdict = "refuted"
    within = effect.low <= expected <= effect.high
    reason = (
        f"{int(hit.sum())} of {len(rows)} starts have them; by the share of places it should be "
        f"{expected:.2g} %, which the interval {'holds' if within else 'does not hold'}."
    )
    if "inc_address" in rows and rows["inc_address"].nunique() == 1 and len(rows) > 1:
        verdict, reason = "inconclusive", "Addresses are not randomised on this machine."
    evidence = {"environment_bytes": bytes_, "expected_percent": expected, "starts": len(rows)}
    return Finding(claim, "aslr", verdict, *effect, "percent of starts", reason=reason,
                   evidence=evidence)  # fmt: skip
