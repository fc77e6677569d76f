"""Tables of samples of all kinds, made ready for the comparison; when a run is precise enough."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from perflib.experiments import get
from perflib.experiments.event_profile.analyse import (
    CoreProfiles,
    profiled,
    unseen_percent,
)
from perflib.instruments.profile.costs import unit_of
from perflib.instruments.profile.views import flat
from perflib.model.errors import UserError
from perflib.model.run import Run
from perflib.store.run_files import load, read_table, save
from tests.experiments.event_profile.profiles import samples
from tests.instruments.profile.tables import samples_of

TWO_CORES: dict[str, Any] = {"cores": [0, 1], "reference": 0}


def run_of(table: pd.DataFrame, **params: Any) -> Run:
    return get("event_profile").current(Run("r", "event_profile", params, table))


def shares(table: pd.DataFrame) -> dict[str, float]:
    found = CoreProfiles(run_of(table)).shares()
    return dict(zip(found["function"], found["share_percent"], strict=True))


def as_measured() -> pd.DataFrame:
    """All columns of a run, with the types that its journal gives."""
    stacks = {"main;kv_step_0001;kv_next_0001": 30, "main;kv_step_0002;kv_next_0002": 20}
    parts = []
    for core in (0, 1):
        part = samples_of({**stacks, "main;sin": 50}, comm="kv")
        part["ip"] = part["ip"].to_numpy().view(np.int64) - 5  # the kernel's half: negative
        parts.append(part.assign(round=0, position=core, core=core, begin_ns=0))
    return pd.DataFrame({name: pd.concat(parts)[name].tolist() for name in parts[0]})


# --- the table -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["run", "parquet", "csv"])
def test_types_of_a_file_make_the_same_profile(tmp_path: Path, kind: str) -> None:
    run = run_of(as_measured())
    if kind == "csv":
        run.samples.to_csv(tmp_path / "x.csv", index=False)
        back = read_table(tmp_path / "x.csv")
    else:
        path = save(run, tmp_path / "x.parquet")
        back = load(path).samples if kind == "run" else read_table(path)
    pd.testing.assert_frame_equal(profiled(back), profiled(run.samples), check_categorical=False)


def test_symbol_and_period_are_enough() -> None:
    table = pd.DataFrame({"symbol": ["f_0001", "f_0002", "g"], "period": [1, 2, 3]})
    made = profiled(table)
    assert made["symbol"].tolist() == made["stack"].tolist() == ["f", "f", "g"]
    assert made["configuration"].unique().tolist() == ["cpu-1"]
    assert shares(table) == {"f": 50, "g": 50}
    assert flat(made)["function"].tolist() == ["f", "g"]
    assert table.columns.tolist() == ["symbol", "period"]  # the user's own table is left alone


def test_what_a_table_lacks_here_and_there_is_unknown() -> None:
    table = pd.DataFrame(
        {
            "symbol": [17, 17, 18],  # addresses for names
            "period": 1,
            "event": ["cycles", None, "cycles"],
            "object": [None, "libm.so", "libm.so"],
            "stack": [None, "main;17", "main;18"],
            "offset": [math.nan, math.inf, 4.0],
            "ip": [1.8e19, math.nan, 4096.0],
        }
    )
    made = profiled(table.assign(event="cycles"))
    assert made["symbol"].tolist() == ["17", "17", "18"]
    assert made["stack"].tolist() == ["17", "main;17", "main;18"]
    assert made["object"].tolist() == ["[unknown]", "libm.so", "libm.so"]
    assert made["offset"].tolist() == [-1, -1, 4]
    assert made["ip"].tolist() == [0, 0, 0]
    assert profiled(table.iloc[:2])["event"].tolist() == ["cycles", "unknown"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda t: t.assign(core=[0.0, math.nan] * (len(t) // 2)), r"'core' .* in row 2, but nan"),
        (lambda t: t.assign(core=0.5), r"'core' has no whole number in row 1, but 0\.5"),
        (lambda t: t.assign(round=math.inf), r"'round' has no whole number in row 1, but inf"),
    ],
)
def test_a_sample_that_belongs_nowhere_is_an_error(
    change: Callable[[pd.DataFrame], pd.DataFrame], says: str
) -> None:
    with pytest.raises(UserError, match=says):
        profiled(change(as_measured()))


def test_whole_numbers_may_be_floats() -> None:
    table = samples(rounds=3)
    made = profiled(table.astype({"core": float, "round": float}))
    assert set(made["configuration"]) == {"cpu0", "cpu1"}


def test_of_several_events_one_is_named() -> None:
    table = samples(rounds=3)
    both = pd.concat([table, table.assign(event="cycles:u", period=7)])
    with pytest.raises(UserError, match=r"which with sampled_event=\.\.\. \(cpu-clock, cycles:u\)"):
        profiled(both)
    with pytest.raises(UserError, match="several events"):
        profiled(both, "instructions")
    one = profiled(both, "cycles:u")
    assert len(one) == len(table)
    assert unit_of(one) == "cycles"
    # What perf calls it, and what was requested, may differ: one event is taken as it is.
    assert len(profiled(table, "cycles")) == len(table)


def test_old_runs_have_their_parameters_under_todays_names() -> None:
    assert run_of(samples(rounds=3), dearer_core=1).params["costlier_core"] == 1


# --- which core is the reference -----------------------------------------------------------------


def test_reference_that_is_not_in_a_users_table_is_an_error() -> None:
    run = run_of(samples(rounds=3), reference_core=8)
    with pytest.raises(
        UserError, match=r"unknown core in reference_core 'cpu8': .*\(all: cpu0, cpu1\)"
    ):
        CoreProfiles(run)


def test_a_function_of_a_few_samples_in_two_rounds_has_no_bound_and_no_warning() -> None:
    table = samples(rounds=2, count=200)
    rare = table[(table["core"] == 0) & (table["round"] == 0)][:17].assign(symbol="rare")
    (one,) = CoreProfiles(run_of(pd.concat([table, rare]))).comparisons.values()
    assert one.rounds == 2
    assert "rare" in set(one.table["function"])


def test_reference_that_was_never_recorded_is_replaced() -> None:
    table = samples(cores=3, rounds=3)
    run = run_of(table[table["core"] != 0])
    run.provenance["plan"] = {"cores": [0, 1, 2], "reference": 0}
    compared = CoreProfiles(run).comparisons.values()
    assert [(one.first, one.second) for one in compared] == [("cpu1", "cpu2")]


# --- when it is enough ---------------------------------------------------------------------------


def test_nothing_is_known_of_no_samples_of_one_core_or_of_rounds_apart() -> None:
    table = samples(rounds=4)
    assert unseen_percent(pd.DataFrame({}), TWO_CORES) == math.inf
    assert unseen_percent(table[table["core"] == 0], TWO_CORES) == math.inf
    assert unseen_percent(table[table["core"] == 1], TWO_CORES) == math.inf
    apart = table[table["core"] == table["round"] % 2]
    assert unseen_percent(apart, TWO_CORES) == math.inf


def test_it_ends_with_no_fewer_rounds_than_a_verdict_takes() -> None:
    table = samples(rounds=3, count=20_000)
    assert unseen_percent(table, TWO_CORES) < 5
    assert unseen_percent(table[table["round"] < 2], TWO_CORES) == math.inf


def test_more_rounds_leave_less_unseen_and_the_worst_core_counts() -> None:
    table = samples(cores=3, rounds=24)
    plan = {"cores": [0, 1, 2], "reference": 1}
    few, many = (unseen_percent(table[table["round"] < n], plan) for n in (6, 24))
    assert many < few < math.inf
    every = CoreProfiles(run_of(table, reference_core=1)).comparisons.values()
    assert many == max(one.open_percent for one in every)


def test_of_one_core_the_error_of_counting_counts() -> None:
    table = pd.DataFrame({"symbol": ["f"] * 25 + ["g"] * 75, "period": 1, "core": 0})
    plan = {"cores": [0], "reference": 0}
    assert unseen_percent(table, plan) == pytest.approx(1.96 * 100 * math.sqrt(0.75 * 0.25 / 100))
