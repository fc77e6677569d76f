"""The cost of entries, on simulated functions whose spread is known."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy.stats import binomtest

from perflib.instruments.profile.entry_cost import EntryCost, entry_cost
from perflib.instruments.profile.findings import entry_findings
from perflib.model.errors import UserError
from perflib.model.finding import Finding
from tests.stats.two_profiles import at_least, at_most

Ints = NDArray[np.int64]


class Program(NamedTuple):
    """``functions`` of 12 to 300 instructions; the entry of ``costly`` ones costs ``times`` more.

    ``uneven``: how much the cost of instructions varies, in every place alike (log).
    """

    functions: int = 20
    costly: int = 0
    times: float = 1.0
    uneven: float = 0.0


def made(program: Program, generator: np.random.Generator) -> tuple[pd.DataFrame, dict[str, Ints]]:
    offsets = []
    code = {}
    for number in range(program.functions):
        count = int(generator.integers(12, 300))
        starts = np.concatenate([[0], np.cumsum(generator.integers(1, 8, count - 1))])
        weight = np.exp(generator.normal(0, program.uneven, count))
        if number < program.costly:
            weight[:4] *= program.times
        name = f"f{number:02d}"
        code[name] = starts
        samples = 60 + int(generator.lognormal(5.5, 1.2))
        offsets.append(generator.choice(starts, samples, p=weight / weight.sum()))
    numbers = np.repeat(np.arange(program.functions), list(map(len, offsets)))
    order = np.random.default_rng(1).permutation(len(numbers))
    symbols = pd.Categorical.from_codes(numbers[order], pd.Index(code))
    return pd.DataFrame({"symbol": symbols, "offset": np.concatenate(offsets)[order]}), code


@functools.cache
def studied(program: Program, runs: int, times: float = 1.0) -> tuple[EntryCost, ...]:
    generator = np.random.default_rng(2)
    found = []
    for run in range(runs):
        samples, code = made(program, generator)
        found.append(entry_cost(samples, code, times=times, seed=run))
    return tuple(found)


def by_subject(found: EntryCost) -> Mapping[str, Finding]:
    return {finding.subject: finding for finding in entry_findings(found)}


# --- even spread ---------------------------------------------------------------------------------


def test_null_an_even_spread_makes_no_entry_costly_more_often_than_stated() -> None:
    runs = studied(Program(20), 40)
    for column in ("verdict", "control_verdict"):
        wrong = sum("supported" in set(found.table[column]) for found in runs)
        assert wrong <= at_most(40, 0.05)
    for subject in ("entry", "entry control"):
        wrong = sum(by_subject(found)[subject].verdict == "supported" for found in runs)
        assert wrong <= at_most(40, 0.025)


@pytest.mark.parametrize("functions", [3, 20])
def test_intervals_cover_an_even_spread(functions: int) -> None:
    runs = studied(Program(functions), 40)
    inside = [((t := one.table)["ratio_low"] <= 1) & (t["ratio_high"] >= 1) for one in runs]
    each = np.concatenate(inside)
    assert each.sum() >= at_least(each.size, 0.95)  # Clopper and Pearson's covers at least
    for name in ("overall", "control"):
        covered = sum(getattr(one, name).low <= 1 <= getattr(one, name).high for one in runs)
        assert covered >= at_least(40, 0.95)


def test_the_interval_is_that_of_clopper_and_pearson() -> None:
    samples, code = made(Program(5), np.random.default_rng(3))
    for _, row in entry_cost(samples, code).table.iterrows():
        exact = binomtest(row["at_entry"], row["samples"]).proportion_ci(0.95, method="exact")
        assert row["share_percent_low"] == pytest.approx(100 * exact.low)
        assert row["share_percent_high"] == pytest.approx(100 * exact.high)
        assert row["ratio"] == pytest.approx(row["share_percent"] / row["even_percent"])


# --- costly entries ------------------------------------------------------------------------------


def test_costly_entries_are_found_and_their_control_windows_are_not() -> None:
    runs = studied(Program(20, costly=20, times=4.0), 20, 1.5)
    for found in runs:
        overall = by_subject(found)
        assert overall["entry"].verdict == "supported"
        assert overall["entry"].low > 1.5
        assert overall["entry control"].verdict == "refuted"
    # What the entry has more, all other places have less.
    assert np.mean([found.control.effect for found in runs]) < 1


def test_code_that_is_uneven_everywhere_is_no_costly_entry() -> None:
    """Hot loops at random places: over all functions, the entry does not come out costly."""
    runs = studied(Program(30, uneven=1.5), 40, 1.5)
    costly = sum(by_subject(found)["entry"].verdict == "supported" for found in runs)
    assert costly <= at_most(40, 0.05)
    # Windows of single functions do exceed an even spread, and the control ones as often.
    at_entry = sum((found.table["verdict"] == "supported").sum() for found in runs)
    at_control = sum((found.table["control_verdict"] == "supported").sum() for found in runs)
    assert at_control > 20
    assert 0.6 < at_entry / at_control < 1.7
    counted = [by_subject(found)["entry"].evidence["costly_control_windows"] for found in runs]
    assert sum(counted) == at_control


def test_an_entry_no_costlier_than_its_control_is_inconclusive() -> None:
    """Two instructions in every short function are hot: the entry and, by chance, the control."""
    samples = pd.DataFrame({"symbol": np.repeat(["a", "b", "c"], 900), "offset": 0})
    samples["offset"] = np.tile(np.repeat([0, 9, *range(1, 9)], [41, 41, *[1] * 8]), 30)
    code = dict.fromkeys("abc", range(10))
    runs = [entry_cost(samples, code, instructions=1, seed=seed) for seed in range(20)]
    verdicts = {by_subject(found)["entry"].verdict for found in runs}
    assert verdicts == {"supported", "inconclusive"}
    hidden = next(one for one in runs if by_subject(one)["entry"].verdict == "inconclusive")
    assert by_subject(hidden)["entry"].reasons[0].code == "uneven"


def test_of_one_function_nothing_follows_for_all() -> None:
    samples = pd.DataFrame({"symbol": "f", "offset": [0] * 500 + list(range(0, 400, 4))})
    finding = by_subject(entry_cost(samples, {"f": range(0, 400, 4)}))["entry"]
    assert finding.verdict == "inconclusive"
    assert finding.reasons[0].code == "too_few_functions"


# --- sizes and windows ---------------------------------------------------------------------------


def one_function(code: Any, last: int = 396) -> pd.Series[Any]:
    samples = pd.DataFrame({"symbol": "f", "offset": [*range(0, last + 1, 4)] * 10})
    return entry_cost(samples, code).table.iloc[0]


def test_an_even_spread_over_instructions_bytes_or_what_was_seen() -> None:
    by_instruction = one_function({"f": list(range(0, 400, 4))})
    assert (by_instruction["even_by"], by_instruction["even_percent"]) == ("instructions", 4)
    by_size = one_function({"f": 800})
    assert (by_size["even_by"], by_size["even_percent"]) == ("bytes", 2)
    by_sight = one_function(None)
    assert by_sight["even_by"] == "largest offset seen"
    assert by_sight["even_percent"] == pytest.approx(100 * 16 / 397)


@pytest.mark.parametrize("code", [{"f": 200}, {"f": [0, 4, 8]}, {"g": 4000}])
def test_a_size_that_does_not_fit_is_not_used_and_said_so(code: Any) -> None:
    samples = pd.DataFrame({"symbol": "f", "offset": [*range(0, 400, 4)] * 10})
    found = entry_cost(samples, code)
    assert found.table["even_by"][0] == "largest offset seen"
    assert by_subject(found)["entry f"].reasons[-1].code == "size_unknown"


def test_one_far_offset_makes_no_even_spread_costly() -> None:
    even = pd.DataFrame({"symbol": "f", "offset": [*range(0, 400, 4), 2**30] * 5})
    found = entry_cost(even).table.iloc[0]
    assert found["verdict"] != "supported"
    assert found["ratio"] == pytest.approx(1, rel=0.05)


def test_the_control_window_is_elsewhere_and_as_long() -> None:
    """Samples on the entry alone: the control window holds none of them, wherever it is."""
    samples = pd.DataFrame({"symbol": "f", "offset": [0, 1, 2, 3] * 50 + [199]})
    for seed in range(25):
        table = entry_cost(samples, {"f": range(200)}, seed=seed).table
        assert table["at_entry"][0] == 200
        assert table["at_control"][0] <= 1


# --- samples that cannot be used -----------------------------------------------------------------


def test_what_is_left_out_is_counted() -> None:
    offsets = {
        "f": [*range(0, 400, 4)] * 2 + [-1] * 7,
        "[unknown]": [3] * 5,
        "rare": [0, 9] * 4,
        "short": [0, 4] * 60,
    }
    samples = pd.Series(offsets, name="offset").explode().rename_axis("symbol").reset_index()
    found = entry_cost(samples, {"f": 400, "short": 8})
    assert list(found.table["function"]) == ["f"]
    assert found.table["samples"][0] == 200
    assert (found.without_offset, found.too_few, found.too_short) == (12, 8, 120)


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({"symbol": "f", "offset": [-1] * 500}, "symoff"),
        ({"symbol": "f", "offset": [0] * 500}, "symoff"),
        ({"symbol": [], "offset": []}, "none of the 0 samples"),
        (
            {"symbol": list("abcd") * 10, "offset": range(40)},
            "no function can be judged: 40 samples",
        ),
        ({"symbol": ["f"]}, "lacks the column 'offset'"),
    ],
)
def test_samples_of_which_nothing_can_be_said(columns: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        entry_cost(pd.DataFrame(columns), {"f": 100})


@pytest.mark.parametrize("code", [{"f": 0}, {"f": [4, 8]}, {"f": [0, 8, 4]}, {"f": []}])
def test_code_that_is_none(code: Any) -> None:
    with pytest.raises(UserError, match="'f'"):
        one_function(code)


@pytest.mark.parametrize("window", [{"instructions": 0}, {"window_bytes": 0}])
def test_an_empty_window(window: dict[str, int]) -> None:
    with pytest.raises(UserError, match="window at the entry"):
        entry_cost(pd.DataFrame({"symbol": ["f"], "offset": [1]}), **window)  # type: ignore[arg-type]


def test_a_clock_brings_the_warning_of_skid() -> None:
    samples, code = made(Program(5), np.random.default_rng(3))
    clock = entry_cost(samples.assign(event="cpu-clock"), code)
    assert by_subject(clock)["entry"].reasons[-1].code == "skid"
    assert by_subject(clock)["entry f01"].evidence["clock_skid"] is True
    precise = entry_cost(samples.assign(event="cycles:pp"), code)
    assert "skid" not in {reason.code for reason in by_subject(precise)["entry"].reasons}
