from __future__ import annotations

import os

import numpy as np
import pandas as pd

from perflib.experiments import get
from perflib.experiments.machine.analyse import stolen_by_trial
from perflib.experiments.machine.measure import look
from perflib.store.run_files import load
from tests.experiments.judged import made_run

MACHINE = get("machine")


def turns(shares: dict[int, float], rounds: int = 30) -> pd.DataFrame:
    """Turns of 200 ms; of each core's time a share is lost in gaps of about 3 ms."""
    generator = np.random.default_rng(1)
    rows = []
    for round_ in range(rounds):
        for cpu, share in shares.items():
            stolen = max(0.0, share * generator.normal(1, 0.2)) * 200e6
            rows.append(
                {
                    "round": round_,
                    "cpu": cpu,
                    "duration_ns": 200_000_000,
                    "stolen_ns": stolen,
                    "gap_low_ns": 2**21,
                    "gaps": round(stolen / 3e6),
                    "gap_ns": int(stolen),
                    "switched_gaps": round(stolen / 3e6),
                }
            )
    return pd.DataFrame(rows)


def verdicts(table: pd.DataFrame) -> dict[str, str]:
    return {one.subject: one.verdict for one in MACHINE.analyse(made_run(MACHINE, table))}


def test_a_core_that_loses_time_is_named_and_a_quiet_one_is_not() -> None:
    assert verdicts(turns({0: 0.05, 1: 0.001})) == {"cpu0": "supported", "cpu1": "refuted"}


def test_gap_time_serves_where_the_stolen_time_was_not_recorded() -> None:
    table = turns({0: 0.05})
    bare = table[["round", "cpu", "duration_ns", "gap_low_ns", "gap_ns"]]
    MACHINE.check_samples(bare)
    assert verdicts(bare) == verdicts(table)


def test_measured_for_real() -> None:
    run = MACHINE.measure(MACHINE.Params.make({"budget_s": 0.5, "spin_ms": 20.0}))
    table = run.samples
    assert set(table["cpu"]) <= os.sched_getaffinity(0)
    # The turn lasts 20 ms by the clock; only the askings after its gaps are left out of it.
    turns_ns = table.groupby(["round", "cpu"]).agg(
        duration_ns=("duration_ns", "first"), gaps=("gaps", "sum")
    )
    assert (turns_ns["duration_ns"] + turns_ns["gaps"] * 10_000 > 19_000_000).all()
    by_turn = table.groupby(["round", "cpu"])[["gap_ns", "duration_ns"]].agg(
        {"gap_ns": "sum", "duration_ns": "first"}
    )
    assert (by_turn["gap_ns"] <= by_turn["duration_ns"]).all()
    assert stolen_by_trial(table)["stolen_percent"].between(0, 100).all()
    assert load(run.id).provenance["kernel"]["kernel"] == "clock_gaps"
    axes = MACHINE.figures(run)["gaps"].axes[0]
    assert "µs" in axes.get_xlabel()


def test_a_look_takes_one_turn_of_each_core() -> None:
    cores = sorted(os.sched_getaffinity(0))
    assert sorted(set(look(cores, spin_ms=2.0)["cpu"])) == cores


def test_a_core_without_gaps_can_be_drawn() -> None:
    axes = MACHINE.figures(made_run(MACHINE, turns({0: 0.0})))["gaps"].axes[0]
    assert [text.get_text() for text in axes.texts] == ["no gap was seen"]
