"""random_calls as its user meets it: the first synthetic benchmark of Guerri et al. 2015."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from perflib.experiments import get
from perflib.model.errors import UserError
from perflib.model.store import load
from tests.experiments.code_size.code_samples import KIB, by_subject, findings, samples, suspects

CALLS = get("random_calls")
SIZES = (8, 16, 64, 128, 512, 1024, 2048, 3072)

needs_this_processor = pytest.mark.skipif(bool(CALLS.unavailable()), reason=CALLS.unavailable())


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERFLIB_HOME", str(tmp_path))
    monkeypatch.setenv("PERFLIB_PROGRESS", "none")


# --- analysis ------------------------------------------------------------------------------------


def test_a_slow_core_and_what_acquits_the_caches() -> None:
    found = findings(samples(cores=range(6, 11), sizes_kib=SIZES, lags={8: 0.094}), "random_calls")
    named = by_subject(found)
    supported = [name for name, finding in named.items() if finding.verdict == "supported"]
    assert supported == ["cpu8", "L1i", "L2", "pages random"]
    assert suspects(found, "cpu8")["iTLB misses"].verdict == "supported"
    assert suspects(found, "cpu8")["instruction cache misses"].verdict == "refuted"


def test_a_step_beyond_each_cache() -> None:
    named = by_subject(findings(samples(sizes_kib=SIZES), "random_calls"))
    assert "fits into L1i (32 KiB)" in named["L1i"].claim
    assert "fits into L2 (256 KiB)" in named["L2"].claim
    assert named["L1i"].evidence["backing"] == "thp"
    assert "L3" not in named, "no size is beyond it"


def test_null_code_of_one_price_has_no_step() -> None:
    made = samples(sizes_kib=SIZES, walk_ns=0.0)
    flat = made.assign(time_ns=made["steps"] * 3.0 * np.exp(noise(len(made))))
    named = by_subject(findings(flat, "random_calls"))
    assert {finding.verdict for finding in named.values()} == {"refuted"}


def noise(count: int) -> Any:
    return np.random.default_rng(3).normal(0, 0.01, count)


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
    pd.testing.assert_frame_equal(load(run.id).samples, table, check_dtype=False)
    assert CALLS.analyse(run)


@needs_this_processor
def test_more_functions_than_were_built_are_refused() -> None:
    given = {"functions": 64, "function_bytes": 512, "sizes_kib": [8, 64]}
    with pytest.raises(UserError, match=r"64 KiB is not available .* from 1 to 32 KiB"):
        CALLS.plan(CALLS.params(given))
