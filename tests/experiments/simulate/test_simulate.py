"""What simulated counts are made into; and the experiment as its users run it."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from perflib import experiments
from perflib.experiments.simulate.analyse import spread_percent
from perflib.framework.jobs import command_template
from perflib.instruments.joblog.jobrun import job_argv
from perflib.instruments.simulators.lines import ACCESSES, FALSE, LINES, TRANSFERS, WRITES
from perflib.model.finding import Finding
from perflib.store.run_files import load
from tests.cli.calling import call, call_json
from tests.experiments.judged import made_run
from tests.instruments.simulators.sim_programs import (
    fake_tool,
    needs_qemu,
    needs_valgrind,
    needs_x86,
)

SIMULATE = experiments.get("simulate")
INSTRUCTIONS = "instructions"
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


def analysed(table: pd.DataFrame, **params: Any) -> list[Finding]:
    given = {"geometries": list(dict.fromkeys(table["geometry"])), **params}
    return SIMULATE.analyse(made_run(SIMULATE, table, **given))


def verdicts(found: list[Finding], claim: str) -> dict[str, str]:
    return {one.subject: one.verdict for one in found if one.of.name == claim}


# --- what is concluded ---------------------------------------------------------------------------


def test_null_the_same_geometry_twice_makes_no_difference() -> None:
    """With rounds that differ, too, and not as the analysis assumes."""
    wrong = 0
    for seed in range(20):
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


def test_a_part_that_is_missing_is_left_out() -> None:
    table = samples({"here": 1.0, "small": 2.0})
    table = table[~((table["geometry"] == "small") & (table["part"] == "TLBs"))]
    found = analysed(table)
    assert not [one for one in found if one.subject.startswith("small: iTLB")]
    assert "small against here: L1i misses" in verdicts(found, "more")


def test_a_program_without_a_miss() -> None:
    table = samples({"here": 1.0})
    table = table[table["counter"] == "instructions"]
    run = made_run(SIMULATE, table)
    assert SIMULATE.analyse(run) == []
    assert all(figure.axes for figure in SIMULATE.figures(run).values())


def test_rounds_that_agree_are_precise() -> None:
    table = samples({"here": 1.0})
    assert math.isinf(spread_percent(table[table["round"] == 0]))
    assert spread_percent(table) == 0.0
    changed = table["simulated_count"].where(table["round"] != 1, table["simulated_count"] * 1.1)
    changed = changed.where(table["counter"] != "instructions", table["simulated_count"])
    assert spread_percent(table.assign(simulated_count=changed)) == pytest.approx(10.0, rel=0.01)


def line_samples(
    transfers: int, false: float = 1.0, spread: float = 0.1, seed: int = 1
) -> pd.DataFrame:
    """Two threads on one line, and a line that hardly moves; the order of threads differs."""
    generator = np.random.default_rng(seed)
    rows = []
    for round_ in range(4):
        off = max(0.0, 1 + spread * generator.standard_t(3))
        many = round(transfers * off)
        rows += [
            (round_, INSTRUCTIONS, "", "", -1, "", 1_000_000),
            (round_, LINES, "slots", "", -1, "", 1),
            (round_, TRANSFERS, "slots", "", -1, "", many),
            (round_, FALSE, "slots", "", -1, "", round(false * many)),
            (round_, ACCESSES, "slots", "fill", 1, "0-7", 90_000),
            (round_, WRITES, "slots", "fill", 1, "0-7", 40_000),
            (round_, ACCESSES, "slots", "fill", 2, "8-15", 90_000),
            (round_, WRITES, "slots", "fill", 2, "8-15", 40_000),
            (round_, LINES, "start", "", -1, "", 1),
            (round_, TRANSFERS, "start", "", -1, "", 2),
            (round_, FALSE, "start", "", -1, "", 0),
            (round_, ACCESSES, "start", "main", 0, "0-3", 2),
        ]
    names = ["round", "counter", "symbol", "function", "thread", "bytes", "simulated_count"]
    table = pd.DataFrame(rows, columns=names)
    return table.assign(
        position=0, source_file="", geometry="here", part="lines", tool="qemu-x86_64 7"
    )


def test_whose_bytes_lie_on_a_line_that_moves_is_said() -> None:
    found = {one.subject: one for one in analysed(line_samples(50_000, false=0.95))}
    assert set(found) == {TRANSFERS, FALSE}
    assert {one.verdict for one in found.values()} == {"supported"}
    assert found[FALSE].effect == pytest.approx(47.5, rel=0.3)
    assert found[FALSE].plain.endswith(
        "of slots: thread 1 writes bytes 0-7 in fill, thread 2 writes bytes 8-15 in fill"
    )
    assert "take turns" in found[FALSE].reason


def test_true_sharing_is_not_called_false() -> None:
    found = {one.subject: one.verdict for one in analysed(line_samples(50_000, false=0.0))}
    assert found == {TRANSFERS: "supported", FALSE: "refuted"}


def test_null_lines_that_hardly_move_are_no_cause() -> None:
    wrong = 0
    for seed in range(20):
        found = analysed(line_samples(200, seed=seed, spread=0.3))
        wrong += any(one.verdict == "supported" for one in found)
    assert wrong == 0


def test_a_program_whose_threads_share_nothing() -> None:
    table = line_samples(0)
    table = table[table["symbol"] == ""]
    nothing = table.assign(counter=TRANSFERS, simulated_count=0)
    run = made_run(SIMULATE, pd.concat([table, nothing], ignore_index=True))
    (found,) = SIMULATE.analyse(run)
    assert found.verdict == "refuted"
    assert SIMULATE.derived(run)["lines"]().empty
    assert SIMULATE.figures(run)["lines"].axes


def test_lines_stand_beside_misses() -> None:
    misses = samples({"here": 1.0}).assign(function="", thread=-1, bytes="")
    both = pd.concat([misses, line_samples(50_000)], ignore_index=True)
    counters = {one.about["counter"] for one in analysed(both)}
    assert {TRANSFERS, FALSE, "L1i misses", "iTLB misses"} <= counters
    assert set(SIMULATE.figures(made_run(SIMULATE, both))) == {"misses", "functions", "lines"}


# --- what is asked -------------------------------------------------------------------------------


@given(
    st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), min_size=1)
)
@example(["awk", "{print}", "{first}", "{{seed}}", "a b", "", "'"])
def test_a_command_s_words_stay_what_they_are(argv: list[str]) -> None:
    assert job_argv(command_template(argv), first=3, events=4, seed=5) == argv


# --- as it is run --------------------------------------------------------------------------------


@needs_valgrind
def test_the_command_saves_a_run(capfd: pytest.CaptureFixture[str]) -> None:
    geometries = ["--geometry", "Haswell", "--geometry", "Haswell L1d=2K:1"]
    said = call_json(capfd, "simulate", *geometries, "--json", "--", "ls", "/")
    assert said["experiment"] == "simulate"
    run = SIMULATE.current(load(said["run"]))
    assert run.params["job_command"] == "ls /"
    assert set(run.samples["part"]) == {"caches", "TLBs"}
    assert run.samples["round"].nunique() >= 2
    more = [one for one in said["findings"] if one["claim"].find("L1d misses of loads") >= 0]
    assert more
    tables = SIMULATE.derived(run)
    assert set(tables) == set(SIMULATE.tables) - {"lines"}
    assert {"L1i", "L1d", "LL", "iTLB"} <= set(tables["geometries"]()["level"])


@pytest.mark.parametrize(
    ("there", "words", "why"),
    [
        ([], [], "valgrind is not on PATH"),
        (["qemu-x86_64"], [], "valgrind is not on PATH"),
        (["qemu-x86_64"], ["-p", "parts=caches,lines"], "valgrind is not on PATH"),
        (["valgrind"], ["--lines"], "qemu-x86_64 is not on PATH. Install it"),
    ],
)
def test_a_simulator_that_is_not_there_is_named(
    there: list[str],
    words: list[str],
    why: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    for name in there:
        fake_tool(tmp_path, name, "echo version 1.0")
    program = shutil.which("true")
    assert program is not None
    monkeypatch.setenv("PATH", str(tmp_path))
    assert call("simulate", "--geometry", "Haswell", *words, "--", program) == 2
    assert why in capfd.readouterr().err
    assert (SIMULATE.unavailable() == "") == bool(there)
    assert not list(tmp_path.rglob("*.journal"))


@needs_qemu
@needs_x86
@needs_valgrind
def test_the_command_finds_shared_lines(capfd: pytest.CaptureFixture[str]) -> None:
    assert (
        call("simulate", "--lines", "-p", "budget_s=60", "--json", "--", "ls", "/") == 0
    )  # ends when it knows
    said = json.loads(capfd.readouterr().out)
    assert set(SIMULATE.current(load(said["run"])).samples["part"]) == {"lines"}
    nothing = {TRANSFERS: "refuted", FALSE: "refuted"}
    assert {one["subject"]: one["verdict"] for one in said["findings"]} == nothing
    both = ["-p", "parts=TLBs,lines", "--geometry", "Haswell"]
    said = call_json(capfd, "simulate", *both, "-p", "budget_s=2", "--json", "--", "ls", "/")
    run = SIMULATE.current(load(said["run"]))
    assert set(run.samples["part"]) == {"TLBs", "lines"}
    assert {TRANSFERS, "Haswell: iTLB misses"} <= {one["subject"] for one in said["findings"]}


@pytest.mark.parametrize(
    ("words", "why"),
    [
        pytest.param("--lines -- no-such-program", "no program 'no-such-", marks=needs_qemu),
        ("--lines -p parts=TLBs -- ls", "parts is given twice"),
        pytest.param("--geometry Haswel -- ls", "did you mean 'Haswell'", marks=needs_valgrind),
        pytest.param("-- no-such-program", "no program 'no-such-program'", marks=needs_valgrind),
        ("-p job=command -- ls", "job is given twice"),
        ("-p part=TLBs -- ls", "part"),
    ],
)
def test_bad_input_is_a_sentence_and_leaves_nothing(
    words: str, why: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert call("simulate", *words.split()) == 2
    assert why in capfd.readouterr().err
    assert not list(tmp_path.rglob("*.journal"))
