"""The plan of an investigation as a table: which run, when, and why.

The rules are walked from the top. A rule whose sign holds, and that was not taken yet, gives the
next step: its run's parameters are those of the preset ``quick``, changed by ``params``, in which
``{...}`` stands for what the sign gives. A rule that cannot be followed here (``needs``), or for
which too little time is left, is left out with a reason. To change the plan, change the table; the
tests walk it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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
    params: Mapping[str, Any] = field(default_factory=dict)
    per_core_s: float = 0.0
    around_s: float = 5.0


_JOB = {"job": "command", "job_command": "{job}", "job_begin": "{begin}", "job_end": "{end}"}

# One order on one kind of pages, and no array so large that placing it takes longer than timing it.
_ARRAYS = {"orders": "window", "backings": "huge", "largest_mib": 256}

RULES: Sequence[Rule] = (
    # --- symptom: is any core slow, and is it the core's own fault?
    Rule(
        "symptom", "symptom", "always", "kv_per_core",
        "The same simulated events on every core, each sample with its core alone or not: is any "
        "core slow in itself, and what takes the time of the others?",
        8, 28, {"cores": "{compared}"}, per_core_s=1.5,
    ),
    Rule(
        "job", "symptom", "a job is given", "kv_per_core",
        "The same events of your job on every core: is it slow where our own is not?",
        10, 50, {"cores": "{compared}", "events": "{events}", **_JOB}, per_core_s=3,
    ),
    Rule(
        "symptom again", "symptom", "a result was wrong once", "kv_per_core",
        "One result was wrong ({subject}), which decides nothing. Once more, for longer.",
        15, 60, {"cores": "{compared}", "seed": 2}, per_core_s=1.5,
    ),
    Rule(
        "symptom again", "symptom", "open whether a core is slow", "kv_per_core",
        "cpu{cpu} against the others: {estimate}, which decides nothing. Once more, for longer.",
        15, 60, {"cores": "{compared}", "seed": 2}, per_core_s=1.5,
    ),
    # --- cause: what makes that core slow?
    Rule(
        "instructions", "cause", "a result was wrong", "correctness",
        "A result was wrong ({subject}): which instructions compute wrong, and how often?",
        5, 30, {"cores": "{compared}"}, per_core_s=0.5,
    ),
    Rule(
        "profile", "cause", "a core is slow in KV", "event_profile",
        "cpu{cpu} is slow ({estimate}): which functions take the additional time there, compared "
        "with cpu{against}?",
        20, 60, {"cores": "{pair}", "reference_core": "{against}", "event": "{event_or_73}"},
    ),
    Rule(
        "profile", "cause", "a core is slow in the job", "event_profile",
        "Your job is slow on cpu{cpu} ({estimate}): which of its functions take the additional "
        "time there, compared with cpu{against}?",
        20, 70,
        {
            "cores": "{pair}", "reference_core": "{against}", "event": "{event_or_costliest}",
            "events_before": 1, **_JOB,
        },
    ),
    Rule(
        "addresses", "cause", "starts of the job differ", "kv_per_core",
        "Starts of your job differ by {spread:.0f} %, its events within a start do not. The same "
        "with fixed addresses: does the place of its data decide?",
        15, 60,
        {"cores": "{compared}", "events": "{events}", "aslr": False, **_JOB},
    ),
    Rule(
        "aliasing", "cause", "starts of the job differ", "alias_map",
        "Does this processor make a load wait for a store 4 KiB away?",
        5, 15, {"cores": "{first}"},
    ),
    Rule(
        "calls", "cause", "larger code runs on a slow core", "random_calls",
        "More code runs on cpu{cpu}: what do calls into so much of it cost here, and is it the "
        "instruction TLB?",
        12, 30, {"cores": "{pair}", "sizes_kib": "{sizes}"},
    ),
    Rule(
        "calls", "cause", "a core is slow by itself", "random_calls",
        "cpu{cpu} is slow ({estimate}): is it where code no longer fits into its caches?",
        12, 30, {"cores": "{pair}"},
    ),
    Rule(
        "code pages", "cause", "a core is slow by itself", "code_segment",
        "cpu{cpu} is slow ({estimate}): does it miss in its instruction TLB? The same code on "
        "pages of 4 KiB and of 2 MiB.",
        20, 45, {"cores": "{pair}", "simulated_sizes": 0}, around_s=12,
    ),
    Rule(
        "memory", "cause", "a core is slow by itself", "memory_levels",
        "cpu{cpu} is slow ({estimate}): does it wait longer for its caches, or for memory?",
        20, 40, {"cores": "{pair}", **_ARRAYS}, around_s=10,
    ),
    Rule(
        "nodes", "cause", "a core is slow and there are several nodes", "numa",
        "cpu{cpu} is slow ({estimate}): is it far from the memory that it gets?",
        10, 30, {"cores": "{pair}"},
    ),
    Rule(
        "buffers", "cause", "buffers stand out in the profile", "alias_map",
        "{function} stands out, which moves buffers: do loads wait for stores 4 KiB away here?",
        3, 8, {"cores": "{pair}"},
    ),
    # --- map: what this machine is like, where there is nothing to explain
    Rule(
        "levels", "map", "nothing is slow", "memory_levels",
        "Nothing to explain: how large are the caches in truth, how far is memory?",
        20, 45, {"cores": "{first}", **_ARRAYS}, around_s=10,
    ),
    Rule(
        "iTLB reach", "map", "nothing is slow", "code_segment",
        "From which size on does code pay for the instruction TLB?",
        20, 45, {"cores": "{first}", "patterns": "chase,line", "simulated_sizes": 0}, around_s=8,
    ),
    Rule(
        "lines", "map", "nothing is slow", "coherence",
        "What does a line cost that another core has, and do cores form groups?",
        5, 15, {"cores": "{groups}"}, per_core_s=0.2,
    ),
    Rule(
        "distances", "map", "nothing is slow and there are several nodes", "numa",
        "How far is each node's memory from each core?",
        10, 30,
    ),
    Rule(
        "store and load", "map", "nothing is slow", "alias_map",
        "Does a load wait for a store 4 KiB away?",
        3, 6, {"cores": "{first}"},
    ),
)  # fmt: skip


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
