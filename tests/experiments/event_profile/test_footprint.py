"""More code on one core than on another: copies of functions, and what only looks like them."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import pytest

from perflib.experiments import get
from perflib.experiments.event_profile.claims import FOOTPRINT
from perflib.model.finding import Finding
from perflib.model.run import Run
from tests.experiments.event_profile.profiles import FUNCTIONS, samples
from tests.instruments.perf.test_recorder import needs_perf

EVENT = get("event_profile")
LINES = 40  # of each function
COUNTS = {0: 700, 1: 400, 2: 550}  # samples of a trial, by core


def profile(
    seed: int = 1,
    *,
    copies: Mapping[int, int] | None = None,
    cores: int = 2,
    rounds: int = 12,
    fewer: float = 1.0,
    noise: float = 0.15,
) -> pd.DataFrame:
    """Rows of a program with so many copies of its functions on a core (elsewhere 4).

    Functions' shares differ from core to core and from trial to trial; within a function some lines
    are hot. Cores have different numbers of samples.
    """
    generator = np.random.default_rng(seed)
    hot = 1 / np.arange(1.0, LINES + 1)
    parts = []
    for core in range(cores):
        own = np.exp(generator.normal(0, noise, len(FUNCTIONS)))
        for round_ in range(rounds):
            share = own * np.exp(generator.normal(0, noise, len(FUNCTIONS)))
            count = round(COUNTS[core] * fewer)
            function = generator.choice(len(FUNCTIONS), count, p=share / share.sum())
            copy = generator.integers((copies or {}).get(core, 4), size=count)
            line = generator.choice(LINES, count, p=hot / hot.sum())
            names = [f"{FUNCTIONS[f]}_{c:04d}" for f, c in zip(function, copy, strict=True)]
            parts.append(
                pd.DataFrame(
                    {
                        "round": round_,
                        "core": core,
                        "symbol": names,
                        "period": 500_000,
                        "event": "cpu-clock",
                        "object": "/usr/bin/job",
                        "offset": 64 * line + 4 * generator.integers(16, size=count),
                    }
                )
            )
    return pd.concat(parts, ignore_index=True)


def run_of(table: pd.DataFrame, name: str = "r", **params: Any) -> Run:
    return EVENT.current(Run(name, "event_profile", params, table))


def code_size(findings: list[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.of is FOOTPRINT]


def found_in(table: pd.DataFrame, **params: Any) -> Finding:
    (finding,) = code_size(EVENT.analyse(run_of(table, **params)))
    return finding


# --- what is there, and what is not --------------------------------------------------------------


@functools.cache
def nulls() -> tuple[Finding, ...]:
    return tuple(found_in(profile(seed)) for seed in range(20))


def test_null_the_same_code_is_never_more() -> None:
    verdicts = [finding.verdict for finding in nulls()]
    assert verdicts.count("supported") <= 1
    assert verdicts.count("refuted") >= 19
    covered = sum(finding.low <= 0 <= finding.high for finding in nulls())
    assert covered >= 16


@pytest.mark.parametrize("core", [0, 1])
def test_eight_times_the_copies_are_found_though_no_function_stands_out(core: int) -> None:
    table = profile(copies={core: 32}, noise=0.02)
    findings = EVENT.analyse(run_of(table, reference_core=1 - core))
    (finding,) = code_size(findings)
    assert finding.verdict == "supported"
    assert finding.kind == "description"
    assert finding.low > 100
    assert finding.plain.startswith(f"On cpu{core} the event runs through ")
    assert finding.plain.endswith(f" more code than on cpu{1 - core}")
    (standing,) = (one for one in findings if one.of.name == "stands_out")
    assert standing.verdict != "supported"
    less = found_in(table, reference_core=core)
    assert less.verdict == "refuted"
    assert less.effect < -50
    assert "or less" in less.plain


def test_every_core_has_its_finding() -> None:
    findings = code_size(EVENT.analyse(run_of(profile(cores=3, copies={2: 32}))))
    assert [(one.subject, one.verdict) for one in findings] == [
        ("cpu1 code size", "refuted"),
        ("cpu2 code size", "supported"),
    ]
    assert findings[1].about == {"core": "cpu2", "first": "cpu0", "second": "cpu2"}


def test_the_kernels_code_is_not_the_events() -> None:
    table = profile()
    interrupts = profile(9, copies={1: 400})
    for name in ("[kernel.kallsyms]", "[nf_tables]", "[vdso]"):
        both = pd.concat([table, interrupts[interrupts["core"] == 1].assign(object=name)])
        assert found_in(both).evidence == found_in(table).evidence
    both = pd.concat([table, interrupts.assign(object="/usr/lib/libm.so.6")])
    assert found_in(both).verdict == "supported"


# --- what cannot be known ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "table", [profile().drop(columns="offset"), profile().assign(offset=-1), samples(rounds=6)]
)
def test_without_places_in_the_code_nothing_is_said(table: pd.DataFrame) -> None:
    assert code_size(EVENT.analyse(run_of(table))) == []


def test_of_one_core_nothing_is_said() -> None:
    assert code_size(EVENT.analyse(run_of(profile(cores=1)))) == []


def test_places_that_are_mostly_unknown_decide_nothing() -> None:
    table = profile(copies={1: 32})
    unknown = table["offset"].mask((table["core"] == 1) & (table.index % 2 == 0), -1)
    finding = found_in(table.assign(offset=unknown))
    assert finding.verdict == "inconclusive"
    assert "Of 50 % of the samples it is known" in finding.reason
    only_one = found_in(table.assign(offset=table["offset"].where(table["core"] == 0, -1)))
    assert only_one.verdict == "inconclusive"
    json.dumps(only_one.to_dict(), allow_nan=False)


@pytest.mark.parametrize("rounds", [1, 2, 4])
def test_few_rounds_decide_nothing(rounds: int) -> None:
    finding = found_in(profile(copies={1: 32}, rounds=rounds))
    assert finding.verdict == "inconclusive"
    assert f"It takes 5 rounds or more with both, and there are {rounds}." in finding.reason
    json.dumps(finding.to_dict(), allow_nan=False)


def test_few_samples_decide_nothing() -> None:
    few = found_in(profile(copies={1: 32}, fewer=0.04))
    assert few.verdict == "inconclusive"
    assert "It takes 200 samples or more of each" in few.reason
    # So few of two large programs fall on other lines each time, whatever their sizes.
    large = found_in(profile(copies={0: 1000, 1: 2000}, fewer=0.2))
    assert large.verdict == "inconclusive"
    assert "fell on code not met before" in large.reason


def test_rounds_in_which_a_core_is_missing_are_left_out() -> None:
    table = profile()
    finding = found_in(table[(table["core"] == 0) | (table["round"] % 2 == 0)])
    assert finding.evidence["rounds"] == 6


# --- measured ------------------------------------------------------------------------------------


@needs_perf
@pytest.mark.slow
def test_a_larger_build_is_found() -> None:
    core = min(os.sched_getaffinity(0))
    short = {"budget_s": 12.0, "event_ms": 300.0, "frequency_hz": 5000, "cores": [core]}
    small, large = (
        EVENT.measure(EVENT.Params.make({**short, "code_kib": kib})) for kib in (100, 2048)
    )
    (finding,) = code_size(EVENT.compare(small, large))
    assert finding.effect > 25, finding.reason
    enough = finding.evidence["rounds"] >= 5  # a busy machine has fewer in this time
    assert finding.verdict == ("supported" if enough else "inconclusive"), finding.reason
