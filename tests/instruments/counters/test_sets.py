"""Sets of events and ratios as data, and what is computed from them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import pytest

from perflib.framework.published import published
from perflib.instruments.counters import pfm
from perflib.instruments.counters import sets as sets_module
from perflib.instruments.counters.aliases import aliases
from perflib.instruments.counters.events import CounterEvent
from perflib.instruments.counters.groups import CounterGroup, Lacking, in_domain
from perflib.instruments.counters.kernel_names import GENERIC, SOFTWARE
from perflib.instruments.counters.monitor import totals
from perflib.instruments.counters.sets import (
    events_of,
    expand,
    monitor_table,
    names_here,
    ratio_table,
    sets,
)
from perflib.model.errors import UserError
from tests.instruments.counters.tables import counts, series_row


def by_ratio(table: pd.DataFrame) -> Mapping[str, Any]:
    return {str(row["ratio"]): row for row in table.to_dict("records")}


# --- the data ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sets())
def test_a_set_has_names_that_are_known_and_fits_a_processor(name: str) -> None:
    one = sets()[name]
    assert one.meaning
    assert len(set(one.events)) == len(one.events)
    registers = {event for event in one.events if event.startswith("cpu/topdown-")}
    assert set(one.events) <= set(GENERIC) | set(aliases()) | registers | {"cpu/slots/"}
    free = {"cycles", "instructions", "core-cycles"}
    for pmu, counters in (("hsw", 4), ("bdw", 4), ("skx", 4), ("icl", 8), ("spr", 8)):
        programmed = [
            event
            for event in set(names_here(name, pmu)) - free
            if (GENERIC[event][0] != SOFTWARE if event in GENERIC else False)
            or (event in aliases() and pmu in aliases()[event].events)
        ]
        assert len(programmed) <= (counters if one.by_processor else 4), pmu
    if one.by_processor:
        assert len(names_here(name, "zen4")) <= 6


def test_a_name_without_an_encoding_becomes_a_row() -> None:
    def lookup(name: str) -> CounterEvent:
        if name == "page-faults":
            msg = "libpfm4 is not installed"
            raise UserError(msg)
        return CounterEvent(name, type=1, config=1)

    events = events_of("software", lookup=lookup)
    assert events[1] == Lacking("page-faults", "absent: libpfm4 is not installed")
    with CounterGroup(in_domain(events[:2], "user")) as group:
        assert list(group.read()["status"]) == [
            "never switched on",
            "absent: libpfm4 is not installed",
        ]


@pytest.mark.parametrize("name", sets())
def test_every_set_can_be_asked_for_on_every_machine(name: str) -> None:
    with CounterGroup(events_of(name), name=name) as group:
        group.enable()
        rows = group.read()
    assert list(rows["event"]) == names_here(name)
    assert (rows["status"].str.len() > 0).all()
    assert (rows["value"].notna() | ~rows["status"].isin(["counted", "scaled"])).all()


# --- ratios --------------------------------------------------------------------------------------


def test_a_ratio_by_hand() -> None:
    table = counts({"instructions": 300, "cycles": 200}, error=0.1)
    table.loc[1, "scaled_error"] = 10.0
    row = by_ratio(ratio_table(table))["instructions-per-cycle"]
    assert row["value"] == pytest.approx(1.5)
    assert row["error"] == pytest.approx(1.5 * math.hypot(0.1, 0.05))
    assert (row["set"], row["status"]) == ("mine", "scaled")


def test_a_missing_counter_is_a_row_that_says_so() -> None:
    table = counts({"instructions": 100, "cycles": math.nan})
    table.loc[1, "status"] = "absent: no such counter"
    row = by_ratio(ratio_table(table))["instructions-per-cycle"]
    assert math.isnan(row["value"])
    assert row["status"] == "needs cycles: absent: no such counter"


def test_a_zero_below_is_no_number() -> None:
    table = ratio_table(counts({"branch-misses": 1, "branches": 0}))
    row = by_ratio(table)["mispredictions-per-branch"]
    assert math.isnan(row["value"])
    assert row["status"] == "branches is zero"


def test_counts_of_two_sets_or_domains_are_not_mixed() -> None:
    table = counts({"instructions": 100, "cycles": 100})
    assert ratio_table(table.assign(set=["mine", "other"])).empty
    table["event"] = ["instructions:u", "cycles"]
    assert ratio_table(table).empty
    table["event"] = ["instructions:u", "cycles:u"]
    assert list(ratio_table(table)["ratio"]) == ["instructions-per-cycle:u"]


def test_with_slices_counts_that_rise_together_give_a_sharp_ratio() -> None:
    generator = np.random.default_rng(1)
    rows = []
    for tick in range(60):
        on = "a" if tick % 2 else "b"
        cycles = generator.uniform(1e6, 9e6)
        for event, value in (("cycles", cycles), ("instructions", 1.5 * cycles)):
            rows.append(series_row(tick, on, event, value))
    series = pd.DataFrame(rows)
    summed = totals(series)
    apart = ratio_table(summed)
    together = ratio_table(summed, series)
    assert list(together["value"]) == pytest.approx([1.5, 1.5])
    assert (together["error"] < 1e-6).all()
    assert (apart["error"] > 0.05).all()
    assert set(together["status"]) == {"scaled"}


# --- sets that go by the processor ---------------------------------------------------------------


def test_cores_that_are_shared_count_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pfm, "missing", str)
    monkeypatch.setattr(pfm, "this_cpu", lambda: "skx")
    monkeypatch.setattr(sets_module, "_shares_cores", lambda: True)
    shared = names_here("topdown-l1")
    assert shared[0] == "core-cycles"
    assert shared[-1] == "core-recovery-cycles"
    assert len(set(shared) - {"core-cycles"}) == 4
    assert "cycles" in names_here("topdown-memory")
    monkeypatch.setattr(pfm, "this_cpu", lambda: "spr")
    assert names_here("topdown-l1")[:2] == ["cycles", "issue-slots"]


def test_a_wrong_name_of_a_set() -> None:
    with pytest.raises(UserError, match="did you mean 'branches'"):
        events_of("branchs")
    with pytest.raises(UserError, match="did you mean 'topdown'"):
        expand("topdwn")
    assert expand("memory") == ["memory"]


# --- the monitor's tables ------------------------------------------------------------------------


def test_one_call_gives_the_table_of_the_source() -> None:
    table = published("perfctr_atlas_simulation")
    plain = table[~table["quantity"].str.contains("/")].copy()
    printed = dict(zip(table["quantity"], table["value"], strict=True))
    taken = plain["quantity"] == "BR_TP"
    plain.loc[taken, "quantity"] = "branches-taken"
    plain.loc[taken, "value"] += printed["BR_TM"]
    made = monitor_table(counts(dict(zip(plain["quantity"], plain["value"], strict=True))))
    assert set(printed) <= set(made.index)
    for quantity, value in printed.items():
        places = 10 ** -len(str(value).partition(".")[2])  # as it is printed
        assert made["value"][quantity] == pytest.approx(value, abs=places), quantity


def test_several_runs_stand_beside_each_other() -> None:
    table = published("perfctr_three_jobs")
    names = ("run_420s", "run_540s")
    runs = {name: dict(zip(table["counter"], table[name], strict=True)) for name in names}
    made = monitor_table({name: counts(run) for name, run in runs.items()})
    change = made["run_540s, change %"]
    assert change["CYC"] == pytest.approx(30.6, abs=0.05)
    assert abs(change["TOT"]) < 0.05
    assert change["INS/CYC"] == pytest.approx(100 * (1.1704428 / 1.5288766 - 1), abs=0.1)
    assert made["run_420s"]["L2LM/LD percent"] == pytest.approx(10.687, abs=1e-3)
    assert made["run_420s"]["FP"] == 141095332033
    assert made.loc["BR_TM"].isna().all()
    with pytest.raises(UserError, match="give one run"):
        monitor_table({})
