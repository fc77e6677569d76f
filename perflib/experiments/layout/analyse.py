"""What factors do, what layout alone does, and whether one build is faster than another."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from perflib.experiments.layout.claims import (
    ALONE,
    CHANGED_CODE,
    DRAWS,
    FASTER,
    FUNCTIONS,
    GATE,
    MOVES,
    ONE_FUNCTION,
    OUTPUT,
    OUTPUTS,
)
from perflib.experiments.layout.functions import BuildProfiles, in_words
from perflib.experiments.layout.table import Effect, LayoutTable
from perflib.framework.levels import levels_table
from perflib.instruments.profile.builds import PROGRAM
from perflib.instruments.profile.findings import standing_findings
from perflib.model.finding import Finding
from perflib.model.run import Run
from perflib.stats.decide import Decision, Reason, Verdict, Witness, more_time
from perflib.stats.interval import Interval
from perflib.stats.intervals import t_interval
from perflib.stats.layouts import needed_pairs

_ALPHA = 0.05
_MIN_BATCHES = 3  # for a gate: fewer scatter in an unknown way
_MAX_SHOWN = 6  # functions that a sentence names
_ONE_EACH = 1.96 * math.sqrt(2)  # of two layouts, one a build: their difference, at 95 %
SAID = {"cpu": "CPU time", "wall": "wall time"}


def findings(run: Run) -> list[Finding]:
    """Of two builds which is faster; what layout alone does; each factor; the output."""
    table = table_of(run)
    about = {"response": SAID[run.params["response"]]}
    threshold = run.params["threshold_percent"]
    found = []
    if table.builds == 2:
        profiles = profiles_of(run)
        if run.params["fail_above_percent"] is not None:
            found.append(_gate(run, table, about))
        found.append(_faster(run, table, about))
        found += _functions(profiles) if profiles else []
        found += [_outputs(table)] if "output" in table.rows else []
    alone = ALONE.decided(
        table.alone,
        threshold,
        about=about,
        facts={"least_percent": _ONE_EACH * table.alone.effect},
        evidence={"layouts": len(table.twice)},
        prevented=Reason("few_starts") if table.twice.empty else None,
        remarks=_failed(table),
    )
    found.append(alone)
    found += [_moves(effect, threshold, about) for effect in table.effects]
    if math.isfinite(table.draws.half_width):
        found.append(DRAWS.decided(table.draws, threshold))
    if "output" in table.rows:
        found.append(_output(table))
    return found


def _moves(effect: Effect, threshold: float, about: dict[str, str]) -> Finding:
    p = {"p": effect.p}
    return MOVES.decided(
        effect.largest,
        threshold,
        about={"factor": effect.factor.says, **about},
        facts={"fastest": effect.fastest, "slowest": effect.slowest},
        evidence={**p, "share_percent": 100 * effect.share},
        to_support=[
            Witness(effect.p < _ALPHA, Reason("chance", p), Reason("permuted", p)),
        ],
        remarks=[Reason("core")] if effect.factor.name == "cpu" else [],
    )


def _failed(table: LayoutTable) -> list[Reason]:
    failed = table.trials - len(table.rows)
    return [Reason("failed", {"failed": failed, "trials": table.trials})] if failed else []


def _faster(run: Run, table: LayoutTable, about: dict[str, str]) -> Finding:
    pairs = len(table.pairs)
    needed = needed_pairs(
        table.pairs["difference"].to_numpy(np.float64), run.params["precision_percent"]
    )
    layout_more = table.alone.low > 0 and table.alone.effect > abs(table.faster.effect)
    more = Reason("layout_more", {"alone": table.alone.effect})
    less, low, high = table.faster
    takes = Interval(-less, -high, -low) if less < 0 else table.faster
    return FASTER.decided(
        table.faster,
        0.0,
        about=about,
        facts={
            "pairs": pairs,
            "takes": takes,
            "word": "more" if less < 0 else "less",
            "needed": max(needed[0], pairs) if needed else "more",
            "target": run.params["precision_percent"],
        },
        evidence={"pairs": pairs},
        remarks=[more] if layout_more else [],
    )


def _gate(run: Run, table: LayoutTable, about: dict[str, str]) -> Finding:
    """Is B slower by more than it may be? 2.5 % of answers of each kind are wrong, or fewer."""
    threshold = run.params["fail_above_percent"]
    less, low, high = table.faster
    takes = Interval(-less, -high, -low)
    batches = int(table.pairs["block"].nunique())
    few = Reason("few_rounds", {"least": _MIN_BATCHES, "batches": batches})
    decided = GATE.decided(
        takes,
        threshold,
        about=about,
        prevented=few if batches < _MIN_BATCHES else None,
        remarks=[Reason("rate")],
        evidence={"pairs": len(table.pairs), "batches": batches},
    )
    if decided.verdict == "supported" and (run.provenance.get("code") or {}).get("same_code"):
        return decided.prevented(Reason("same_code"))
    if decided.verdict != "inconclusive" or "start_ns" not in table.rows:
        return decided
    lasted_s = float(np.ptp(table.rows["start_ns"])) / 1e9
    if batches < _MIN_BATCHES:
        needed_s = lasted_s * _MIN_BATCHES / max(batches, 1)
        wanted = Reason("wanted", {"lasted_s": lasted_s, "wanted_s": needed_s})
    else:
        wanted = more_time(takes, threshold, lasted_s)
    return replace(decided, reasons=(wanted, *decided.reasons))


def _functions(profiles: BuildProfiles) -> list[Finding]:
    """Which functions take another time in B; what became of those that are not in both."""
    compared, found = profiles.functions, []
    if compared is not None:
        rows = profiles.by_function().set_index("function")
        standing, *named = standing_findings(compared, {}, FUNCTIONS, ONE_FUNCTION)
        shown = [str(one.about["function"]) for one in named]
        more = [f"{len(shown) - _MAX_SHOWN} more"] if len(shown) > _MAX_SHOWN else []
        facts = {**standing.facts, "shown": shown[:_MAX_SHOWN] + more}
        found.append(replace(standing, facts=facts))
        for one, name in zip(named, shown, strict=True):
            row = rows.loc[name].to_dict()
            known = {key: row[key] for key in ("library", "became", "code", "instructions_percent")}
            facts = {**one.facts, "library": row["library"], "more": _more(row)}
            found.append(replace(one, facts=facts, evidence={**one.evidence, **known}))
        own = all(rows.loc[name, "library"] == PROGRAM for name in shown)
        if profiles.facts.get("same_code") and own:  # libraries were not compared
            found = [one.prevented(Reason("same_code")) for one in found]
    if profiles.changes:
        changes = [f"{one['function']} {in_words(one)}" for one in profiles.changes[:_MAX_SHOWN]]
        count = Interval(*[float(len(profiles.changes))] * 3)
        facts, evidence = {"changes": changes}, {"changes": profiles.changes}
        decided = Decision("supported")
        found.append(CHANGED_CODE.found(decided, count, facts=facts, evidence=evidence))
    return found


def _more(row: Mapping[Any, Any]) -> str:
    """What else is known of a function that stands out, after its sentence."""
    said = []
    if math.isfinite(row["share_percent"]):
        said.append(f"{row['share_percent']:.0f} % of the builds' difference")
    if row["code"] == "same":
        said.append("its own code is the same in both")
    if math.isfinite(row["instructions_percent"]):
        said.append(f"{row['instructions_percent']:+.1f} % instructions, simulated")
    return f" ({'; '.join(said)})" if said else ""


def _outputs(table: LayoutTable) -> Finding:
    """Does B write what A writes?"""
    outputs = {build: set(rows["output"]) for build, rows in table.rows.groupby("build")}
    why = ""
    if outputs["A"] == outputs["B"] == {""}:
        why = "neither writes to its standard output"
    elif several := [build for build in "AB" if len(outputs[build]) > 1]:
        why = (
            f"{' and '.join(several)} write{'s' * (len(several) == 1)} something else at each start"
        )
    if why:
        return OUTPUTS.found(Decision("inconclusive"), facts={"why": why})
    differ = float(outputs["A"] != outputs["B"])
    verdict: Verdict = "refuted" if differ else "supported"
    return OUTPUTS.found(Decision(verdict), Interval(differ, differ, differ))


def _output(table: LayoutTable) -> Finding:
    outputs = table.rows.groupby("build")["output"].nunique()
    more = int(outputs.sum()) - len(outputs)
    pairs = table.twice
    each_start = bool((pairs["output_first"] != pairs["output_again"]).any())
    reasons = (Reason("outputs", {"trials": len(table.rows)}),)
    decision = Decision("supported", reasons)
    if more:
        decision = Decision("refuted", reasons)
        if each_start or pairs.empty:
            decision = Decision("inconclusive", (Reason("each_start"), *reasons))
    shown = Interval(float(more), float(more), float(more))
    return OUTPUT.found(decision, shown, facts={"outputs": more + 1})


def tables(run: Run) -> dict[str, Callable[[], pd.DataFrame]]:
    """The derived tables; see ``Layout.tables``."""
    profiles = profiles_of(run)
    return tables_of(table_of(run)) | (profiles.tables() if profiles else {})


def tables_of(table: LayoutTable) -> dict[str, Callable[[], pd.DataFrame]]:
    """The same, of samples that are arrays already."""
    return {
        "factors": partial(_factors, table),
        "levels": partial(_levels, table),
        "layouts": partial(_layouts, table),
        "builds": partial(_builds, table),
        "counters": table.counters,
        "simulated": lambda: table.simulated,
    }


def levels(run: Run) -> pd.DataFrame:
    """The program's typical time, and its spread over layouts."""
    table = table_of(run)
    rows = [
        (-1, f"build={build}", float(np.exp(np.median(table.log_time[mine]))), "s")
        for build, mine in table.rows.groupby("build").indices.items()
    ]
    return levels_table([*rows, (-1, "layout alone", table.alone.effect, "percent")])


def table_of(run: Run) -> LayoutTable:
    """The run's samples as arrays."""
    simulated = run.provenance.get("simulated") or {}
    return LayoutTable(run.samples, run.params["response"], simulated.get("rows", ()))


def profiles_of(run: Run) -> BuildProfiles | None:
    """The functions of both builds; None: they were not recorded."""
    if "symbol" not in run.samples:
        return None
    return BuildProfiles(run.samples, run.provenance.get("code") or {})


def _factors(table: LayoutTable) -> pd.DataFrame:
    """One row a factor, the largest difference first."""
    rows = [
        {
            "factor": effect.factor.name,
            "levels": len(table.levels(effect.factor)[1]),
            "largest_percent": effect.largest.effect,
            "largest_percent_low": effect.largest.low,
            "largest_percent_high": effect.largest.high,
            "fastest": effect.fastest,
            "slowest": effect.slowest,
            "p": effect.p,
            "share_percent": 100 * effect.share,
        }
        for effect in table.effects
    ]
    names = ["factor", "levels", "largest_percent", "largest_percent_low", "largest_percent_high"]
    found = pd.DataFrame(rows, columns=[*names, "fastest", "slowest", "p", "share_percent"])
    return found.sort_values("largest_percent", ascending=False, ignore_index=True, kind="stable")


def _levels(table: LayoutTable) -> pd.DataFrame:
    """One row a level of each factor: its time, compared with the mean of the factor's levels."""
    rows: list[dict[str, Any]] = []
    for factor in table.factors:
        codes, names = table.levels(factor)
        by_block = table.by_block(factor)
        for place, name in enumerate(names):
            found = Interval(*(100 * math.expm1(one) for one in t_interval(by_block[:, place])))
            rows.append(
                {
                    "factor": factor.name,
                    "level": name,
                    "starts": int((codes == place).sum()),
                    "percent": found.effect,
                    "percent_low": found.low,
                    "percent_high": found.high,
                }
            )
    names = ["factor", "level", "starts", "percent", "percent_low", "percent_high"]
    return pd.DataFrame(rows, columns=names)


def _layouts(table: LayoutTable) -> pd.DataFrame:
    """One row a layout that was started twice: its times, compared with their rounds' means."""
    pairs = table.twice
    return pd.DataFrame(
        {
            "layout": pairs["layout"],
            "build": pairs["build"],
            "first_percent": 100 * np.expm1(pairs["centred_first"].astype(float)),
            "again_percent": 100 * np.expm1(pairs["centred_again"].astype(float)),
        }
    )


def _builds(table: LayoutTable) -> pd.DataFrame:
    """One row a layout of a round: by how much less time B takes than A."""
    pairs = table.pairs
    less = -100 * np.expm1(pairs["difference"].astype(float))
    return pairs[["round", "layout", "block"]].assign(less_percent=less)
