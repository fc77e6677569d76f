"""data_tlb as its user meets it: what is planned, what fails on the way, a real run, tiny."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pandas as pd
import pytest

from perflib.experiments.data_tlb import experiment, measure
from perflib.experiments.data_tlb.measure import (
    half_width,
    most_huge_pages,
    most_pages,
    numbers,
    strides_within,
)
from perflib.experiments.data_tlb.table import Entries
from perflib.experiments.data_tlb.trials import Configuration, Trials
from perflib.framework.plots import drawn
from perflib.measure.arrays import Arrays
from perflib.model.errors import MeasurementError, UserError
from tests.experiments.data_tlb.tlb_samples import REQUIRED, Level, Machine, run_of, tlb

CPU = min(os.sched_getaffinity(0))
PAGE, MIB = 4096, 1 << 20
TINY: dict[str, Any] = {
    "budget_s": 0.3, "largest_pages": 128, "sizes_per_doubling": 2, "trial_ms": 0.05, "repeats": 2,
    "backings": ["4k"], "strides": [4],
}  # fmt: skip
needs_this_processor = pytest.mark.skipif(
    bool(experiment.unavailable()), reason=experiment.unavailable()
)
# They depend on the machine's huge pages: one after the other.
pytestmark = pytest.mark.xdist_group("huge pages")


def params(**given: Any) -> Any:
    return experiment.params({**TINY, **given})


# --- how many pages ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entries", "cached_lines", "free", "most", "noted"),
    [
        (2048, 32768, 16 << 30, 6144, False),
        (0, 32768, 16 << 30, 6144, False),
        (0, 0, None, 6144, False),
        (1536, 4096, 16 << 30, 2048, True),  # half of a second-level cache of 256 KiB
        (1024, 8192, 16 << 30, 3072, False),
        (2048, 32768, 32 * MIB, 2048, True),  # a quarter of the free memory
        (2048, 32768, 0, 64, True),
    ],
)
def test_most_pages(
    entries: int, cached_lines: int, free: int | None, most: int, noted: bool
) -> None:
    found, notes = most_pages(None, entries, cached_lines, free)
    assert (found, bool(notes)) == (most, noted)
    assert all(f"{most} pages at most" in note and "largest_pages" in note for note in notes)


def test_requested_pages_are_kept_or_refused_with_what_has_room() -> None:
    assert most_pages(5000, 2048, 4096, 1 << 30) == (5000, [])
    with pytest.raises(UserError, match=r"5000 pages need 19 MiB, and 8 MiB are free: give 2048"):
        most_pages(5000, 2048, 4096, 8 * MIB)


def test_huge_pages_and_strides_take_a_quarter_of_the_free_memory() -> None:
    assert most_huge_pages(128, None) == 128
    assert most_huge_pages(128, 400 * MIB) == 50
    assert most_huge_pages(128, 0) == 16
    assert strides_within([4, 16, 64], 160, None) == [4, 16, 64]
    assert strides_within([4, 16, 64], 160, 4 * 160 * 16 * PAGE) == [4, 16]


def test_numbers_of_pages_ascend_by_equal_factors() -> None:
    found = np.array(numbers(16, 6144, 6))
    assert found[0] == 16
    assert 6144 / 1.13 < found[-1] <= 6144
    assert np.abs(np.log2(found[1:] / found[:-1]) - 1 / 6).max() < 0.06
    assert numbers(8, 8, 6) == [8]


def test_entries_as_cpuid_reports_them_by_size_of_pages() -> None:
    golden = {
        "tlbs": [
            tlb(1, 96, 6), tlb(1, 32, 4, 2 << 20), tlb(2, 1024, 8), tlb(2, 1024, 8),
            {**tlb(1, 256, 8), "kind": "instruction"}, {**tlb(1, 16, 16), "kind": "store"},
        ],
        "tlbs_origin": "published for Golden Cove",
    }  # fmt: skip
    small = Entries.of(golden, "4k")
    assert (dict(small.by_level), small.ways) == ({1: 96, 2: 2048}, 6)
    assert small.origin == "published for Golden Cove"
    assert dict(Entries.of(golden, "thp").by_level) == {1: 32}
    assert Entries.of({}, "4k") == Entries({})


# --- for real ------------------------------------------------------------------------------------


@needs_this_processor
def test_a_short_run_measures_every_configuration() -> None:
    run = experiment.measure(params(budget_s=1.0))
    table, plan = run.samples, run.provenance["plan"]
    assert table["ok"].all()
    assert set(table["cpu"]) == {CPU} == set(plan["cores"])
    assert set(table["lines"]) == {"spread", "packed"}
    first = table[table["round"] == 0].groupby(["backing", "lines", "stride", "pages"]).size()
    assert len(first) == len(plan["configurations"])
    assert (first == 2).all()
    assert set(table.loc[table["stride"] == 4, "lines"]) == {"spread"}
    assert sorted(set(table.loc[table["stride"] == 1, "pages"])) == plan["pages"]["small"]
    assert (table["loads"] >= 2 * table["pages"]).all()
    subjects = {finding.subject for finding in experiment.analyse(run)}
    assert {"data TLB 4 KiB", "second-level TLB 4 KiB", "data TLB ways"} <= subjects


@needs_this_processor
def test_strides_are_visited_in_every_second_round() -> None:
    given = params()
    configurations = [
        Configuration(CPU, "4k", "spread", 4, 8, 2000, 2),
        Configuration(CPU, "4k", "packed", 1, 8, 2000),
    ]
    with Arrays(given.conditions(None)) as arrays:
        trials = Trials(arrays, configurations, seed=1, repeats=2)
        rows = [
            [len(trials.take(round_, one).get("ok", [])) for one in (0, 1)] for round_ in (0, 1)
        ]
        assert rows == [[2, 2], [0, 2]]
        assert trials.violated == []


@needs_this_processor
def test_lines_that_cannot_be_placed_are_no_samples() -> None:
    given = params()
    configurations = [Configuration(1 << 20, "4k", "spread", 1, 8, 2000)]
    with Arrays(given.conditions(None)) as arrays:
        trials = Trials(arrays, configurations, seed=1, repeats=2)
        columns = trials.take(0, 0)
        assert columns["ok"] == [False]
        assert "cannot be used" in trials.violated[0]
    assert half_width(pd.DataFrame({**columns, "round": [0]})) == np.inf


@needs_this_processor
def test_huge_pages_that_the_host_does_not_back_are_not_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = params(backings=["4k", "thp"])
    made = experiment.plan(given)
    if "thp" not in made["backings"]:
        pytest.skip(made["absent"]["thp"])
    small, huge = [[1.2, 2.9]] * 9, [[1.2, 2.91], [1.2, 2.9], [1.2, 2.89]] * 3
    for left, pairs in (
        (["4k"], {"4k": small, "thp": huge}),
        (["4k", "thp"], {"4k": small, "thp": [[1.2, 1.21], [1.2, 1.2], [1.2, 1.19]] * 3}),
    ):
        monkeypatch.setattr(measure, "timed_pairs", lambda *_, found=pairs: found)
        found = experiment.pilot(given, made)
        assert found["backings"] == left
        assert {one.backing for one in found["configurations"]} == set(left)
        every = {one.every for one in found["configurations"] if one.backing == "thp"}
        assert every <= {3}


@needs_this_processor
def test_without_any_backing_the_run_ends_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    given = params()
    made = experiment.plan(given)
    monkeypatch.setattr(measure, "place", lambda *_: "no memory is left")
    with pytest.raises(MeasurementError, match=r"none of the backings is .*4k: no memory is left"):
        experiment.pilot(given, made)


def test_precision_needs_rounds_and_is_the_usual_sizes() -> None:
    made = Machine(((Level(64, 4), 1.75),), pages={"4k": numbers(16, 512, 4)})
    assert half_width(made.samples(rounds=15).assign(ok=True)) == np.inf
    short, long = (half_width(made.samples(rounds=n).assign(ok=True)) for n in (16, 128))
    assert 0 < long < short < 20


def test_figures_are_drawn_of_what_is_there() -> None:
    made = Machine(
        ((Level(64, 4), 1.75),),
        pages={"4k": numbers(16, 512, 6), "thp": numbers(8, 128, 4)},
        strides=(4, 16),
    )
    run = run_of(made.samples(rounds=10), tlb(1, 64, 4))
    figures = experiment.drawings(run)
    assert set(figures) == {"loads", "ways"}
    loads = drawn(figures["loads"])
    assert [axes.get_title() for axes in loads.axes[:2]] == ["4 KiB pages", "2 MiB pages (thp)"]
    plain = run_of(made.samples(rounds=10)[REQUIRED].query("backing == '4k'"))
    assert set(experiment.drawings(plain)) == {"loads"}
