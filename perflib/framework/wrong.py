"""Wrong results: which samples computed them, on which core, and the findings.

What is right is decided by the cores: each votes, for each piece of work, for the result of more
than half of its samples, and what more than half of the votes are for is right. Without that (two
cores that disagree each time) one of them is wrong, and which is not known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from perflib.framework.results import CORE_WRONG, CORES_WRONG, SAMPLE, WRONG_TIMES
from perflib.framework.schema import Column, is_used
from perflib.model.finding import Finding
from perflib.model.run import Run
from perflib.stats.counted import clopper_pearson
from perflib.stats.decide import Decision, Reason
from perflib.stats.interval import Interval

_NO_CORE = -1  # of a job that ran on several
_MOST_NUMBER = 2**31  # of a core, a round
_SHOWN = 40  # characters of a result


def marked(
    samples: pd.DataFrame, columns: Sequence[Column], same: Sequence[str] | None
) -> pd.DataFrame:
    """The samples, as ``checked`` returns them, of which those that are wrong are not used.

    ``columns`` and ``same`` are the experiment's: samples that agree in ``same`` did equal work.
    """
    if same is None or "found" not in samples:
        return samples
    rows = _computed(samples, columns, same)
    lost = rows[rows["used"] & (rows["value"] != rows["right"])]
    if lost.empty:
        return samples
    used = pd.Series(is_used(samples), samples.index).where(~samples.index.isin(lost.index), False)
    right = lost["right"].astype(object).where(lost["right"].notna(), lost["first"])
    now = {"expected": right, "found": lost["value"]}
    texts = {name: values.combine_first(samples[name]) for name, values in now.items()}
    return samples.assign(ok=used, **texts)


def findings(run: Run, columns: Sequence[Column], same: Sequence[str] | None) -> list[Finding]:
    """One of each core that computed wrong, the worst first. Two rounds support it, one does not.

    It is no small effect that chance may have made: it has neither a threshold nor a p value, and
    so takes no part in a correction over several claims.
    """
    if same is None or "found" not in run.samples:
        return []
    rows = _computed(run.samples, columns, same)
    known, wrong = rows["right"].notna(), rows["value"] != rows["right"]
    by_cpus: dict[Any, pd.DataFrame] = {
        (cpu,): mine for cpu, mine in rows[known & wrong].groupby("cpu")
    }
    suspects = {work: tuple(sorted({*mine})) for work, mine in rows[~known].groupby("work")["cpu"]}
    differ = rows[~known & (rows["value"] != rows["first"])]
    for cpus, mine in differ.groupby(differ["work"].map(suspects)):
        by_cpus[cpus] = pd.concat([by_cpus.get(cpus), mine]).sort_index()
    if len(rows) and not by_cpus:  # all agree, but not with the pilot, which no sample is of
        pilot = rows.iloc[:1].assign(right=rows["value"], value=rows["first"])
        by_cpus[tuple(sorted({*rows["cpu"]}))] = pilot
    found = [_finding(run, cpus, mine, same) for cpus, mine in by_cpus.items()]
    return sorted(found, key=lambda one: -one.facts["wrong"])


def _finding(run: Run, cpus: tuple[int, ...], wrong: pd.DataFrame, same: Sequence[str]) -> Finding:
    samples, first = run.samples, wrong.iloc[0]
    if cpus == (_NO_CORE,):
        cpus = tuple(run.provenance.get("cpus") or run.provenance.get("plan", {}).get("cpus") or ())
    else:
        samples = samples[samples["cpu"].isin(cpus)]
    count, of = wrong["round"].nunique(), samples["round"].nunique()
    row = run.samples.loc[wrong.index[0]]
    work = ", ".join(f"{name}={row[name]}" for name in same if name in row and name != "round")
    facts = {
        "expected": first["first"] if pd.isna(first["right"]) else first["right"],
        "found": first["value"],
        "what": work or "the same job",
        "wrong": count,
        "of": f"{of} rounds",
    }
    decision = Decision("inconclusive", (Reason("once"),))
    if count >= WRONG_TIMES:
        decision = Decision("supported", (Reason("repeated"),))
    share, low, high = (100 * float(one) for one in (count / of, *clopper_pearson(count, of)))
    alone, listed = len(cpus) == 1, ",".join(map(str, cpus)) or "of the job"
    return (CORE_WRONG if alone else CORES_WRONG).found(
        decision,
        Interval(share, low, high),
        about={"cpu": int(cpus[0])} if alone else {"cpus": listed},
        facts=facts,
        evidence={**facts, "samples": len(wrong)},
    )


def _computed(
    samples: pd.DataFrame, columns: Sequence[Column], same: Sequence[str]
) -> pd.DataFrame:
    """The samples of work of which not all results are equal; its index is theirs.

    ``work`` (a number), ``cpu``, ``round``, ``used``, ``value``, ``first`` (what was expected) and
    ``right`` (NaN: not known).
    """
    rows = pd.DataFrame(
        {
            "work": 0,
            "cpu": samples.get("cpu", _NO_CORE),
            "round": samples["round"],
            "used": is_used(samples),
            "value": _texts(samples, "found"),
            "first": _texts(samples, "expected"),
        }
    )
    keys = [one.name for one in columns if one.role == "key" and one.name in samples]
    known = samples.assign(**{SAMPLE: samples.groupby(keys, dropna=False).cumcount()})
    if equal := [name for name in same if name in known]:
        rows["work"] = known.groupby(equal, dropna=False).ngroup()
    # What is not used may lack its round.
    rows = rows[rows[["round", "cpu"]].abs().lt(_MOST_NUMBER).all(axis=1)].astype({"cpu": int})
    other = rows["value"] != ""
    rows = rows[(other | rows["used"]) & rows["work"].isin(rows["work"][other])]
    first = rows[rows["value"] != ""].value_counts(["work", "first"]).reset_index()
    rows["first"] = rows["work"].map(first.drop_duplicates("work").set_index("work")["first"])
    rows["value"] = rows["value"].where(rows["value"] != "", rows["first"])
    votes = _majority(rows, ["work", "cpu"])
    return rows.assign(
        right=rows["work"].map(_majority(votes, ["work"]).set_index("work")["value"])
    )


def _texts(samples: pd.DataFrame, name: str) -> pd.Series[str]:
    values = samples.get(name, pd.Series("", samples.index)).astype(object)
    return values.where(values.notna(), "").astype(str).str.slice(0, _SHOWN)


def _majority(rows: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """The values that more than half of the rows have."""
    found = rows.value_counts([*by, "value"]).reset_index(name="rows")
    return found[2 * found["rows"] > found.groupby(by)["rows"].transform("sum")]


def wrong_twice(found: Sequence[Sequence[Finding]]) -> list[list[Finding]]:
    """The findings of several runs: what was wrong once in each of two was wrong twice."""

    def once(one: Finding) -> bool:
        return one.of in (CORE_WRONG, CORES_WRONG) and one.verdict == "inconclusive"

    runs = Counter(one.subject for findings in found for one in findings if once(one))

    def judged(one: Finding) -> Finding:
        if not once(one) or runs[one.subject] < WRONG_TIMES:
            return one
        facts = {**one.facts, "wrong": runs[one.subject], "of": f"{len(found)} runs"}
        return replace(one, verdict="supported", reasons=(Reason("repeated"),), facts=facts)

    return [[judged(one) for one in findings] for findings in found]
