"""Two builds function by function: statistics by simulation, and one real pair where perf works."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from perflib.experiments import get
from perflib.experiments.layout.functions import BuildProfiles
from perflib.experiments.layout.table import LayoutTable
from perflib.model.errors import UserError
from perflib.model.finding import Finding
from tests.experiments.judged import by_claim, supported
from tests.experiments.layout.functions import SHARES, THREE_FUNCTIONS, recorded, run_of
from tests.experiments.layout.test_programs import compiler, measured

EXPERIMENT = get("layout")


def compared(samples: pd.DataFrame, code: Mapping[str, Any] | None = None) -> pd.DataFrame:
    found = BuildProfiles(samples, code or {}).functions
    assert found is not None
    return found.table


# --- statistics ----------------------------------------------------------------------------------


@pytest.mark.parametrize("layout_effect", [0.0, 0.02])
def test_equal_builds_have_no_function_that_stands_out(layout_effect: float) -> None:
    """At most 5 % of runs; of 60 more than 8 would come once in 400 times."""
    named = [
        bool(compared(recorded(seed, layout_effect=layout_effect))["stands_out"].any())
        for seed in range(60)
    ]
    assert sum(named) <= 8


def test_a_function_of_a_fifth_that_costs_a_tenth_more_is_named_first() -> None:
    first = 0
    for seed in range(30):
        lead = compared(recorded(1000 + seed, {"track": 1.1})).iloc[0]
        first += bool(lead["stands_out"]) and lead["function"] == "track"
    assert first >= 22  # 9 of 10 are expected: fewer than 22 of 30 would come once in 300 times


@pytest.mark.parametrize(("noise", "bursts"), [(0.01, 0.25), (0.002, 0.0), (0.03, 0.5)])
def test_the_gate_fires_in_few_of_equal_builds(noise: float, bursts: float) -> None:
    fired = 0
    for seed in range(40):
        run = run_of(recorded(seed, noise=noise, bursts=bursts), fail_above_percent=1.0)
        fired += LayoutTable(run.samples).faster.high < -1.0
    assert fired <= 4  # of 2.5 % or fewer


def test_the_gate_decides_each_way_and_says_what_it_takes() -> None:
    def gate(slower: float, **noise: Any) -> Finding:
        samples = recorded(3, b_less=-slower, layout_effect=0.0, **noise)
        (found,) = by_claim(EXPERIMENT.analyse(run_of(samples, fail_above_percent=1.0)))["gate"]
        return found

    quiet = {"noise": 0.001, "bursts": 0.0}
    assert gate(0.03, **quiet).verdict == "supported"
    assert gate(0.0, **quiet).verdict == "refuted"
    noisy = gate(0.03, noise=0.06, bursts=0.5)
    assert noisy.verdict == "inconclusive"
    assert "budget_s" in noisy.reason or "An hour" in noisy.reason
    assert "2.5 %" in noisy.reason
    samples = recorded(3, b_less=-0.03)
    run = run_of(samples[samples["round"] == samples["round"].min()], fail_above_percent=1.0)
    (few,) = by_claim(EXPERIMENT.analyse(run))["gate"]
    assert few.verdict == "inconclusive"
    assert "would decide it" in few.reason
    assert "An hour" not in few.reason


def test_code_that_only_moved_decides_nothing() -> None:
    samples = recorded(3, b_less=-0.03, noise=0.001, bursts=0.0)
    run = run_of(samples, {"same_code": True}, fail_above_percent=1.0)
    (gate,) = by_claim(EXPERIMENT.analyse(run))["gate"]
    assert gate.verdict == "inconclusive"
    assert gate.effect > 2
    assert "alignment" in gate.reason
    alike = run_of(
        recorded(3, noise=0.001, bursts=0.0), {"same_code": True}, fail_above_percent=1.0
    )
    (gate,) = by_claim(EXPERIMENT.analyse(alike))["gate"]
    assert gate.verdict == "refuted"
    assert "alignment" not in gate.reason
    aligned = recorded(3, {"track": 1.2}, bursts=0.0)
    found = by_claim(EXPERIMENT.analyse(run_of(aligned, {"same_code": True})))
    for one in (*found["functions"], *found["one_function"]):
        assert one.verdict == "inconclusive"
        assert "alignment" in one.reason
    moved = aligned["object"].where(aligned["symbol"] != "track", "/b/libphys.so")
    found = by_claim(EXPERIMENT.analyse(run_of(aligned.assign(object=moved), {"same_code": True})))
    (one,) = found["one_function"]  # of a library, whose code was not compared
    assert (one.about["function"], one.verdict) == ("track", "supported")


def test_one_bad_start_supports_nothing() -> None:
    samples = recorded(5, noise=0.003, bursts=0.0)
    start = (samples["round"] == 7) & (samples["build"] == "B")
    bad = start & (samples["layout"] == samples.loc[start, "layout"].iloc[0])
    worse = samples.assign(
        cpu_s=samples["cpu_s"].where(~bad, samples["cpu_s"] * 4),
        count=samples["count"].where(~bad, samples["count"] * 4),
        period=samples["period"].where(~bad, samples["period"] * 4),
    )
    found = by_claim(EXPERIMENT.analyse(run_of(worse, fail_above_percent=1.0)))
    assert not supported([*found["gate"], *found["functions"]])


# --- what is compared ----------------------------------------------------------------------------


def test_renamed_and_inlined_functions_are_compared_with_what_they_were() -> None:
    samples = recorded(2, bursts=0.0)
    in_b = samples["build"] == "B"
    samples["symbol"] = samples["symbol"].mask(in_b & (samples["symbol"] == "field"), "magnetic")
    samples["symbol"] = samples["symbol"].mask(in_b & (samples["symbol"] == "step"), "sort")
    changes = [
        {"function": "field", "kind": "renamed", "first": "field", "second": "magnetic"},
        {"function": "step", "kind": "inlined", "first": "step", "second": "sort"},
        {"function": "log", "kind": "moved", "first": "the program", "second": "libm.so.6"},
    ]
    counts = {
        "A": {"field": 100, "step": 50, "sort": 50, "hash": 10},
        "B": {"magnetic": 110, "sort": 90, "mix": 7},
    }
    run = run_of(samples, {"changes": changes, "instructions": {"counts": counts}})
    profiles = BuildProfiles(run.samples, run.provenance["code"])
    assert set(profiles.samples["symbol"]) == set(SHARES) - {"step"}
    assert not compared(run.samples, run.provenance["code"])["stands_out"].any()
    said = by_claim(EXPERIMENT.analyse(run))["changed_code"][0].plain
    assert said == (
        "field is named magnetic in B, step is inlined into sort in B and log moved from the "
        "program to libm.so.6"
    )
    table = EXPERIMENT.derived(run)["functions"]().set_index("function")
    assert table["became"]["log"] == "moved from the program to libm.so.6"
    more = table["instructions_percent"].dropna().to_dict()
    assert more == pytest.approx({"field": 10, "sort": -10})  # step's are sort's in both


def test_libraries_and_lines_are_compared_too() -> None:
    samples = recorded(2, {"track": 1.4}, bursts=0.0)
    far = samples["symbol"] == "track"
    samples["object"] = samples["object"].mask(far, "/lib/libphys.so")
    lines = {
        build: {"track": [[0, "track.c:3"], [8, "track.c:5"]], "mix": [[16, "mix.c:1"]]}
        for build in "AB"
    }
    run = run_of(samples, {"lines": lines})
    tables = EXPERIMENT.derived(run)
    libraries = tables["libraries"]().set_index("function")
    assert set(libraries.index) == {"the program", "libphys.so"}
    assert libraries["additional_low"]["libphys.so"] > 0
    assert libraries["share_percent_low"]["libphys.so"] > 50
    assert tables["lines"]()["function"].tolist() == ["track.c:5"]
    assert EXPERIMENT.figures(run).keys() >= {"functions", "flame", "builds"}


def test_a_start_without_its_counterpart_is_left_out() -> None:
    samples = recorded(1)
    layout = samples["layout"].iloc[0]
    alone = samples[~((samples["layout"] == layout) & (samples["build"] == "A"))]
    assert layout not in set(BuildProfiles(alone, {}).samples["layout"])
    assert compared(alone)["samples"].sum() < compared(samples)["samples"].sum()


def test_functions_need_two_builds() -> None:
    with pytest.raises(UserError, match="give other_command"):
        EXPERIMENT.params({"job": "command", "job_command": "a", "functions": True})
    with pytest.raises(UserError, match="give other_command"):
        EXPERIMENT.params({"job": "command", "job_command": "a", "fail_above_percent": 1})


# --- a real pair ---------------------------------------------------------------------------------


@pytest.mark.skipif(bool(get("event_profile").unavailable()), reason="perf cannot record here")
def test_two_programs_are_recorded_function_by_function(tmp_path: Path) -> None:
    if shutil.which("objdump") is None:
        pytest.skip("there is no objdump")
    (tmp_path / "job.c").write_text(THREE_FUNCTIONS)
    for name, extra in (("before", "0"), ("after", "track(x+1)")):
        argv = [compiler(), "-O1", "-g", "-DN=60000", f"-DEXTRA={extra}", "job.c", "-o", name]
        subprocess.run(argv, cwd=tmp_path, check=True)
    given = {"factors": "environment", "layouts": 2, "budget_s": 6.0, "simulated_s": 60.0}
    run = measured(
        tmp_path / "before", other_command=str(tmp_path / "after"), functions=True,
        fail_above_percent=1.0, **given,
    )  # fmt: skip
    assert {"symbol", "object", "stack", "period", "count"} <= set(run.samples)
    code = run.provenance["code"]
    assert code["same_code"] is False
    assert code["functions"]["mix"] == "same"
    assert code["changes"] == []
    table = EXPERIMENT.derived(run)["functions"]().set_index("function")
    assert {"mix", "track", "step"} <= set(table.index)
    assert table["library"]["track"] == "the program"
    assert table["cost_second"]["track"] > 1.3 * table["cost_first"]["track"]
    more = table["instructions_percent"]
    if shutil.which("valgrind"):
        assert more["track"] == pytest.approx(100, abs=0.1)  # it is called twice as often
        assert more["mix"] == 0
    else:
        assert more.isna().all()
        assert any("nothing is simulated: valgrind" in one for one in run.provenance["problems"])
    lines = EXPERIMENT.derived(run)["lines"]()
    assert any(str(one).startswith("job.c:") for one in lines["function"])
    assert {one.of.name for one in EXPERIMENT.analyse(run)} >= {"gate", "functions", "outputs"}
