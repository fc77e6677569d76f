"""Pieces compared by simulated samples; programs that write none; a start of our own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from perflib.experiments import get
from perflib.experiments.bracketed.table import BracketedTable
from perflib.kernels.single_header import single_header
from perflib.model.errors import MeasurementError, UserError
from perflib.model.finding import Finding
from perflib.model.sentences import plain
from perflib.stats.alone import CHAIN_NAMES, PORT_NAMES
from tests.experiments.bracketed.bracketed_samples import samples
from tests.experiments.judged import by_subject, codes, made_run

EXPERIMENT = get("bracketed")


def found(table: pd.DataFrame, **params: Any) -> dict[str, Finding]:
    run = made_run(EXPERIMENT, table, **{"against": "piece0", **params})
    return by_subject(EXPERIMENT.analyse(run))


@pytest.mark.parametrize("processes", [1, 10])
def test_intervals_cover_and_nulls_are_silent(processes: int) -> None:
    hits, wrong = [], 0
    for seed in range(60):
        table = samples(
            seed, (0.0, 3.0), processes=processes, turns=200 // processes, busy=0.3,
            between=0.002 if processes > 1 else 0.0,
        )  # fmt: skip
        pieces = found(table)
        wrong += pieces["piece1"].verdict == "supported"
        hits += [
            pieces[name].low <= true <= pieces[name].high
            for name, true in (("piece1", 0.0), ("piece2", 3.0))
        ]
        assert pieces["piece2"].verdict != "refuted"
    assert np.mean(hits) > 0.92
    assert wrong == 0


def test_a_longer_piece_is_found_and_the_share_alone_is_reported() -> None:
    pieces = found(samples(1, (4.0, -4.0), turns=60, busy=0.4))
    assert pieces["piece1"].verdict == "supported"
    assert "longer than piece0" in plain(pieces["piece1"])
    assert pieces["piece2"].verdict == "refuted"
    assert "less time than piece0" in plain(pieces["piece2"])
    assert pieces["samples"].verdict == "supported"
    assert 40 < pieces["samples"].effect < 80


def test_company_biases_nothing() -> None:
    """A neighbour that works whenever one piece runs: only samples alone are compared."""
    table = samples(2, (0.0,), turns=60, busy=0.0)
    hit = (table["name"] == "piece1") & (np.arange(len(table)) % 4 > 1)
    for name, factor in (("time_ns", 1.5), ("cpu_time_ns", 1.5), ("probe_before_ns", 1.6),
                         ("probe_after_ns", 1.6)):  # fmt: skip
        table.loc[hit, name] = (table.loc[hit, name] * factor).round()
    pieces = found(table)
    assert pieces["piece1"].verdict == "refuted"
    without = table.drop(columns=[*PORT_NAMES, *CHAIN_NAMES])
    blind = found(without)
    assert blind["piece1"].effect > 20
    assert codes(blind["samples"]) == ["not_classified"]


@pytest.mark.parametrize("numbered", [True, False])
def test_cold_caches_after_an_interruption_bias_nothing(*, numbered: bool) -> None:
    """Were the interrupted samples alone left out, one piece would be cold more often."""
    generator = np.random.default_rng(6)
    effects = []
    for seed in range(20):
        table = samples(seed, (0.0,), processes=1, turns=300)
        if numbered:
            table["turn"] = np.arange(len(table)) // 2
        interrupted = generator.random(len(table)) < 0.35
        table.loc[interrupted, "run_delay_ns"] = table.loc[interrupted, "time_ns"] // 2
        cold = np.append(False, interrupted[:-1])
        for name in ("time_ns", "cpu_time_ns"):
            table[name] = table[name].where(~cold, (1.3 * table[name]).round())
        sign = 1 if table["name"][0] == "piece1" else -1  # of the piece that begins turns
        effects.append(sign * found(table)["piece1"].effect)
    error = np.std(effects) / np.sqrt(len(effects))
    assert abs(np.mean(effects)) < 3 * error
    assert error < 0.15


def test_pieces_that_are_not_in_turns_are_not_compared() -> None:
    table = samples(3, (5.0,), processes=1, turns=100)
    table = table.sort_values("name", kind="stable", ignore_index=True)
    table["start_ns"] = np.arange(len(table)) * 110_000
    pieces = found(table)
    assert pieces["piece1"].verdict == "inconclusive"


def test_turns_and_calls() -> None:
    table = pd.DataFrame({"name": [*"aabbab", *"ba"], "time_ns": np.arange(1.0, 9.0)})
    table["process"] = [0] * 6 + [1] * 2
    assert BracketedTable(table)._turns().tolist() == [0, 0, 0, 0, 1, 1, 2, 2]
    table["calls"] = 2
    assert BracketedTable(table).time_ns("a").effect == pytest.approx(
        BracketedTable(table.drop(columns="calls")).time_ns("a").effect / 2
    )


def test_a_piece_that_sleeps_counts_by_wall_time() -> None:
    table = samples(4, (0.0,), busy=0.0)
    slept = table["name"] == "piece1"
    table.loc[slept, "time_ns"] += 100_000
    assert found(table)["piece1"].effect == pytest.approx(100, abs=10)


def test_an_unknown_reference_is_a_sentence() -> None:
    with pytest.raises(UserError, match="did you mean 'piece1'"):
        found(samples(), against="peice1")


def test_one_piece_alone_is_described() -> None:
    table = samples(5, ())
    assert list(found(table)) == ["samples"]
    assert BracketedTable(table).half_width() < 10
    run = made_run(EXPERIMENT, table)
    assert set(EXPERIMENT.figures(run)) == {"pieces", "samples"}
    assert len(EXPERIMENT.derived(run)["pieces"]()) == 1


WRITES = """
import os, sys
with open(os.environ["PERFLIB_SAMPLES"], "w") as file:
    file.write("name,time_ns\\n")
    for i in range(20):
        file.write(f"{name},{1000 + i % 7}\\n")
"""


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("print('hello')", "wrote no samples: it has to include perflib_bracket.h.*'hello'"),
        ("import sys; sys.exit('no terminal')", "ended with status 1; its last line: no terminal"),
        ("import os; os.kill(os.getpid(), 11)", "died of SIGSEGV"),
        ("import time; time.sleep(60)", "did not end within 1 s"),
        ("import os; name = f'pid {os.getpid()}'" + WRITES, "other pieces from start to start"),
        ("import os; open(os.environ['PERFLIB_SAMPLES'], 'w').write('a,b\\n1,2\\n')", "'name'"),
        ("input()", "EOFError"),
    ],
)
def test_a_program_without_samples_is_refused_at_once(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "job.py").write_text(text)
    command = f"{sys.executable} {tmp_path / 'job.py'}"
    params = EXPERIMENT.params({"job": "command", "job_command": command, "budget_s": 1})
    with pytest.raises((MeasurementError, UserError), match=says):
        EXPERIMENT.measure(params)


def test_here_is_not_measured_from_outside() -> None:
    with pytest.raises(UserError, match=r"pl\.bench"):
        EXPERIMENT.measure(EXPERIMENT.params({"job": "here"}))


def test_our_example_has_a_piece_that_is_a_twentieth_longer() -> None:
    run = EXPERIMENT.measure(EXPERIMENT.params({"budget_s": 1.0}))
    assert set(run.samples["name"]) == {"first", "again", "longer"}
    assert run.samples.groupby("process").size().eq(60).all()
    assert {one.subject for one in EXPERIMENT.analyse(run)} == {"again", "longer", "samples"}
    assert "PERFLIB_SAMPLE" in single_header()
