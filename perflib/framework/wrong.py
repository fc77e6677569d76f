"""Wrong results: which samples computed them, on which core, and the findings.

What is right is decided by the cores: each votes, for each piece of work, for the result of more
than half of its samples, and what more than half of the votes are for is right. Without that (two
cores that disagree each time) one of them is wrong, and which is not known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from perflib.framework.results import CORE_WRONG, CORES_WRONG, SAMPLE, WRONG_TIMES
from perflib.framework.schema import Column, is_used
from perflib.model.finding import Finding
from perflib.model.run import Run
from perflib.stats.decide import Decision, Reason
from perflib.stats.interval import Interval
from perflib.stats.intervals import clopper_pearson

_NO_CORE = -1  # of a job that ran on several
_MOST_CPU = 2**31
_SHOWN = 40  # characters of a result


def marked(
    samples: pd.DataFrame, columns: Sequence[Column], same: Sequence[str] | None
) -> pd.DataFrame:
    """The samples, of which those that turn out to be wrong are not used.

    Parameters
    ----------
    samples
        As `perflib.framework.schema.checked` returns them.
    columns, same
        The experiment's; the work of samples that agree in ``same`` is equal.
    """
    rows = _computed(samples, columns, same)
    lost = rows[rows["used"] & (rows["value"] != rows["right"])]
    if lost.empty:
        return samples
    used = pd.Series(is_used(samples), samples.index).where(~samples.index.isin(lost.index), False)
    now = {"expected": lost["right"].fillna(lost["first"]), "found": lost["value"]}
    texts = {name: values.combine_first(samples[name]) for name, values in now.items()}
    return samples.assign(ok=used, **texts)


def findings(run: Run, columns: Sequence[Column], same: Sequence[str] | None) -> list[Finding]:
    """One of each core that computed wrong; the worst first. Two rounds support it, one does not.

    It is no small effect that chance may have made: it has neither a threshold nor a p value, and
    so takes no part in a correction over several claims.
    """
    rows = _computed(run.samples, columns, same)
    if rows.empty:
        return []
    known = rows["right"].notna()
    wrong = rows[known & (rows["value"] != rows["right"])]
    by_cpus: dict[Any, pd.DataFrame] = {(cpu,): mine for cpu, mine in wrong.groupby("cpu")}
    of_work: pd.Series[Any] = rows[~known].groupby("work")["cpu"].agg(_each)
    open_ = rows[~known & (rows["value"] != rows["first"])]
    for cpus, mine in open_.groupby(open_["work"].map(of_work)):
        by_cpus[cpus] = pd.concat([by_cpus.get(cpus), mine]).sort_index()
    if not by_cpus:  # all agree, but not with the pilot, which no sample is of
        pilot = rows.iloc[:1].assign(right=rows["value"], value=rows["first"])
        by_cpus[_each(rows["cpu"])] = pilot
    found = [_finding(run, cpus, mine, same or ()) for cpus, mine in by_cpus.items()]
    return sorted(found, key=lambda one: -one.evidence["wrong_rounds"])


def _finding(run: Run, cpus: tuple[int, ...], wrong: pd.DataFrame, same: Sequence[str]) -> Finding:
    samples, first = run.samples, wrong.iloc[0]
    if cpus == (_NO_CORE,):
        plan = run.provenance.get("plan", {})
        cpus = tuple(run.provenance.get("cpus") or plan.get("cpus") or ())
    elif "cpu" in samples:
        samples = samples[samples["cpu"].isin(cpus)]
    count, of = wrong["round"].nunique(), samples["round"].nunique()
    names = [name for name in same if name in samples and name != "round"]
    row = run.samples.loc[wrong.index[0]]
    work = ", ".join(f"{name}={row[name]}" for name in names)
    facts = {
        "expected": first["first"] if pd.isna(first["right"]) else first["right"],
        "found": first["value"],
        "what": work or "the same job",
        "wrong": count,
        "of": f"{of} rounds",
    }
    alone = len(cpus) == 1
    listed = ",".join(map(str, cpus)) or "of the job"
    decision = Decision("inconclusive", (Reason("once"),))
    if count >= WRONG_TIMES:
        decision = Decision("supported", (Reason("repeated"),))
    low, high = clopper_pearson(count, of)
    return (CORE_WRONG if alone else CORES_WRONG).found(
        decision,
        Interval(*(100 * share for share in (count / of, float(low), float(high)))),
        about={"cpu": int(cpus[0])} if alone else {"cpus": listed},
        facts=facts,
        evidence={**facts, "wrong_rounds": count, "wrong_samples": len(wrong), "rounds": of},
    )


def _computed(
    samples: pd.DataFrame, columns: Sequence[Column], same: Sequence[str] | None
) -> pd.DataFrame:
    """The samples of work of which not all results are equal.

    Returns
    -------
    ``work`` (a number), ``cpu``, ``round``, ``used``, ``value``, ``first`` (what was expected) and
    ``right`` (NaN: not known); its index is the samples'.
    """
    texts = {name: _texts(samples, name) for name in ("found", "expected")}
    rows = samples[["round"]].assign(
        cpu=samples.get("cpu", _NO_CORE),
        used=is_used(samples),
        value=texts["found"],
        first=texts["expected"],
        right="",
        work=0,
    )
    if same is None or not (rows["value"] != "").any():
        return rows.iloc[:0]
    keys = [one.name for one in columns if one.role == "key" and one.name in samples]
    number = samples.groupby(keys, dropna=False).cumcount()
    equal = [number if name == SAMPLE else samples[name] for name in same
             if name == SAMPLE or name in samples]  # fmt: skip
    if equal:
        rows["work"] = samples.groupby(equal, dropna=False).ngroup()
    rows = rows[rows[["round", "cpu"]].abs().lt(_MOST_CPU).all(axis=1)]  # unused ones may lack them
    rows, other = rows.astype({"cpu": int}), rows["value"] != ""
    rows = rows[(other | rows["used"]) & rows["work"].isin(rows["work"][other])]
    first = _commonest(rows[rows["value"] != ""], ["work"], "first").drop_duplicates("work")
    rows["first"] = rows["work"].map(first.set_index("work")["first"])
    rows["value"] = rows["value"].where(rows["value"] != "", rows["first"])
    votes = _majority(rows, ["work", "cpu"], "value")
    right = _majority(votes.drop(columns="count"), ["work"], "value").set_index("work")["value"]
    return rows.assign(right=rows["work"].map(right))


def _each(cpus: pd.Series[int]) -> tuple[int, ...]:
    return tuple(sorted(set(cpus)))


def _texts(samples: pd.DataFrame, name: str) -> pd.Series[str]:
    if name not in samples:
        return pd.Series("", samples.index)
    there = samples[name].notna()
    return samples[name].astype(object).where(there, "").astype(str).str.slice(0, _SHOWN)


def _commonest(rows: pd.DataFrame, by: Sequence[str], column: str) -> pd.DataFrame:
    """How often there is each value of a column, the most frequent first."""
    return rows.value_counts([*by, column]).reset_index(name="count")


def _majority(rows: pd.DataFrame, by: Sequence[str], column: str) -> pd.DataFrame:
    """The values that more than half of the rows have."""
    found = _commonest(rows, by, column)
    return found[2 * found["count"] > found.groupby(list(by))["count"].transform("sum")]
