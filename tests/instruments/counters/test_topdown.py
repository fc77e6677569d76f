"""Top-down metrics: from recorded counts of other machines, and from simulated pipelines.

No machine that runs these tests has hardware counters: what is tested is the data, its encodings
and the arithmetic, not what a processor counts.
"""

from __future__ import annotations

import functools
import math
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from perflib.instruments.counters import pfm
from perflib.instruments.counters.aliases import aliases
from perflib.instruments.counters.events import event
from perflib.instruments.counters.groups import CounterGroup
from perflib.instruments.counters.kernel_names import GENERIC
from perflib.instruments.counters.monitor import totals
from perflib.instruments.counters.multiplexing import rotation
from perflib.instruments.counters.sets import events_of, expand, names_here
from perflib.instruments.counters.topdown import (
    consistency,
    metrics,
    model_of,
    models,
    table_of,
)
from tests.instruments.counters.libpfm import needs_libpfm
from tests.instruments.counters.tables import counts, series_row

RECORDED = tomllib.loads((Path(__file__).parents[2] / "data/topdown/recorded.toml").read_text())
GENERATIONS = [name for name in models() if name != "registers"]


def by_name(table: pd.DataFrame, column: str = "value") -> dict[str, Any]:
    return dict(zip(table["metric"], table[column], strict=True))


# --- the data ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", models())
def test_every_metric_has_a_formula_or_a_reason(name: str) -> None:
    model = models()[name]
    assert model.sources
    for metric in metrics():
        assert (metric in model.definitions()) != (metric in model.absent), metric
    for one in metrics().values():
        assert one.meaning
        assert not one.parent or metrics()[one.parent].level == 1


@needs_libpfm
@pytest.mark.parametrize("name", GENERATIONS)
def test_every_event_of_a_formula_is_encoded_for_the_generation(name: str) -> None:
    model = models()[name]
    for core in (False, True) if model.core else (False,):
        for metric in set(model.formulas) - set(model.absent):
            for needed in model.events(metric, core):
                assert needed in GENERIC or needed in aliases(), needed
                for pmu in model.processors:
                    found = event(needed, cpu=pmu)
                    assert found.config & 0xFF or found.type == 0, (pmu, needed)


@pytest.mark.parametrize("name", GENERATIONS)
def test_the_sets_hold_every_event_that_the_formulas_need(name: str) -> None:
    pmu = models()[name].processors[0]
    counted = {one for part in expand("topdown", pmu) for one in names_here(part, pmu)}
    model = models()[name]
    needed = set().union(*(model.events(one) for one in set(model.formulas) - set(model.absent)))
    assert needed <= counted


@needs_libpfm
def test_codes_that_libpfm_has_wrong_are_intels() -> None:
    """libpfm4 4.13 encodes TOPDOWN:BACKEND_BOUND_SLOTS as 0x200, which is the cycles' counter."""
    for cpu in ("icl", "icx", "spr"):
        assert event("slots-backend-stalled", cpu=cpu).config == 0x2A4
        assert pfm.encode(cpu, "TOPDOWN:BACKEND_BOUND_SLOTS").config in (0x200, 0x2A4)
    assert event("slots-mispredicted", cpu="spr").config == 0x8A4
    assert event("slots-memory-stalled", cpu="spr").config == 0x10A4
    assert event("slots-backend-stalled:u", cpu="spr").cpu == "spr"


@needs_libpfm
def test_a_processor_without_formulas_says_so() -> None:
    assert model_of("zen3") is None
    table = table_of(counts({"cycles": 1.0}), "zen3")
    assert table["value"].isna().all()
    assert table["status"].str.startswith("cannot be measured here: formulas are known for").all()


# --- recorded counts -----------------------------------------------------------------------------


@pytest.mark.parametrize("run", RECORDED["runs"], ids=lambda run: run["name"])
def test_counts_of_other_machines_give_their_published_metrics(run: dict[str, Any]) -> None:
    made = by_name(table_of(counts(run["counts"]), run["cpu"]))
    for metric, percent in run["percent"].items():
        half = 0.5 * 10.0 ** -run["places"] + run.get("off", 0.02)
        assert 100 * made[metric] == pytest.approx(percent, abs=half), metric


def test_shares_of_slots_that_do_not_make_up_all_are_reported() -> None:
    """The recorded Zen 4 runs were multiplexed: their parts do not make up all slots."""
    run = RECORDED["runs"][2]
    table = table_of(counts(run["counts"]), run["cpu"])
    assert consistency(table) == [
        "level 1 sums to 100.0 % ± 0.0, as they should: 100.0 %",
    ]
    less = dict(run["counts"], **{"slots-not-delivered": 8e10})
    said = consistency(table_of(counts(less), run["cpu"]))
    assert said == ["level 1 sums to 89.0 % ± 0.0, which is not 100.0 %"]
    unsure = consistency(table_of(counts(less, error=0.2), run["cpu"]))
    assert "as they should" in unsure[0]
    unknown = counts(less)  # of a single slice
    unknown["scaled_error"] = math.nan
    assert consistency(table_of(unknown, run["cpu"])) == []


# --- simulated pipelines -------------------------------------------------------------------------

WIDTH = {"hsw": 4, "bdw": 4, "skx": 4, "icl": 5, "spr": 6, "zen4": 6, "n2": 5, "v1": 8, "v2": 8}
TRUTH = {
    "retiring": 0.35,
    "bad-speculation": 0.10,
    "frontend-bound": 0.25,
    "backend-bound": 0.30,
    "other-thread": 0.0,
    "heavy-operations": 0.05,
    "light-operations": 0.30,
    "branch-mispredicts": 0.08,
    "machine-clears": 0.02,
    "fetch-latency": 0.15,
    "fetch-bandwidth": 0.10,
    "memory-bound": 0.18,
    "core-bound": 0.12,
}


def pipeline(name: str, cycles: float, truth: Mapping[str, float] = TRUTH) -> dict[str, float]:
    """What a pipeline counts whose slots go where ``truth`` says: each event by its definition."""
    width = WIDTH[name]
    slots = width * cycles
    lost = truth["bad-speculation"] * slots
    retired = truth["retiring"] * slots
    recovery, thrown = 0.4 * lost, 0.6 * lost  # of it slots in recovery, and wrong operations
    if name in ("icl", "spr", "zen4", "n2"):
        recovery, thrown = 0.0, lost
    dropped = 0.01 * slots
    delivered = truth["frontend-bound"] * slots
    # stalls in cycles: half of all cycles wait, memory's share of them as of the slots
    waiting = 0.5 * cycles
    memory = truth["memory-bound"] / truth["backend-bound"] * waiting
    stores = 0.3 * memory
    one, two = 0.1 * cycles, 0.08 * cycles
    few = one + truth["retiring"] * two
    made = {
        "cycles": cycles,
        "instructions": 0.8 * retired,
        "issue-slots": slots,
        "slots-retired": retired,
        "slots-issued": retired + thrown,
        "recovery-cycles": recovery / width,
        "recovery-episodes": 0.02 * cycles,
        "slots-dropped": dropped,
        "slots-not-delivered": delivered,
        "slots-backend-stalled": truth["backend-bound"] * slots,
        "slots-other-thread": truth["other-thread"] * slots,
        "cycles-not-delivered": truth["fetch-latency"] * cycles,
        "branches-mispredicted": 0.8e-3 * cycles,
        "machine-clear-count": 0.2e-3 * cycles,
        "slots-mispredicted": truth["branch-mispredicts"] * slots,
        "slots-memory-stalled": truth["memory-bound"] * slots,
        "stall-cycles-memory": memory - stores,
        "stall-cycles-stores": stores,
        "cycles-1-port": one,
        "cycles-2-ports": two,
        "stall-cycles": waiting - stores - few,
        "cycles-waiting": waiting,
        "cycles-waiting-for-load": memory,
        "microcode-slots": truth["heavy-operations"] * slots,
    }
    if name in ("icl", "spr"):  # what is dropped was delivered, and taken off again
        made["slots-not-delivered"] += dropped
        made["cycles-not-delivered"] += dropped / width
    if name == "icl":
        made["slots-backend-stalled"] -= width * made["recovery-episodes"]
    if name in ("v1", "v2"):  # a mispredicted branch empties half of the slots of eight cycles
        made["mispredictions"] = recovery / 32
        made["slots-not-delivered"] += recovery if name == "v1" else recovery / 4
        made["slots-backend-stalled"] += 0 if name == "v1" else 3 * recovery / 4
        made["slots-stalled"] = made["slots-not-delivered"] + made["slots-backend-stalled"]
    if name in ("hsw", "bdw"):
        made["microcode-slots"] *= made["slots-issued"] / retired
        made |= {
            "cycles-1-executed": 0.5 * cycles,
            "cycles-2-executed": 0.35 * cycles,
            "cycles-3-executed": 0.2 * cycles,
            "cycles-scheduler-empty": 0.05 * cycles,
            "stall-cycles": waiting - stores - 0.15 * cycles + 0.05 * cycles,
        }
    return made


@pytest.mark.parametrize("name", GENERATIONS)
def test_known_slots_come_back_from_their_counts(name: str) -> None:
    table = table_of(counts(pipeline(name, 1e9)), models()[name].processors[0])
    made = by_name(table)
    for metric in set(metrics()) - set(models()[name].absent):
        assert made[metric] == pytest.approx(TRUTH[metric], abs=1e-9), metric
    assert set(table.loc[table["value"].notna(), "status"]) == {"counted"}
    for metric, why in models()[name].absent.items():
        assert math.isnan(made[metric])
        assert by_name(table, "status")[metric] == f"cannot be measured here: {why}"
    assert all("as they should" in said for said in consistency(table))
    assert len(consistency(table)) >= (1 if "core-bound" in models()[name].absent else 4)


def test_where_threads_share_a_core_its_slots_are_shared() -> None:
    """Two equal threads: each sees its own events, and the core's cycles and recovery twice."""
    made = pipeline("skx", 1e9)
    # each thread runs for 1.6e9 cycles while the core does the same work in 1e9 of its own
    mine = {name: value / 2 for name, value in made.items()}
    mine |= {"cycles": 1e9, "core-cycles": 1e9, "core-recovery-cycles": made["recovery-cycles"]}
    found = by_name(table_of(counts(mine), "skx"))
    assert found["retiring"] == pytest.approx(TRUTH["retiring"])
    assert found["frontend-bound"] == pytest.approx(TRUTH["frontend-bound"])


# --- uncertainty ---------------------------------------------------------------------------------


def test_errors_of_independent_counts() -> None:
    """On Zen 4 the front end's share is a quotient of two counts: their relative errors add."""
    made = pipeline("zen4", 1e9)
    table = table_of(counts(made, error=0.01), "zen4")
    expected = TRUTH["frontend-bound"] * 0.01 * math.sqrt(2)
    assert by_name(table, "error")["frontend-bound"] == pytest.approx(expected, rel=1e-3)
    assert set(by_name(table, "status").values()) == {"scaled"}
    assert (table["error"] > 0).sum() >= 12


def noisy_series(
    name: str, generator: np.random.Generator
) -> tuple[pd.DataFrame, dict[str, float]]:
    """A program of two phases, in bursts, counted by rotating sets; and all that it did.

    The noise is gamma, not normal.
    """
    slices = 120
    pmu = models()[name].processors[0]
    parts = expand("topdown", pmu)
    # the phases make different work, and each slice its own amount of it
    other = dict(TRUTH)
    other |= {"retiring": 0.50, "light-operations": 0.45, "frontend-bound": 0.30}
    other |= {"fetch-latency": 0.18, "fetch-bandwidth": 0.12}
    other |= {"backend-bound": 0.10, "memory-bound": 0.06, "core-bound": 0.04}
    phase = np.cumsum(generator.random(slices) < 0.1) % 2
    order = rotation(len(parts), -(-slices // len(parts)), generator)[:slices]
    work = 1e6 * generator.gamma(6.0, 1 / 6, slices)
    rows = []
    truth: dict[str, float] = {}
    for tick in range(slices):
        made = pipeline(name, work[tick], other if phase[tick] else TRUTH)
        for one, value in made.items():
            truth[one] = truth.get(one, 0.0) + value
        part = parts[order[tick]]
        rows += [series_row(tick, part, one, round(made[one])) for one in names_here(part, pmu)]
    return pd.DataFrame(rows), truth


@functools.cache
def _simulated(name: str) -> pd.DataFrame:
    generator = np.random.default_rng(20)
    rows = []
    for _ in range(12):
        series, counted = noisy_series(name, generator)
        pmu = models()[name].processors[0]
        truth = by_name(table_of(counts(counted), pmu))
        summed = totals(series)
        for kind, table in (
            ("together", table_of(summed, pmu, series)),
            ("apart", table_of(summed, pmu)),
        ):
            for row in table.dropna(subset=["value"]).to_dict("records"):
                off = row["value"] - truth[str(row["metric"])]
                rows.append((kind, row["metric"], off, row["error"], abs(off) <= 2 * row["error"]))
    return pd.DataFrame(rows, columns=["kind", "metric", "off", "error", "covered"])


@pytest.mark.parametrize("name", [pytest.param("skx", marks=pytest.mark.slow), "zen4"])
def test_multiplexed_counts_give_metrics_within_their_uncertainty(name: str) -> None:
    """Two standard errors hold the truth in about 95 of 100 runs, of metrics of one set."""
    runs = _simulated(name)
    level1 = runs[
        (runs["kind"] == "together") & runs["metric"].isin(["retiring", "frontend-bound"])
    ]
    assert 0.85 <= level1["covered"].mean() <= 1.0
    assert level1["error"].median() < 3 * level1["off"].abs().median()
    every = runs[runs["kind"] == "together"].groupby("metric")["covered"].mean()
    assert (every >= 0.75).all(), every
    assert every.mean() >= 0.85


def test_counts_of_one_set_together_are_surer_than_apart() -> None:
    runs = _simulated("zen4")
    retiring = runs[runs["metric"] == "retiring"].groupby("kind")["error"].median()
    assert retiring["together"] < retiring["apart"]


# --- what cannot be measured ---------------------------------------------------------------------


def test_a_metric_that_lacks_an_event_says_which_and_the_others_stay() -> None:
    made = counts(pipeline("skx", 1e9))
    lost = made["event"] == "stall-cycles"
    made.loc[lost, "scaled"] = math.nan
    made.loc[lost, "status"] = "not counted"
    table = table_of(made[made["event"] != "machine-clear-count"], "skx")
    said = by_name(table, "status")
    assert said["memory-bound"] == "cannot be measured here: needs stall-cycles: not counted"
    assert said["core-bound"] == said["memory-bound"]
    assert said["machine-clears"].endswith("needs machine-clear-count: not counted")
    assert said["fetch-latency"] == "counted"
    assert len(table) == len(metrics())


def test_nothing_that_ran_is_no_metric() -> None:
    table = table_of(counts(dict.fromkeys(pipeline("skx", 1.0), 0.0)), "skx")
    assert table["value"].isna().all()
    assert "slots are zero" in by_name(table, "status")["retiring"]


@needs_libpfm
def test_this_machine_counts_or_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = []
    for part in expand("topdown"):
        with CounterGroup(events_of(part), name=part) as group:
            group.enable()
            group.disable()
            rows.append(group.read())
    table = table_of(pd.concat(rows))
    assert list(by_name(table)) == list(metrics())
    good = table["status"].isin(["counted", "scaled"])
    assert (table["value"].notna() == good).all()
    assert table.loc[~good, "status"].str.startswith("cannot be measured here: ").all()
    monkeypatch.setattr(pfm, "missing", lambda: "libpfm4 is not installed")
    without = table_of(pd.concat(rows))
    assert without["status"].str.contains("this processor is not known to be one of").all()
