"""code_segment as its user meets it: a machine with nothing wrong, two runs, and a real one."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

from perflib.experiments import get
from perflib.experiments.code_size.claims import KNEE
from tests.experiments.code_size.code_samples import (
    KIB,
    by_subject,
    findings,
    machine,
    run_of,
    samples,
)

CODE = get("code_segment")
CORES = range(6, 12)
TINY: dict[str, Any] = {
    "budget_s": 0.6, "trial_ms": 1.0, "sizes_kib": [8, 64], "simulated_sizes": 0,
}  # fmt: skip

needs_this_processor = pytest.mark.skipif(bool(CODE.unavailable()), reason=CODE.unavailable())


def test_null_a_machine_with_nothing_wrong() -> None:
    found = findings(samples(cores=CORES, rounds=40))
    for subject, finding in by_subject(found).items():
        if "cpu" in finding.about:
            assert finding.verdict == "refuted", subject
    slowest = [one for one in found if "of cpu" in str(one.evidence.get("explains"))]
    assert len(slowest) == 4
    assert {finding.verdict for finding in slowest} <= {"refuted", "inconclusive"}


# --- the ring and its control --------------------------------------------------------------------


def test_on_huge_pages_that_are_whole_they_are_the_control() -> None:
    made = samples(cores=(0, 1), patterns=("chase", "line"), rounds=40, walk_ns=3.0)
    generator = np.random.default_rng(2)
    reach = {
        "4k": (np.array([1.0, 6.0]) * generator.normal(1, 0.02, (9, 2))).tolist(),
        "thp": generator.normal(1, 0.02, (9, 2)).tolist(),
    }
    provenance = {"machine": machine(), "plan": {"page_reach": reach}}
    found = by_subject(findings(made, provenance=provenance))
    assert found["huge pages thp"].verdict == "supported"
    assert found["knee"].verdict == "supported"
    assert found["knee"].of is KNEE


# --- two runs ------------------------------------------------------------------------------------


def test_two_runs_of_one_machine_do_not_differ_and_a_core_that_was_mended_does() -> None:
    slow = run_of(samples(1, cores=CORES, lags={8: 0.094}, tails=0.0))
    again = run_of(samples(2, cores=CORES, lags={8: 0.094}, tails=0.0))
    mended = run_of(samples(3, cores=CORES, tails=0.0))
    same = {finding.subject: finding for finding in CODE.compare(slow, again)}
    assert same["cpu8"].verdict == "inconclusive"
    assert same["cpu8"].low < 0 < same["cpu8"].high
    changed = {finding.subject: finding for finding in CODE.compare(slow, mended)}
    assert changed["cpu8"].verdict == "supported"
    assert changed["cpu8"].effect == pytest.approx(-8.6, abs=1)
    assert changed["cpu9"].verdict == "inconclusive"


# --- for real ------------------------------------------------------------------------------------


@needs_this_processor
def test_a_short_run_measures_every_configuration() -> None:
    run = CODE.measure(CODE.params(TINY))
    table = run.samples
    assert table["ok"].all()
    plan = run.provenance["plan"]
    cores = set(plan["cores"])
    assert set(table["cpu"]) == cores <= os.sched_getaffinity(0)
    assert set(table["pattern"]) == {"random", "page", "chase", "line"}
    assert set(table["backing"]) == set(plan["backings"])
    measured = table[table["round"] == 0].groupby(["cpu", "pattern", "n", "backing"]).size()
    assert len(measured) == len(plan["configurations"])
    assert (measured >= 3).all(), "of 0.3 ms each"
    whole = table[table["pattern"].eq("random") & table["n"].eq(8 * KIB // 128)]
    assert set(whole["code_bytes"]) == {8 * KIB}
    assert "simulated" not in run.provenance, "of no size, as requested"
    assert {finding.subject for finding in CODE.analyse(run)} >= {"knee", "pages random"} or (
        plan["backings"] == ["4k"]
    )
