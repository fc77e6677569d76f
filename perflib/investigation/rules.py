"""The plan of an investigation as a table, ``rules.toml``: which run, when, and why.

The rules are walked from the top. A rule whose sign holds, and that was not taken yet, gives the
next step: its run's parameters are those of the preset ``quick``, changed by ``params``, in which
``{...}`` stands for what the sign gives. A rule that cannot be followed here (``needs``), or for
which too little time is left, is left out with a reason. To change the plan, change the table; the
tests walk it.
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perflib import experiments
from perflib.investigation.evidence import Evidence, Part, Step, Taken
from perflib.investigation.signs import Seen, evaluate

NO_TIME = "there was no time left"


@dataclass(frozen=True)
class Rule:
    """One line of the plan.

    Parameters
    ----------
    name
        The step's name.
    when
        The sign for which it holds.
    experiment, params
        The run, by parameters of the preset ``quick`` and those that the sign gives.
    why
        What is looked for, in a sentence for the reader.
    least_s, most_s
        Of measuring. With less than the first nothing is decided: the step is left out.
    per_core_s
        More of it for each core beyond two.
    around_s
        What it takes besides, about: to compile, to start, to analyse.
    """

    name: str
    part: Part
    when: str
    experiment: str
    why: str
    least_s: float
    most_s: float
    params: Mapping[str, Any]
    per_core_s: float = 0.0
    around_s: float = 5.0


def _rules() -> Sequence[Rule]:
    plan = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    found = []
    for table in plan["rules"]:
        more = plan["sets"][table.pop("with")] if "with" in table else {}
        found.append(Rule(**{**table, "params": {**table.get("params", {}), **more}}))
    return found


RULES = _rules()


def next_step(evidence: Evidence, left_s: float, *, replayed: bool = False) -> Step | Taken | None:
    """The first rule that holds and was not taken.

    Parameters
    ----------
    left_s
        The time that is left for measuring.
    replayed
        Nothing is measured: what this machine could measure does not matter.

    Returns
    -------
    A step to take; one that is left out, with its reason; or ``None``: the plan is at its end.
    """
    for rule in RULES:
        if evidence.step(rule.name) is not None:
            continue
        for seen in evaluate(rule.when, evidence)[:1]:
            return _step(rule, seen, evidence, left_s, replayed=replayed)
    return None


def _step(
    rule: Rule, seen: Seen, evidence: Evidence, left_s: float, *, replayed: bool
) -> Step | Taken:
    values = _values(evidence, seen)
    more_s = rule.per_core_s * max(0, len(evidence.compared) - 2)
    possible_s = left_s - rule.around_s
    budget_s = round(max(rule.least_s, min(rule.most_s + more_s, possible_s)), 1)
    params = {
        name: _filled(value, values)
        for name, value in {**rule.params, "budget_s": budget_s}.items()
        if not (name in ("job_begin", "job_end") and not _filled(value, values))
    }
    step = Step(rule.name, rule.part, rule.why.format(**values), rule.experiment, params, budget_s)
    if replayed:
        return step
    if possible_s < rule.least_s:
        return Taken(step, skipped=NO_TIME)
    if why := experiments.get(rule.experiment).unavailable():
        return Taken(step, skipped=why)
    return step


def _values(evidence: Evidence, seen: Seen) -> dict[str, Any]:
    """What templates may name: the question's, the machine's, the sign's."""
    question = evidence.question
    values: dict[str, Any] = {
        **dataclasses.asdict(question),
        "compared": ",".join(map(str, evidence.compared)),
        "first": evidence.compared[0],
        "groups": "all" if len(evidence.cores) <= 2 else "groups",
        **seen,
    }
    event = values.get("event")
    values["event_or_73"] = 73 if event is None else event
    values["event_or_costliest"] = event
    if event is None and evidence.run("job") is not None:
        values["event_or_costliest"] = _costliest(evidence)
    return values


def _costliest(evidence: Evidence) -> int:
    run = evidence.run("job")
    assert run is not None
    medians = run.samples.groupby("event")["time_ns"].median()
    return int(medians.index.to_numpy()[int(medians.to_numpy().argmax())])


def _filled(value: Any, values: Mapping[str, Any]) -> Any:
    """A parameter; a template that is one placeholder keeps its value as it is."""
    if not isinstance(value, str) or not value.startswith("{"):
        return value
    return values[value[1:-1]]
