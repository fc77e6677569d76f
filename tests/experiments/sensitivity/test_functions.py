"""`sensitivity` function by function: by simulation, and one real job where perf works."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from perflib.experiments import get
from perflib.experiments.sensitivity import measure
from perflib.model.errors import UserError
from perflib.model.finding import Finding
from tests.experiments.judged import by_subject, codes, made_run
from tests.experiments.layout.functions import SHARES, THREE_FUNCTIONS
from tests.experiments.sensitivity.dose_samples import recorded

EXPERIMENT = get("sensitivity")
GIVEN: dict[str, Any] = {"job": "command", "job_command": "job", "functions": True}


def found(samples: pd.DataFrame) -> dict[str, Finding]:
    return by_subject(EXPERIMENT.analyse(made_run(EXPERIMENT, samples, **GIVEN)))


def of_functions(samples: pd.DataFrame) -> dict[str, Finding]:
    return {name: one for name, one in found(samples).items() if name.startswith("functions, ")}


# --- statistics ----------------------------------------------------------------------------------


def test_null_no_function_suffers_where_all_are_slowed_alike() -> None:
    """At most 5 % of runs, all doses together; of 20 more than 4 would come once in 400 times."""
    named = 0
    for seed in range(20):
        alike = dict.fromkeys(SHARES, 1 + 0.1 * (seed % 2))
        said = of_functions(recorded(seed, alike))
        assert len(said) == 4
        named += any(one.verdict == "supported" for one in said.values())
    assert named <= 4


def test_the_function_that_suffers_is_named_with_its_share_at_its_dose_alone() -> None:
    right = 0
    for seed in range(10):
        said = of_functions(recorded(100 + seed, {"track": 1.25}))
        one = said.pop("functions, traffic")
        right += one.verdict == "supported" and one.facts["function"] == "track"
        right -= any(other.verdict == "supported" for other in said.values())
    assert right >= 8
    one = of_functions(recorded(3, {"track": 1.25}, rounds=60, bursts=0.0))["functions, traffic"]
    assert one.facts["longer"].low < 25 < one.facts["longer"].high + 2
    assert "track (the program) takes 2" in one.plain
    assert "longer while others write 9.7" in one.plain
    assert "% of the job's slow-down" in one.plain
    assert one.evidence["share_of_additional_percent"] == pytest.approx(100, abs=30)


def test_where_all_but_a_few_suffer_these_are_named() -> None:
    grown = dict.fromkeys(SHARES.keys() - {"field"}, 1.3)
    one = of_functions(recorded(5, grown, bursts=0.0, rounds=40))["functions, traffic"]
    assert one.verdict == "supported"
    assert one.plain.startswith("Functions that suffer less while others write")
    assert ": field; the others take" in one.plain
    _, low, high = one.evidence["common_percent"][:3]
    assert low < 30 < high


def test_one_function_alone_is_no_evidence_and_whole_jobs_are_judged_as_without() -> None:
    rows = recorded(4, rounds=12)
    few = rows[rows["symbol"].isna() | rows["symbol"].isin(["track", "field"])]
    said = found(few)
    assert codes(said["functions, traffic"])[0] == "too_few_functions"
    assert said["functions, traffic"].verdict == "inconclusive"
    assert set(found(rows.drop(columns="count"))) == set(found(rows)) - set(of_functions(rows))
    starts = rows.drop_duplicates(["round", "program", "dose", "level"]).drop(columns="symbol")
    without = by_subject(EXPERIMENT.analyse(made_run(EXPERIMENT, starts)))
    for name, one in without.items():
        assert (one.effect, one.low) == (found(rows)[name].effect, found(rows)[name].low)


def test_the_table_has_each_function_at_each_dose() -> None:
    run = made_run(EXPERIMENT, recorded(6, {"sort": 1.5}), **GIVEN)
    table = EXPERIMENT.derived(run)["functions"]()
    assert set(table["dose"]) == {"traffic", "occupied", "small_pages", "alone"}
    assert (table.groupby("dose")["function"].nunique() == 10).all()
    assert (table["library"] == "the program").all()
    sort = table[(table["function"] == "sort") & (table["dose"] == "traffic")].iloc[0]
    assert sort["longer_percent_low"] < sort["longer_percent"] < sort["longer_percent_high"]


# --- bad input, and real -------------------------------------------------------------------------


def test_without_perf_it_is_said_before_it_measures(monkeypatch: pytest.MonkeyPatch) -> None:
    which = shutil.which
    monkeypatch.setattr(
        shutil, "which", lambda one, *_, **__: None if one == "perf" else which(one)
    )
    params = EXPERIMENT.params({**GIVEN, "job_command": "/bin/true"})
    with pytest.raises(UserError, match="functions cannot be compared: perf is not installed"):
        EXPERIMENT.plan(params)


@pytest.mark.skipif(bool(get("event_profile").unavailable()), reason="perf cannot record here")
def test_a_program_is_recorded_at_each_dose(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    monkeypatch.setattr(measure, "_LEAST_BYTES", 8 << 20)
    monkeypatch.setattr(measure, "_cache_bytes", lambda *_: 2 << 20)
    (tmp_path / "job.c").write_text(THREE_FUNCTIONS)
    argv = [compiler, "-O1", "-DN=30000", "-DEXTRA=0", "job.c", "-o", "job"]
    subprocess.run(argv, cwd=tmp_path, check=True)
    given: dict[str, Any] = {
        **GIVEN, "job_command": str(tmp_path / "job"), "budget_s": 1.0, "trial_s": 0.02,
        "traffic": [100], "occupied": [100],
    }  # fmt: skip
    run = EXPERIMENT.measure(EXPERIMENT.params(given))
    rows = run.samples[run.samples["symbol"].notna()]
    assert {"mix", "track", "step"} <= set(rows["symbol"])
    assert set(rows["program"]) == {"job"}
    assert (rows.loc[rows["symbol"] == "track", "object"] == "the program").all()
    assert len(EXPERIMENT.analyse(run)) >= 4
