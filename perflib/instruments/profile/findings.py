"""Findings about profiles, from what was computed of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from perflib.instruments.profile.claims import (
    CONTROL,
    ENTRY,
    FUNCTION,
    FUNCTION_ENTRY,
    LONGER,
    STANDS_OUT,
)
from perflib.instruments.profile.comparison import Comparison
from perflib.instruments.profile.entry_cost import EntryCost
from perflib.model.finding import Finding
from perflib.stats.decide import Decision, Reason, Witness
from perflib.stats.interval import Interval
from perflib.stats.intervals import p_above

__all__ = ["LEAST_ROUNDS", "comparison_findings", "entry_findings"]

LEAST_ROUNDS = 3  # below, the scatter of events is not known well enough for a verdict
_LEAST_FUNCTIONS = 3  # a verdict over all functions takes so many
_LONGER_PERCENT = 1.0  # an event that takes so much longer is of interest


# --- two profiles compared -----------------------------------------------------------------------


def comparison_findings(found: Comparison, core: str = "") -> list[Finding]:
    """Does the event take longer; does any function stand out; and one for each that does.

    ``core`` names the core where several are compared with one.
    """
    about = {"core": core, "first": str(found.first), "second": str(found.second)}
    named = found.table[found.table["stands_out"]]
    return [
        _longer(found, about),
        _any_stands_out(found, about),
        *(_one(found, row, about) for _, row in named.iterrows()),
    ]


def _repetitions(found: Comparison) -> Reason:
    """How many there are; too few: what a verdict takes."""
    enough = found.rounds >= LEAST_ROUNDS
    code = "repetitions" if enough else "counting_only" if found.counting_only else "too_few"
    return Reason(code, {"rounds": found.rounds, "least": LEAST_ROUNDS})


def _together(found: Comparison, p_holm: float) -> float:
    """A p value corrected for functions, corrected for the claims that are made together, too."""
    return min(1.0, found.claims * p_holm)


def _alone(found: Comparison) -> list[Reason]:
    """How many samples are compared, where only those are that were taken alone."""
    if found.alone_percent == 0:
        return [Reason("shared")]
    some = 0 < found.alone_percent < 100
    return [Reason("alone", {"alone": found.alone_percent})] if some else []


def _longer(found: Comparison, about: Mapping[str, str]) -> Finding:
    prevented = None if found.rounds >= LEAST_ROUNDS else _repetitions(found)
    remarks = [Reason("outliers", {"outliers": found.outliers})] if found.outliers else []
    if prevented is None and found.alone_percent == 0:
        prevented = Reason("shared")
    else:
        remarks += _alone(found)
    values, limit = np.array(found.log_ratios), math.log1p(_LONGER_PERCENT / 100)
    p = min(1.0, 2 * found.claims * min(p_above(values, limit), p_above(-values, limit)))
    chance = {"p": p, "claims": found.claims}
    no_chance = Witness(p < 1 - found.confidence, Reason("chance", chance))
    return LONGER.decided(
        found.total,
        _LONGER_PERCENT,
        about=about,
        confidence=found.confidence,
        prevented=prevented,
        to_support=[no_chance],
        remarks=remarks,
        evidence={
            "additional": list(found.additional),
            "additional_unit": found.unit,
            "batches": len(found.log_ratios),
            "rounds": found.rounds,
            "rounds_dropped": found.dropped,
            "rounds_outlying": found.outliers,
        },
    )


def _any_stands_out(found: Comparison, about: Mapping[str, str]) -> Finding:
    """One finding for the profile as a whole: its leading function's excess, and what is open."""
    lead = found.table.iloc[0]
    named = found.table.loc[found.table["stands_out"], "function"].tolist()
    tested = int(found.table["p_holm"].notna().sum())
    decision = _standing(found, named, tested)
    return STANDS_OUT.found(
        Decision(decision.verdict, (*decision.reasons, *_alone(found))),
        Interval(*(float(lead[f"of_event_{end}"]) for end in ("percent", "low", "high"))),
        about=about,
        facts={"named": named, "common": found.common},
        confidence=found.confidence,
        evidence={
            "p_holm": _together(found, float(found.table["p_holm"].min())),
            "leading": lead["function"],
            "named": named,
            "open_percent": found.open_percent,
            "alone_percent": found.alone_percent,
            "common_percent": list(found.common),
            "functions_tested": tested,
            "rounds": found.rounds,
        },
    )


def _standing(found: Comparison, named: list[str], tested: int) -> Decision:
    open_ = {"open": found.open_percent}
    unseen = Reason("unseen" if math.isfinite(found.open_percent) else "unseen_any", open_)
    if found.rounds < LEAST_ROUNDS:
        by_count = [Reason("by_count")] if named else []
        return Decision("inconclusive", (_repetitions(found), *by_count))
    if tested <= 2:
        return Decision("inconclusive", (Reason("too_few_functions", {"tested": tested}),))
    if named:
        return Decision("supported", (unseen, _repetitions(found)))
    if found.open_percent <= found.relevant_percent:
        return Decision("refuted", (Reason("would_be_seen", open_),))
    return Decision("inconclusive", (unseen, _repetitions(found)))


def _one(found: Comparison, row: pd.Series[Any], about: Mapping[str, str]) -> Finding:
    """A function that stands out."""
    enough = found.rounds >= LEAST_ROUNDS
    excess, of_event = (
        Interval(*(float(row[f"{name}_{end}"]) for end in ("percent", "low", "high")))
        for name in ("excess", "of_event")
    )
    p_holm = _together(found, float(row["p_holm"]))
    reasons = (Reason("unlikely", {"p": p_holm}), _repetitions(found))
    return FUNCTION.found(
        Decision("supported" if enough else "inconclusive", reasons),
        excess,
        about={**about, "function": str(row["function"])},
        facts={"change": "more" if row["log_odds"] > 0 else "less", "of_event": of_event},
        confidence=found.confidence,
        evidence={
            "p_holm": p_holm,
            "of_event_percent": of_event.effect,
            "share_of_additional_percent": float(row["share_percent"]),
            "additional": [float(row[f"additional{end}"]) for end in ("", "_low", "_high")],
            "additional_unit": found.unit,
            "samples": int(row["samples"]),
            "rounds": found.rounds,
        },
    )


# --- entries of functions ------------------------------------------------------------------------


def entry_findings(found: EntryCost) -> list[Finding]:
    """Over all functions, the control window, and then each function."""
    over_all = [_overall(found, of_entry) for of_entry in (True, False)]
    return over_all + [_of_function(found, row) for _, row in found.table.iterrows()]


def _window(found: EntryCost) -> dict[str, int]:
    return {"instructions": found.instructions, "window_bytes": found.window_bytes}


def _overall(found: EntryCost, of_entry: bool) -> Finding:
    functions = len(found.table)
    counts = {
        "functions": functions,
        "costly": int((found.table["verdict"] == "supported").sum()),
        "costly_control": int((found.table["control_verdict"] == "supported").sum()),
    }
    few = Reason("too_few_functions", {"least": _LEAST_FUNCTIONS, **counts})
    elsewhere = Witness(
        not of_entry or found.control.high < found.overall.low,
        Reason("uneven", {"control": found.control}),
        Reason("counts", counts),
    )
    return (ENTRY if of_entry else CONTROL).decided(
        found.overall if of_entry else found.control,
        found.times,
        facts=_window(found),
        confidence=found.confidence,
        prevented=few if functions < _LEAST_FUNCTIONS else None,
        to_support=[elsewhere],
        remarks=[Reason("skid")] if found.clock and of_entry else [],
        evidence={
            **_window(found),
            "functions": functions,
            "samples": int(found.table["samples"].sum()),
            "samples_without_offset": found.without_offset,
            "samples_of_functions_with_too_few": found.too_few,
            "samples_of_functions_too_short": found.too_short,
            "costly_entries": counts["costly"],
            "costly_control_windows": counts["costly_control"],
            "clock_skid": found.clock,
        },
    )


def _control_too(row: pd.Series[Any]) -> bool:
    """Whether a window at a random place is costly, too, or as costly as the entry may be."""
    as_costly = float(row["control_ratio"]) >= float(row["ratio_low"])
    return bool(row["control_verdict"] == "supported") or as_costly


def _of_function(found: EntryCost, row: pd.Series[Any]) -> Finding:
    decisive = {
        "supported": Reason("unlikely", {"p": float(row["p_holm"])}),
        "refuted": Reason("excluded"),
        "inconclusive": Reason("too_few_samples", {"samples": int(row["samples"])}),
    }
    verdict = row["verdict"]
    reasons = [decisive[verdict]]
    if verdict == "supported" and _control_too(row):
        verdict = "inconclusive"
        reasons = [Reason("control_too", {"control": float(row["control_ratio"])})]
    if row["even_by"] == "largest offset seen":
        reasons.append(Reason("size_unknown"))
    return FUNCTION_ENTRY.found(
        Decision(verdict, tuple(reasons)),
        Interval(float(row["ratio"]), float(row["ratio_low"]), float(row["ratio_high"])),
        about={"function": str(row["function"])},
        threshold=found.times,
        facts=_window(found),
        confidence=found.confidence,
        evidence={
            "samples": int(row["samples"]),
            "share_percent": float(row["share_percent"]),
            "even_percent": float(row["even_percent"]),
            "even_by": str(row["even_by"]),
            "p_holm": float(row["p_holm"]),
            "control_ratio": float(row["control_ratio"]),
            "clock_skid": found.clock,
        },
    )
