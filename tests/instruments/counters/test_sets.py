"""Sets of events and ratios as data, and what is computed from them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import pytest

from perflib.framework.published import published
from perflib.instruments.counters.aliases import aliases
from perflib.instruments.counters.events import Event
from perflib.instruments.counters.groups import Group, Lacking, in_domain
from perflib.instruments.counters.kernel_names import GENERIC, SOFTWARE
from perflib.instruments.counters.monitor import totals
from perflib.instruments.counters.sets import (
    Ratio,
    events_of,
    published_names,
    ratio_table,
    ratios,
    sets,
)
from perflib.model.errors import UserError


def counts(**values: float | tuple[float, float]) -> pd.DataFrame:
    """Rows of one set: each event's count, or count and uncertainty."""
    rows = []
    for name, value in values.items():
        count, error = value if isinstance(value, tuple) else (value, 0.0)
        status = "scaled" if error else "counted"
        status = status if math.isfinite(count) else "absent: no such counter"
        rows.append(
            {
                "event": name.replace("_", "-"),
                "set": "mine",
                "scaled": count,
                "scaled_error": error,
                "status": status,
            }
        )
    return pd.DataFrame(rows)


def by_ratio(table: pd.DataFrame) -> Mapping[str, Any]:
    return {str(row["ratio"]): row for row in table.to_dict("records")}


# --- the data ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sets())
def test_a_set_has_names_that_are_known_and_fits_a_processor(name: str) -> None:
    one = sets()[name]
    assert one.meaning
    assert len(set(one.events)) == len(one.events)
    assert set(one.events) <= set(GENERIC) | set(aliases())
    free = {"cycles", "instructions"}
    for pmu in ("hsw", "skx", "spr"):  # four counters a thread
        programmed = [
            event
            for event in set(one.events) - free
            if (GENERIC[event][0] != SOFTWARE if event in GENERIC else False)
            or (event in aliases() and pmu in aliases()[event].events)
        ]
        assert len(programmed) <= 4, pmu


@pytest.mark.parametrize("ratio", ratios().values(), ids=lambda ratio: ratio.name)
def test_a_ratio_can_be_made_of_some_set(ratio: Ratio) -> None:
    assert any(ratio.events <= set(one.events) for one in sets().values())
    assert ratio.factor > 0


def test_the_ratios_of_the_source_are_there() -> None:
    """LD/TOT, L2LM/LD, BR_TP/TOT ... of its ATLAS simulation, in its own numbers."""
    table = published("perfctr_atlas_simulation").set_index("quantity")["value"]
    ours = {name: table[theirs] for theirs, name in published_names().items() if theirs in table}
    ours["branches-taken"] = table["BR_TP"] + table["BR_TM"]
    rows = [
        {"event": name, "set": "atlas", "scaled": value, "scaled_error": 0.0, "status": "counted"}
        for name, value in ours.items()
    ]
    made = by_ratio(ratio_table(pd.DataFrame(rows)))
    for ratio, theirs, percent in (
        ("instructions-per-cycle", "INS/CYC", 1),
        ("loads-per-instruction", "LD/TOT percent", 100),
        ("loads-per-cycle", "LD/CYC", 1),
        ("l2-load-misses-per-load", "L2LM/LD percent", 100),
        ("stores-per-instruction", "ST/TOT percent", 100),
        ("l2-store-misses-per-store", "L2SM/ST percent", 100),
        ("taken-branches-predicted-per-instruction", "BR_TP/TOT percent", 100),
        ("taken-branches-mispredicted-per-instruction", "BR_TM/TOT percent", 100),
    ):
        assert percent * made[ratio]["value"] == pytest.approx(table[theirs], rel=5e-3), ratio


def test_the_sets_of_the_source_are_there() -> None:
    names = published_names()
    for row in published("perfctr_event_sets").to_dict("records"):
        ours = set(sets()[str(row["set"]).replace("_", "-")].events)
        asked = {row[f"counter_{number}"] for number in range(1, 7)}
        assert {"cycles", "instructions"} <= ours
        assert {names[one] for one in asked & {"CYC", "TOT", "SDS", "LD", "ST"}} <= ours


def test_an_unknown_set_names_the_nearest() -> None:
    with pytest.raises(UserError, match="did you mean 'branches'"):
        events_of("branchs")


def test_a_name_without_an_encoding_becomes_a_row() -> None:
    def lookup(name: str) -> Event:
        if name == "page-faults":
            msg = "libpfm4 is not installed"
            raise UserError(msg)
        return Event(name, type=1, config=1)

    events = events_of("software", lookup=lookup)
    assert events[1] == Lacking("page-faults", "absent: libpfm4 is not installed")
    with Group(in_domain(events[:2], "user")) as group:
        assert list(group.read()["status"]) == [
            "never switched on",
            "absent: libpfm4 is not installed",
        ]


@pytest.mark.parametrize("name", sets())
def test_every_set_can_be_asked_for_on_every_machine(name: str) -> None:
    with Group(events_of(name), name=name) as group:
        group.enable()
        rows = group.read()
    assert list(rows["event"]) == list(sets()[name].events)
    assert (rows["status"].str.len() > 0).all()
    assert (rows["value"].notna() | ~rows["status"].isin(["counted", "scaled"])).all()


def test_software_sets_count_everywhere() -> None:
    with Group(in_domain(events_of("faults"), "user"), name="faults") as group:
        group.enable()
        bytearray(10_000_000)
        group.disable()
        table = group.read()
    assert set(table["status"]) == {"counted"}
    made = by_ratio(ratio_table(table))
    seen = {row["event"]: row["value"] for row in table.to_dict("records")}
    assert made["page-faults-per-ms:u"]["value"] == pytest.approx(
        seen["page-faults:u"] / (seen["task-clock:u"] / 1e6)
    )


# --- ratios --------------------------------------------------------------------------------------


def test_a_ratio_by_hand() -> None:
    made = by_ratio(ratio_table(counts(instructions=(300, 30), cycles=(200, 10))))
    row = made["instructions-per-cycle"]
    assert row["value"] == pytest.approx(1.5)
    assert row["error"] == pytest.approx(1.5 * math.hypot(0.1, 0.05))
    assert (row["set"], row["status"]) == ("mine", "scaled")


def test_terms_are_added_and_subtracted() -> None:
    table = counts(
        instructions=1000.0,
        branches_taken=(100, 3),
        branches_taken_mispredicted=(20, 4),
    )
    row = by_ratio(ratio_table(table))["taken-branches-predicted-per-instruction"]
    assert row["value"] == pytest.approx(0.08)
    assert row["error"] == pytest.approx(0.005)
    assert row["formula"] == "(branches-taken - branches-taken-mispredicted) / (instructions)"


def test_propagation_agrees_with_simulation() -> None:
    generator = np.random.default_rng(0)
    above, below = generator.normal(300, 6, 20_000), generator.normal(200, 3, 20_000)
    row = by_ratio(ratio_table(counts(instructions=(300, 6), cycles=(200, 3))))
    spread = float(np.std(above / below))
    assert row["instructions-per-cycle"]["error"] == pytest.approx(spread, rel=0.03)


def test_a_missing_counter_is_a_row_that_says_so() -> None:
    made = by_ratio(ratio_table(counts(instructions=100, cycles=math.nan)))
    row = made["instructions-per-cycle"]
    assert math.isnan(row["value"])
    assert row["status"] == "needs cycles: absent: no such counter"


def test_a_zero_below_is_no_number() -> None:
    row = by_ratio(ratio_table(counts(branch_misses=1, branches=0)))["mispredictions-per-branch"]
    assert math.isnan(row["value"])
    assert row["status"] == "branches is zero"


def test_counts_of_two_sets_or_domains_are_not_mixed() -> None:
    table = counts(instructions=100, cycles=100)
    table.loc[1, "set"] = "other"
    assert ratio_table(table).empty
    table = counts(instructions=100, cycles=100)
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
            rows.append(
                {
                    "time_ns": tick, "set": on, "event": event, "value": value, "missed": 0.0,
                    "scaled": value, "enabled_ns": 1e7, "running_ns": 1e7, "clock_ns": 1e7,
                    "status": "counted",
                }
            )  # fmt: skip
    series = pd.DataFrame(rows)
    summed = totals(series)
    apart = ratio_table(summed)
    together = ratio_table(summed, series)
    assert list(together["value"]) == pytest.approx([1.5, 1.5])
    assert (together["error"] < 1e-6).all()
    assert (apart["error"] > 0.05).all()
    assert set(together["status"]) == {"scaled"}
