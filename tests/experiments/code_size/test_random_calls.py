"""random_calls as its user meets it: the first synthetic benchmark of Guerri et al. 2015."""

from __future__ import annotations

import os

import numpy as np
import pytest

from perflib.experiments import get
from tests.experiments.code_size.code_samples import KIB, by_subject, findings, samples

CALLS = get("random_calls")
SIZES = (8, 16, 64, 128, 512, 1024, 2048, 3072)

needs_this_processor = pytest.mark.skipif(bool(CALLS.unavailable()), reason=CALLS.unavailable())


# --- analysis ------------------------------------------------------------------------------------


def test_null_code_of_one_price_has_no_step() -> None:
    made = samples(sizes_kib=SIZES, walk_ns=0.0)
    noise = np.random.default_rng(3).normal(0, 0.01, len(made))
    flat = made.assign(time_ns=made["steps"] * 3.0 * np.exp(noise))
    named = by_subject(findings(flat, "random_calls"))
    assert {finding.verdict for finding in named.values()} == {"refuted"}


# --- for real ------------------------------------------------------------------------------------


@needs_this_processor
def test_a_short_run_calls_functions_of_the_size_requested() -> None:
    given = {
        "budget_s": 0.4, "trial_ms": 1.0, "functions": 256, "function_bytes": 192,
        "sizes_kib": [6, 48], "cores": [min(os.sched_getaffinity(0))],
    }  # fmt: skip
    run = CALLS.measure(CALLS.params(given))
    table = run.samples
    assert table["ok"].all()
    assert set(table["pattern"]) == {"random"}
    assert set(table["n"]) == {32, 256}
    assert set(table["code_bytes"][table["n"] == 32]) == {6 * KIB}
    assert (table["time_ns"] > 0).all()
    assert run.provenance["kernel"]["define"] == {"FUNCTIONS": 256, "FUNCTION_BYTES": 192}
    assert CALLS.analyse(run)
