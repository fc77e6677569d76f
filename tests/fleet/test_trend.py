"""One machine over days: simulated levels with drift, working hours, noise, one step or none."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import perflib as pl
from perflib.fleet.analysis.trend import ALL, over_time, series
from perflib.model.finding import Finding

CORES = 4


def days_of_levels(seed: int, *, step: float = 0.0, days: int = 14) -> pd.DataFrame:
    """Levels of a machine, six times a day, whose time grows by ``step`` from run 40 on."""
    rng = np.random.default_rng(seed)
    n = days * 6
    hours = pd.to_timedelta(np.arange(n) * 4, unit="h")
    start = pd.Timestamp("2026-03-02 03:00", tz="UTC") + hours
    busy = (start.hour >= 8) & (start.hour < 17) & (start.day_of_week < 5)
    common = 0.01 * np.arange(n) / n + 0.01 * busy + 0.002 * rng.standard_t(4, n)
    rows = []
    for cpu in range(CORES):
        for setting, level in (("n=64", 100.0), ("n=128", 300.0)):
            logs = common + 0.001 * rng.laplace(size=n)
            logs[40:] += step
            rows += [
                (f"run{i:03}", start[i], cpu, setting, level * np.exp(logs[i])) for i in range(n)
            ]
    return pd.DataFrame(rows, columns=["run", "start", "cpu", "setting", "value"])


def findings(levels: pd.DataFrame) -> dict[str, Finding]:
    return {one.about["what"]: one for one in over_time(levels, "node7", "kv_per_core")}


def test_runs_of_other_cores_and_settings_do_not_move_the_series() -> None:
    levels = days_of_levels(2)
    fewer = levels[(levels["run"] < "run042") | (levels["setting"] == "n=64")]
    assert series(fewer)[ALL].iloc[42:].abs().max() < 0.05


def test_a_machine_without_a_step_has_none() -> None:
    verdicts = [one.verdict for seed in range(8) for one in findings(days_of_levels(seed)).values()]
    assert "supported" not in verdicts
    assert verdicts.count("refuted") >= len(verdicts) / 2


def test_a_step_of_all_cores_is_dated() -> None:
    found = findings(days_of_levels(3, step=0.05))
    assert found[ALL].verdict == "supported"
    assert found[ALL].low < 5.1 < found[ALL].high
    evidence = found[ALL].evidence
    assert evidence["last_before"] < "run040" <= evidence["first_after"]
    assert "2026-03-08" in found[ALL].plain
    assert {one.verdict for what, one in found.items() if what != ALL} <= {
        "refuted",
        "inconclusive",
    }


def test_few_runs_or_days_say_so() -> None:
    levels = days_of_levels(5, step=0.1)
    for some in (levels[levels["run"] < "run005"], levels[levels["run"] < "run030"]):
        found = findings(some)[ALL]
        assert found.verdict == "inconclusive"
        assert "it takes 10 runs of 7 days" in found.reason


def test_a_table_takes_the_place_of_saved_runs() -> None:
    levels = days_of_levels(3, step=0.05).assign(node="node7", experiment="kv_per_core")
    found = pl.trend("kv_per_core", "node7", levels=levels)
    assert (found.runs, found.findings[0].verdict) == (84, "supported")
    with pytest.raises(pl.UserError, match="did you mean 'node7'"):
        pl.trend("kv_per_core", "node8", levels=levels)
    with pytest.raises(pl.UserError, match="lacks cpu, value"):
        pl.trend("kv_per_core", levels=levels.drop(columns=["cpu", "value"]))
    with pytest.raises(pl.UserError, match="did you mean 'kv_per_core'"):
        pl.trend("kv_per_cor", levels=levels)


def test_names_are_data() -> None:
    found = over_time(days_of_levels(6, days=2), "$x_1$\x1b[31m{what}", "kv_per_core")
    assert "\x1b" not in found[0].plain + found[0].reason + found[0].subject
