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
    INSTRUCTION,
    INSTRUCTIONS,
    LONGER,
    STANDS_OUT,
)
from perflib.instruments.profile.comparison import Comparison
from perflib.instruments.profile.entry_cost import EntryCost
from perflib.instruments.profile.side_by_side import SideBySide
from perflib.model.claim import Claim
from perflib.model.finding import Finding
from perflib.stats.decide import Decision, Reason, Witness
from perflib.stats.interval import NO_INTERVAL, Interval
from perflib.stats.intervals import p_above

LEAST_ROUNDS = 3  # below, the scatter of events is not known well enough for a verdict
_MIN_FUNCTIONS = 3  # a verdict over all functions takes so many
_RELEVANT_POINTS = 5.0  # that no instruction changed is a finding where less would have been seen
_LONGER_PERCENT = 1.0  # an event that takes so much longer is of interest


# --- two profiles compared -----------------------------------------------------------------------


def comparison_findings(found: Comparison, core: str = "") -> list[Finding]:
    """Does the event take longer; does any function stand out; and one for each that does.

    ``core`` names the core where several are compared with one.
    """
    about = {"core": core, "first": str(found.first), "second": str(found.second)}
    return [_longer(found, about), *standing_findings(found, about)]


def standing_findings(found: Comparison, about: Mapping[str, str], *claims: Claim) -> list[Finding]:
    """Does any function stand out, and one for each that does; ``claims``: of other words."""
    stands_out, function = claims or (STANDS_OUT, FUNCTION)
    named = found.table[found.table["stands_out"]]
    return [
        _any_stands_out(found, about, stands_out),
        *(_one(found, row, about, function) for _, row in named.iterrows()),
    ]


def _repetitions(found: Comparison | SideBySide) -> Reason:
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


def _any_stands_out(found: Comparison, about: Mapping[str, str], claim: Claim) -> Finding:
    """One finding for the profile as a whole: its leading function's excess, and what is open."""
    lead = found.table.iloc[0]
    named = found.table.loc[found.table["stands_out"], "function"].tolist()
    tested = int(found.table["p_holm"].notna().sum())
    decision = _standing(found, named, tested)
    return claim.found(
        Decision(decision.verdict, (*decision.reasons, *_alone(found))),
        _interval(lead, "of_event_percent"),
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


def _interval(row: pd.Series[Any] | Mapping[Any, Any], name: str) -> Interval:
    """A row's interval, of the columns that `perflib.stats.interval.columns` names."""
    return Interval(*(float(row[name + end]) for end in ("", "_low", "_high")))


def _one(found: Comparison, row: pd.Series[Any], about: Mapping[str, str], claim: Claim) -> Finding:
    """A function that stands out."""
    enough = found.rounds >= LEAST_ROUNDS
    excess, of_event = (_interval(row, name) for name in ("excess_percent", "of_event_percent"))
    p_holm = _together(found, float(row["p_holm"]))
    reasons = (Reason("unlikely", {"p": p_holm}), _repetitions(found))
    return claim.found(
        Decision("supported" if enough else "inconclusive", reasons),
        excess,
        about={**about, "function": str(row["function"])},
        facts={"change": "more" if row["log_odds"] > 0 else "less", "of_event": of_event},
        confidence=found.confidence,
        evidence={
            "p_holm": p_holm,
            "of_event_percent": of_event.effect,
            "share_of_additional_percent": float(row["share_percent"]),
            "additional": list(_interval(row, "additional")),
            "additional_unit": found.unit,
            "samples": int(row["samples"]),
            "rounds": found.rounds,
        },
    )


# --- instructions of one function ----------------------------------------------------------------


def instruction_findings(found: SideBySide) -> list[Finding]:
    """Did any instruction of the function become costlier; and one for each that did."""
    about = {"function": found.function, "first": found.first, "second": found.second}
    rows = found.named().to_dict("records")
    words = [_in_words(row) for row in rows]
    shares = [_interval(row, "difference") for row in rows] or [
        _interval(row, "difference") for row in _leading(found)
    ]
    over_all = INSTRUCTIONS.found(
        _instructions_decided(found, [_place_of(row) for row in rows]),
        shares[0] if shares else NO_INTERVAL,
        about=about,
        facts={"named": words},
        confidence=found.confidence,
        evidence={
            "named": [_place_of(row) for row in rows],
            "open_points": found.open_points,
            "instructions_tested": found.tested,
            "rounds": found.rounds,
            "skid": found.skid,
            "alone_percent": found.alone_percent,
        },
    )
    return [over_all, *(_one_instruction(found, row, about) for row in rows)]


def _leading(found: SideBySide) -> list[dict[Any, Any]]:
    tested = found.table[found.table["p_holm"].notna()]
    largest = tested["difference"].abs().nlargest(1).index
    rows: list[dict[Any, Any]] = tested.loc[largest].to_dict("records")
    return rows


def _place_of(row: Mapping[Any, Any]) -> str:
    """Where it is in the second side's function; in the first's, if only that has it."""
    offset = row["offset_first"] if pd.isna(row["offset_second"]) else row["offset_second"]
    return f"+{int(offset):#x}"


def _text_of(row: Mapping[Any, Any]) -> str:
    texts = [row[f"instruction_{side}"] for side in ("second", "first")]
    return next((text for text in texts if isinstance(text, str)), "not disassembled")


def _in_words(row: Mapping[Any, Any]) -> str:
    change = f"{_changed(row)[0]} by {abs(row['difference']):.1f} points"
    return f"{_place_of(row)} {_text_of(row)!r} {change}"


def _changed(row: Mapping[Any, Any]) -> tuple[str, str]:
    """Of an instruction: costlier, and takes more."""
    return ("costlier", "more") if row["costlier_percent"] > 0 else ("cheaper", "less")


def _instructions_decided(found: SideBySide, named: list[str]) -> Decision:
    if not found.comparable:
        return Decision("inconclusive", (Reason("incomparable"),))
    if found.rounds < LEAST_ROUNDS:
        by_count = [Reason("by_count", {"named": named})] if named else []
        return Decision("inconclusive", (_repetitions(found), *by_count))
    if found.tested <= 2:
        too_few = Reason("too_few_instructions", {"tested": found.tested})
        return Decision("inconclusive", (too_few,))
    builds = [Reason("builds")] if found.objects[0] != found.objects[1] else []
    if named:
        return Decision("supported", (_repetitions(found), Reason(found.skid), *builds))
    open_ = {"open": found.open_points}
    if found.open_points <= _RELEVANT_POINTS:
        return Decision("refuted", (Reason("seen_points", open_), _repetitions(found)))
    return Decision("inconclusive", (Reason("open_points", open_), _repetitions(found)))


def _one_instruction(
    found: SideBySide, row: Mapping[Any, Any], about: Mapping[str, str]
) -> Finding:
    enough = found.rounds >= LEAST_ROUNDS
    p_holm = min(1.0, found.claims * float(row["p_holm"]))
    reasons = (Reason("unlikely", {"p": p_holm}), Reason(found.skid), _repetitions(found))
    line = row["source_line"]
    return INSTRUCTION.found(
        Decision("supported" if enough else "inconclusive", reasons),
        _interval(row, "costlier_percent"),
        about={**about, "place": _place_of(row)},
        facts={
            "text": _text_of(row),
            "change": _changed(row)[1],
            "points": _interval(row, "difference"),
        },
        confidence=found.confidence,
        evidence={
            "p_holm": p_holm,
            "percent_first": float(row["percent_first"]),
            "percent_second": float(row["percent_second"]),
            "difference_points": list(_interval(row, "difference")),
            "source": f"{row['source_file']}:{int(line)}" if not pd.isna(line) else "",
            "samples": int(row["samples_first"] + row["samples_second"]),
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
    too_few = Reason("too_few_functions", {"least": _MIN_FUNCTIONS, **counts})
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
        prevented=too_few if functions < _MIN_FUNCTIONS else None,
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
        _interval(row, "ratio"),
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
