"""What simulated counts are made into; and the experiment as its users run it."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perflib import experiments
from perflib.experiments.simulate.analyse import spread_percent
from perflib.framework.jobs import command_template
from perflib.instruments.joblog.jobrun import job_argv
from perflib.model.errors import UserError
from perflib.model.finding import Finding
from perflib.model.run import Run
from tests.cli.calling import call
from tests.instruments.simulators.sim_programs import needs_valgrind

SIMULATE = experiments.get("simulate")
COUNTERS = {
    "caches": ("L1i misses", "L1d misses of loads", "mispredicted branches"),
    "TLBs": ("iTLB misses", "dTLB misses"),
}


def samples(
    geometries: dict[str, float], rounds: int = 3, spread: float = 0.0, seed: int = 1
) -> pd.DataFrame:
    """Functions with misses that are multiples of a geometry's factor; rounds differ by spread."""
    generator = np.random.default_rng(seed)
    rows = []
    for round_ in range(rounds):
        for geometry, factor in geometries.items():
            for part, counters in COUNTERS.items():
                off = 1 + spread * generator.standard_t(3)  # of the whole simulation
                for place, symbol in enumerate(("hot", "warm", "cold")):
                    row = (round_, geometry, part, "instructions", symbol, 1_000_000)
                    rows.append((*row, "sim 1"))
                    for counter in counters:
                        many = round(9000 * factor * off / (1 + 2 * place))
                        rows.append((*row[:3], counter, symbol, max(0, many), "sim 1"))
    names = ["round", "geometry", "part", "counter", "symbol", "simulated_count", "tool"]
    return pd.DataFrame(rows, columns=names).assign(position=0, source_file="")


def analysed(table: pd.DataFrame, **params: object) -> list[Finding]:
    given = {"geometries": list(dict.fromkeys(table["geometry"])), **params}
    made = SIMULATE.params(given).model_dump(mode="json")
    return SIMULATE.analyse(Run("made", "simulate", made, table, {}))


def verdicts(found: list[Finding], claim: str) -> dict[str, str]:
    return {one.subject: one.verdict for one in found if one.of.name == claim}


# --- what is concluded ---------------------------------------------------------------------------


def test_misses_a_thousand_instructions_and_where() -> None:
    found = analysed(samples({"here": 1.0}), often_per_1000=3.0)
    by_counter = {one.about["counter"]: one for one in found}
    assert set(by_counter) == {name for names in COUNTERS.values() for name in names}
    misses = by_counter["L1d misses of loads"]
    assert misses.effect == pytest.approx(1000 * (9000 + 3000 + 1800) / 3e6)
    assert misses.verdict == "supported"
    assert "(65%) in hot" in misses.plain
    assert not [one for one in found if one.of.name == "more"]


def test_null_the_same_geometry_twice_makes_no_difference() -> None:
    """With rounds that differ, too, and not as the analysis assumes."""
    wrong = 0
    for seed in range(40):
        table = samples({"here": 1.0, "the same": 1.0}, rounds=4, spread=0.02, seed=seed)
        more = verdicts(analysed(table, differ_percent=5.0), "more")
        assert more
        wrong += "supported" in more.values()
    assert wrong <= 2


def test_a_geometry_with_more_misses_is_found() -> None:
    table = samples({"large": 1.0, "small": 1.5}, rounds=4, spread=0.01)
    more = verdicts(analysed(table), "more")
    assert set(more.values()) == {"supported"}
    assert not [subject for subject in more if "mispredicted" in subject]
    back = samples({"small": 1.5, "large": 1.0}, rounds=4, spread=0.01)
    assert set(verdicts(analysed(back), "more").values()) == {"refuted"}


def test_one_simulation_decides_nothing() -> None:
    found = analysed(samples({"here": 1.0, "small": 3.0}, rounds=1))
    assert {one.verdict for one in found} == {"inconclusive"}
    assert all("simulated once" in one.reason for one in found)


def test_the_first_geometry_is_the_one_that_was_asked_for_first() -> None:
    table = samples({"b": 1.0, "a": 2.0}).sample(frac=1.0, random_state=1)
    found = analysed(table, geometries=["b", "a"])
    assert [one.about["reference"] for one in found if one.of.name == "more"][:1] == ["b"]


def test_a_part_that_is_missing_is_left_out() -> None:
    table = samples({"here": 1.0, "small": 2.0})
    table = table[~((table["geometry"] == "small") & (table["part"] == "TLBs"))]
    found = analysed(table)
    assert not [one for one in found if one.subject.startswith("small: iTLB")]
    assert "small against here: L1i misses" in verdicts(found, "more")


def test_a_program_without_a_miss() -> None:
    table = samples({"here": 1.0})
    table = table[table["counter"] == "instructions"]
    run = Run("made", "simulate", SIMULATE.params({}).model_dump(mode="json"), table, {})
    assert SIMULATE.analyse(run) == []
    assert all(figure.axes for figure in SIMULATE.figures(run).values())


def test_rounds_that_agree_are_precise() -> None:
    table = samples({"here": 1.0})
    assert math.isinf(spread_percent(table[table["round"] == 0]))
    assert spread_percent(table) == 0.0
    changed = table["simulated_count"].where(table["round"] != 1, table["simulated_count"] * 1.1)
    changed = changed.where(table["counter"] != "instructions", table["simulated_count"])
    assert spread_percent(table.assign(simulated_count=changed)) == pytest.approx(10.0, rel=0.01)


# --- what is asked -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"parts": ["cache"]}, "parts='cache' is none"),
        ({"parts": ["caches", "caches"]}, "names one twice"),
        ({"geometries": []}, "geometries"),
        ({"job": "command"}, "go together"),
        ({"job_command": "ls"}, "go together"),
    ],
)
def test_wrong_parameters(given: dict[str, object], why: str) -> None:
    with pytest.raises(UserError, match=why):
        SIMULATE.params(given)


@given(
    st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), min_size=1)
)
def test_a_command_s_words_stay_what_they_are(argv: list[str]) -> None:
    assert job_argv(command_template(argv), first=3, events=4, seed=5) == argv


def test_words_that_look_like_placeholders() -> None:
    argv = ["awk", "{print}", "{first}", "{{seed}}", "a b", "", "'"]
    assert job_argv(command_template(argv), first=3, events=4, seed=5) == argv


# --- as it is run --------------------------------------------------------------------------------


@needs_valgrind
def test_the_command_saves_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PERFLIB_HOME", str(tmp_path))
    geometries = ["--geometry", "Haswell", "--geometry", "Haswell L1d=2K:1"]
    assert call("simulate", *geometries, "--json", "--", "ls", "/") == 0
    said = json.loads(capfd.readouterr().out)
    assert said["experiment"] == "simulate"
    run = SIMULATE.current(_saved(said["run"]))
    assert run.params["job_command"] == "ls /"
    assert set(run.samples["part"]) == {"caches", "TLBs"}
    assert run.samples["round"].nunique() >= 2
    more = [one for one in said["findings"] if one["claim"].find("L1d misses of loads") >= 0]
    assert more
    tables = SIMULATE.derived(run)
    assert set(tables) == set(SIMULATE.tables)
    assert {"L1i", "L1d", "LL", "iTLB"} <= set(tables["geometries"]()["level"])


def _saved(run_id: str) -> Run:
    from perflib.model.store import load

    return load(run_id)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--geometry", "Haswel", "--", "ls"], "did you mean 'Haswell'"),
        (["--geometry", "Haswell", "--", "no-such-program"], "no program 'no-such-program'"),
        (["-p", "job=command", "--", "ls"], "job is given twice"),
        (["-p", "part=TLBs", "--", "ls"], "part"),
    ],
)
def test_bad_input_is_a_sentence_and_leaves_nothing(
    words: list[str],
    why: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PERFLIB_HOME", str(tmp_path))
    assert call("simulate", *words) == 2
    assert why in capfd.readouterr().err
    assert not list(tmp_path.rglob("*.journal"))


@needs_valgrind
def test_a_program_that_fails_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PERFLIB_HOME", str(tmp_path))
    assert call("simulate", "--geometry", "Haswell", "--", "false") == 1
    assert "ended with exit status 1" in capfd.readouterr().err
    assert not list(tmp_path.rglob("*.parquet"))
