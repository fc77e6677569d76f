"""Evidence as runs would have given it: findings by step, made by the experiments' own claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from perflib.experiments.code_size.claims import SLOWER_L1I_MISSES
from perflib.experiments.event_profile.claims import FOOTPRINT
from perflib.experiments.kv_per_core.claims import (
    CLOCK,
    QUOTA,
    SHARED,
    SLOWER,
    SOFTIRQ,
    STOLEN,
    TAKEN,
    TOTAL,
)
from perflib.experiments.memory_levels.claims import SLOWER_MEMORY
from perflib.framework.results import CORE_WRONG
from perflib.instruments.profile.claims import FUNCTION
from perflib.investigation.evidence import Evidence, Question, Step, Taken
from perflib.investigation.rules import RULES
from perflib.model.claims import EXPLAINS
from perflib.model.finding import Finding
from perflib.model.run import Run
from perflib.stats.decide import Decision, Reason, Verdict
from perflib.stats.interval import Interval

EXPERIMENT = {rule.name: rule.experiment for rule in RULES}
PART = {rule.name: rule.part for rule in RULES}


def evidence(
    question: Question | None = None,
    cores: Sequence[int] = (0, 1),
    fit: Mapping[str, Any] | None = None,
    skipped: Mapping[str, str] | None = None,
    steps: Mapping[str, Sequence[Finding]] | None = None,
    **more: Sequence[Finding],
) -> Evidence:
    """What is known when ``steps``, and ``more``, found this; ``a_b`` stands for "a b"."""
    made = Evidence(question or Question(), list(cores), dict(fit or {}))
    for name, findings in {**(steps or {}), **more}.items():
        made.taken.append(taken(name.replace("_", " ")))
        made._analysed[name.replace("_", " ")] = list(findings)
    made._findings = list(made._analysed.values())
    for name, why in (skipped or {}).items():
        made.taken.append(taken(name, why))
    return made


def taken(name: str, skipped: str = "") -> Taken:
    step = Step(name, PART[name], "why", EXPERIMENT[name], {"budget_s": 30.0}, 30.0)
    run = None if skipped else Run(f"{name}-run", step.experiment, {}, pd.DataFrame())
    return Taken(step, run, 30.0, skipped)


def slower(cpu: int, percent: float, half: float = 0.3, **evidence: Any) -> Finding:
    return SLOWER.decided(
        Interval(percent, percent - half, percent + half),
        1.0,
        about={"cpu": cpu},
        evidence={"events_slower_share": 1.0, "slowest_events": [], "where": None, **evidence},
    )


def wrong(cpu: int, verdict: Verdict = "supported", code: str = "repeated") -> Finding:
    facts = {"expected": "0x1", "found": "0x2", "what": "event=5", "wrong": 3, "of": "40 rounds"}
    return CORE_WRONG.found(Decision(verdict, (Reason(code),)), about={"cpu": cpu}, facts=facts)


def wrong_once(cpu: int) -> Finding:
    return wrong(cpu, "inconclusive", "once")


def total(cpu: int, percent: float, **parts: float) -> Finding:
    beside = {name.replace("_", " "): [p, p - 0.2, p + 0.2] for name, p in parts.items()}
    return TOTAL.decided(
        Interval(percent, percent - 0.5, percent + 0.5),
        1.0,
        about={"cpu": cpu},
        evidence={"relative_to_others": beside},
    )


def share(claim: str, cpu: int, percent: float, half: float = 0.3, **evidence: Any) -> Finding:
    of = {
        "shared": SHARED, "quota": QUOTA, "taken": TAKEN, "stolen": STOLEN, "softirq": SOFTIRQ,
        "clock": CLOCK,
    }  # fmt: skip
    return of[claim].decided(
        Interval(percent, percent - half, percent + half),
        1.0,
        about={"cpu": cpu},
        facts={"share": 0.5, "kind": "NET_RX"},
        evidence={"tasks": [], **evidence},
    )


def task(name: str, percent: float, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "pid": 4711,
        "percent": percent,
        "policy": "normal",
        "nice": 0,
        "bound": True,
        **more,
    }


def healthy(cores: Sequence[int] = (0, 1)) -> list[Finding]:
    return [
        one
        for cpu in cores
        for one in (
            slower(cpu, 0.0),
            total(cpu, 0.0, own_speed=0.0, clock=0.0, sibling=0.0),
            *(share(claim, cpu, 0.1, 0.1) for claim in ("taken", "stolen", "softirq", "shared")),
        )
    ]


def slow_core(cpu: int = 1, percent: float = 12.0) -> list[Finding]:
    return [
        slower(cpu, percent),
        slower(0, -percent / 1.12),
        total(cpu, percent, own_speed=percent, clock=0.0, sibling=0.0),
        total(0, -percent / 1.12, own_speed=-percent / 1.12),
    ]


def function(name: str, cpu: int) -> Finding:
    return FUNCTION.found(
        Decision("supported", (Reason("clear"),)),
        Interval(30.0, 20.0, 40.0),
        about={"core": "", "first": "cpu0", "second": f"cpu{cpu}", "function": name},
        facts={"change": "more", "of_event": Interval(9.0, 7.0, 11.0)},
        evidence={"of_event_percent": 9.0},
    )


def footprint(cpu: int) -> Finding:
    return FOOTPRINT.decided(
        Interval(300.0, 280.0, 320.0),
        25.0,
        about={"core": "", "first": "cpu0", "second": f"cpu{cpu}"},
        evidence={"lines": [4000, 16000], "code_bytes": [256_000, 1_024_000]},
    )


def explains(cause: str, cpu: int, verdict: str = "supported") -> Finding:
    low, high = {"supported": (70, 95), "refuted": (0, 20), "inconclusive": (20, 80)}[verdict]
    return EXPLAINS.decided(
        Interval((low + high) / 2, low, high),
        50.0,
        about={"cause": cause, "explains": f"the extra time of cpu{cpu} with large code"},
    )


def with_l1i_misses(cpu: int, verdict: str) -> Finding:
    ends = {"supported": (12, 10, 14), "refuted": (0.2, -0.3, 0.7)}[verdict]
    return SLOWER_L1I_MISSES.decided(
        Interval(*ends),
        1.0,
        about={"cpu": cpu, "pattern": "random"},
        facts={"code_bytes": 1 << 16, "to_bytes": 1 << 18, "missing_percent": 50.0},
    )


def slow_memory(cpu: int) -> Finding:
    return SLOWER_MEMORY.decided(
        Interval(40.0, 30.0, 50.0), 5.0, about={"cpu": cpu, "array_bytes": 1 << 26}
    )
