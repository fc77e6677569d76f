"""memory_levels as its user meets it: what is planned, what fails on the way, real runs, tiny."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from perflib.experiments.memory_levels import ORDERS, MemoryLevelsParams, experiment, measure
from perflib.experiments.memory_levels.measure import sizes, warm_loads
from perflib.experiments.memory_levels.trials import ArrayConfiguration, Trials
from perflib.framework.brackets import SIBLING_COLUMNS
from perflib.machine.settings.changes import settings
from perflib.measure import arrays as memory_arrays
from perflib.measure.arrays import SAMPLE, Arrays
from perflib.measure.pages import backings
from perflib.measure.pages.backings import why_not, with_pool
from perflib.model.errors import MeasurementError, UserError
from perflib.store.run_files import runs
from tests.experiments.memory_levels.memory_samples import KIB, MIB

CPUS = sorted(os.sched_getaffinity(0))
CPU = CPUS[0]
POOL = Path("/proc/sys/vm/nr_hugepages")
TINY: dict[str, Any] = {
    "budget_s": 0.3, "largest_mib": 1, "smallest_kib": 16, "sizes_per_doubling": 1,
    "trial_ms": 0.05, "repeats": 2, "orders": ["window", "sequential"],
}  # fmt: skip
NO_POOL = why_not("hugetlb", pages_needed=3)

needs_this_processor = pytest.mark.skipif(
    bool(experiment.unavailable()), reason=experiment.unavailable()
)
needs_huge = pytest.mark.skipif(bool(why_not("thp")), reason=why_not("thp"))
needs_pool = pytest.mark.skipif(
    bool(NO_POOL) or os.geteuid() != 0, reason=f"no huge pages of the pool: {NO_POOL or 'not root'}"
)
# They change, or depend on, the machine's huge pages: one after the other.
pytestmark = [
    pytest.mark.xdist_group("huge pages"),
    needs_this_processor,
]


def plan(**given: Any) -> dict[str, Any]:
    """What is decided, and what the pilot adds to it."""
    wanted = params(**given)
    made = experiment.plan(wanted)
    with settings(experiment.system_settings(wanted, made)):
        return made | experiment.pilot(wanted, made)


def params(**given: Any) -> Any:
    return experiment.params({**TINY, **given})


# --- parameters ----------------------------------------------------------------------------------


def test_a_run_of_one_repeat_cannot_outlast_its_workers_patience() -> None:
    fields = MemoryLevelsParams.model_fields
    most = {
        name: max(rule.le for rule in fields[name].metadata if hasattr(rule, "le"))
        for name in ("trial_ms", "repeats")
    }
    assert 1e-3 * most["trial_ms"] * most["repeats"] < memory_arrays._TIMEOUT_S / 2


def test_what_cannot_be_planned_is_a_sentence() -> None:
    with pytest.raises(UserError, match="smallest_kib: 4096 KiB is more than the largest array, 1"):
        experiment.measure(params(smallest_kib=4096))
    with pytest.raises(UserError, match="unknown backing 'hugectl'"):
        experiment.measure(params(backings=["hugectl"]))
    assert runs() == []


# --- how large -----------------------------------------------------------------------------------


def test_sizes_are_whole_lines_and_grow_by_equal_factors() -> None:
    found = np.array(sizes(2 * KIB, 128 * MIB, 3))
    assert (found[0], found[-1], len(found)) == (2 * KIB, 128 * MIB, 49)
    assert (found % 64 == 0).all()
    assert np.abs(np.log2(found[1:] / found[:-1]) - 1 / 3).max() < 0.02
    assert sizes(1024, 2048, 16) == sorted(set(sizes(1024, 2048, 16)))
    assert sizes(4096, 4096, 3) == [4096]
    assert sizes(4096, 7000, 1) == [4096]


@pytest.fixture
def large_machine(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, int | None], None]:
    """Say how large the cache and the free memory are."""

    def made(cache: int, free: int | None) -> None:
        def sizes_of(_: Any, *, own: bool = False) -> list[int]:
            return [cache // 2] if own and cache else [cache // 2, cache]

        monkeypatch.setattr(measure, "_cache_sizes", sizes_of)
        monkeypatch.setattr(measure, "free_bytes", lambda: free)

    return made


@pytest.mark.parametrize(
    ("cache", "free", "largest", "noted"),
    [
        (256 * KIB, 1 << 30, MIB, 0),
        (256 * KIB, None, MIB, 0),
        (0, 1 << 40, 256 * MIB, 0),
        (MIB, 8 * MIB, 2 * MIB, 1),
    ],
)
def test_the_largest_array(
    cache: int, free: int | None, largest: int, noted: int,
    large_machine: Callable[[int, int | None], None],
) -> None:  # fmt: skip
    large_machine(cache, free)
    found, notes = measure.largest_bytes(params(largest_mib=None), cache)
    assert found == largest
    assert len(notes) == noted
    assert all("quarter of the free memory" in sentence for sentence in notes)


def test_a_quarter_of_the_memory_is_a_problem_of_the_run(
    large_machine: Callable[[int, int | None], None],
) -> None:
    large_machine(MIB, 2 * MIB)
    run = experiment.measure(params(largest_mib=None, backings="4k"))
    assert any("quarter of the free memory" in text for text in run.provenance["problems"])
    assert run.samples["array_bytes"].max() == 512 * KIB


def test_what_does_not_fit_into_memory_is_refused(
    large_machine: Callable[[int, int | None], None],
) -> None:
    large_machine(MIB, 100 * MIB)
    with pytest.raises(UserError, match=r"largest_mib: an array of 96 MiB needs 106 MiB .* 100"):
        plan(largest_mib=96)
    assert measure.largest_bytes(params(largest_mib=90), MIB) == (90 * MIB, [])


def test_warm_up_is_ten_laps_a_lap_or_a_part_of_one() -> None:
    assert warm_loads(4 * KIB, 10**6, 32 * MIB) == 640
    assert warm_loads(MIB, 100_000, 32 * MIB) == 100_000
    assert warm_loads(32 * MIB, 10_000, 32 * MIB) == 524_288
    assert warm_loads(64 * MIB, 10_000, 32 * MIB) == 100_000
    assert warm_loads(4 * KIB, 10_000, 0) == 64


# --- what is planned -----------------------------------------------------------------------------


def test_orders_are_those_of_the_kernel() -> None:
    """But for the one of `data_tlb`: of lines that are pages apart."""
    assert {*ORDERS, "spread"} == set(memory_arrays.ORDERS)


def test_each_core_order_backing_and_size_is_a_configuration_once() -> None:
    made = plan(backings=["4k"], cores=CPUS[:2], orders=["window", "random", "window"])
    found = [ArrayConfiguration(*one) for one in made["configurations"]]
    assert made["sizes"] == [KIB << n for n in range(4, 11)]
    assert [one[:4] for one in found] == [
        (cpu, order, "4k", size)
        for cpu in CPUS[:2]
        for order, sizes_of in (("window", "level_sizes"), ("random", "sizes"))
        for size in made[sizes_of]
    ]
    assert min(one.loads for one in found) >= 2000
    assert all(one.warm_loads >= one.array_bytes // 64 for one in found)
    assert made["page_reach"] == {}, "there is nothing to be compared with small pages"


def test_only_the_curve_of_the_levels_is_dense(
    large_machine: Callable[[int, int | None], None],
) -> None:
    large_machine(128 * KIB, None)
    made = plan(backings=["4k"], sizes_per_doubling=2, orders=["random", "window"])
    found = {
        order: [one[3] for one in made["configurations"] if one[1] == order]
        for order in ("window", "random")
    }
    assert set(made["sizes"]) < set(found["window"])
    between = sorted(set(found["window"]) - set(made["sizes"]))
    assert 32 * KIB < between[0] < between[-1] < 96 * KIB, "next to the end of the core's own cache"
    assert found["random"] == [16 * KIB << n for n in range(7)]
    assert made["own_bytes"] == 128 * KIB


@needs_huge
def test_huge_pages_come_with_their_control() -> None:
    made = plan(backings=["4k", "huge"])
    assert len(made["backings"]) == 2
    assert set(made["page_reach"]) == set(made["backings"])
    assert all(few > 0 and many > 0 for pairs in made["page_reach"].values() for few, many in pairs)


def test_backings_that_fail_are_absent_with_their_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Arrays.place

    def lay(self: Arrays, key: Any, *, backing: str, **more: Any) -> str:
        return (
            "found something else" if backing == "4k" else real(self, key, backing=backing, **more)
        )

    monkeypatch.setattr(Arrays, "place", lay)
    with pytest.raises(MeasurementError, match=r"none of the backings .* 4k: found something else"):
        plan(backings=["4k"])


@needs_pool
def test_the_pool_is_reserved_and_given_back() -> None:
    before = POOL.read_text()
    run = experiment.measure(params(backings="hugetlb"))
    assert POOL.read_text() == before
    assert set(run.samples["backing"]) == {"hugetlb"}
    assert run.samples["ok"].all()


def test_as_many_pages_of_1_gib_are_reserved_as_an_array_and_the_control_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pools = {"hugetlb": (5, 5), "hugetlb_1g": (2, 1)}
    monkeypatch.setattr(backings, "pool_pages", lambda name: pools[name])
    assert with_pool({}, ["4k", "hugetlb_1g"], 512) == {"nr_hugepages_1g": "3"}
    assert with_pool({}, ["hugetlb", "hugetlb_1g"], 513) == {
        "nr_hugepages": "513", "nr_hugepages_1g": "4",
    }  # fmt: skip


# --- what goes wrong on the way ------------------------------------------------------------------


class FakeArrays:
    """Answers as given: why an array is not placed, the frequency, why the core cannot be used."""

    violated: tuple[str, ...] = ("the priority was not available",)

    def __init__(
        self,
        *,
        unplaced: str = "",
        gone: str = "",
        mhz: float = 2000.0,
        probes_ns: Callable[[int], Any] = lambda _: 4000,
    ) -> None:
        self.unplaced, self.gone, self.mhz, self.probes_ns = unplaced, gone, mhz, probes_ns
        self.runs = 0

    def place(self, _key: str, **_requested: Any) -> str:
        return self.unplaced

    def run(self, _key: str, cpu: int, _warm: int, loads: int, repeats: int) -> Any:
        found = np.zeros(repeats, SAMPLE)
        found["loads"], found["cpu"] = loads, cpu
        times = found["sample"]
        times["time_ns"] = times["cpu_time_ns"] = 4 * loads * 1000 / self.mhz
        times["chain_before_ns"] = times["chain_after_ns"] = 6400e3 / self.mhz
        times["probe_before_ns"] = times["probe_after_ns"] = self.probes_ns(repeats)
        self.runs += 1
        return (found[:0] if self.gone == "gone" else found), self.gone


def trials(arrays: FakeArrays, *turn: Any) -> Trials:
    one = ArrayConfiguration(CPU, "window", "4k", 16 * KIB, 2000, 256, *turn)
    return Trials(arrays, [one], params(), 2)  # type: ignore[arg-type]


def test_cycles_are_those_of_the_core_whatever_its_clock() -> None:
    for mhz in (1000.0, 2000.0, 4000.0):
        frame = pd.DataFrame(trials(FakeArrays(mhz=mhz)).take(0, 0))
        assert frame["latency_cycles"].tolist() == pytest.approx([4.0, 4.0])
        assert frame["latency_ns"].tolist() == pytest.approx([4000 / mhz] * 2)


# --- where time is spent -------------------------------------------------------------------------


def probes(share_alone: float, seed: int = 1) -> Callable[[int], Any]:
    """Probes of a core whose sibling works: alone for a share of the calls, of 1 % width."""
    generator = np.random.default_rng(seed)

    def made(repeats: int) -> Any:
        if generator.random() < share_alone:
            return 4000 + generator.integers(0, 20, repeats)
        return generator.integers(4500, 6500, repeats)

    return made


def test_a_core_that_is_rarely_alone_is_visited_until_it_was() -> None:
    fake = FakeArrays(probes_ns=probes(0.4))
    made = trials(fake, 1, 0, True)
    rows = [len(made.take(round_, 0)["repeat"]) for round_ in range(120)]
    assert set(rows[:5]) == {2}, "nothing is known yet"
    assert set(rows[60:]) == {2, 4, 6, 8}
    wanted = made.take(0, 0)
    assert wanted["repeat"] == list(range(len(wanted["repeat"])))


@pytest.mark.parametrize(("share_alone", "own"), [(0.0, True), (1.0, True), (0.2, False)])
def test_no_time_is_spent_in_vain_on_being_alone(share_alone: float, own: bool) -> None:
    made = trials(FakeArrays(probes_ns=probes(share_alone)), 1, 0, own)
    assert {len(made.take(round_, 0)["repeat"]) for round_ in range(120)} == {2}
    never = [text for text in made.violated if "never seen alone" in text]
    assert len(never) == (share_alone == 0.0)


def test_some_arrays_are_visited_in_some_rounds() -> None:
    fake = FakeArrays()
    made = trials(fake, 3, 1)
    assert [round_ for round_ in range(9) if made.take(round_, 0)] == [2, 5, 8]
    assert fake.runs == 3


def test_every_curve_of_a_core_has_small_arrays_dense_and_the_largest_in_the_same_rounds(
    large_machine: Callable[[int, int | None], None],
) -> None:
    large_machine(256 * KIB, None)
    made = plan(backings=["4k"], orders=["random", "window"], sizes_per_doubling=2)
    found = [ArrayConfiguration(*one) for one in made["configurations"]]
    for one in found:
        main, own = one.order == "window", one.array_bytes <= made["own_bytes"]
        assert one.until_alone == (main and own)
        assert one.every == (1 if one.until_alone else 3)
        if one.array_bytes > 256 * KIB and not one.until_alone:
            assert one.phase == 0
    phases = {(one.array_bytes, one.phase) for one in found if one.every == 3}
    assert len(phases) == len({size for size, _ in phases}), "curves are compared within rounds"


@pytest.mark.parametrize(
    ("fake", "rows", "says"),
    [
        (FakeArrays(unplaced="its pages are not huge"), 1, "its pages are not huge"),
        (FakeArrays(gone="gone"), 1, "gone"),
        (FakeArrays(gone="the thread was moved"), 2, "the thread was moved"),
    ],
)
def test_a_trial_that_fails_is_marked_and_reported_once(
    fake: FakeArrays, rows: int, says: str
) -> None:
    made = trials(fake)
    for round_ in range(3):
        frame = pd.DataFrame(made.take(round_, 0))
        assert len(frame) == rows
        assert not frame["ok"].any()
        later = {"round", "position", *(one.name for one in SIBLING_COLUMNS)}
        assert set(frame.columns) | later == {c.name for c in experiment.columns}
    assert made.violated == [FakeArrays.violated[0], f"4k on cpu{CPU}, in some trials: {says}"]


def test_where_nothing_is_ok_the_run_is_kept_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    made = params(backings="4k")
    piloted = experiment.pilot(made, experiment.plan(made))
    monkeypatch.setattr(type(experiment), "pilot", lambda *_: piloted)
    monkeypatch.setattr(Arrays, "place", lambda *_, **__: "no memory on that node")
    run = experiment.measure(made)
    assert not run.samples["ok"].any()
    assert "no memory on that node" in run.provenance["problems"][0]
    with pytest.raises(UserError, match="no sample is usable"):
        experiment.analyse(run)
    assert measure.half_width(run.samples, {}) == math.inf


# --- for real ------------------------------------------------------------------------------------


def test_a_short_run() -> None:
    run = experiment.measure(params(budget_s=0.4))
    assert run.samples["ok"].all()
    assert set(run.samples["order"]) == {"window", "sequential"}
    assert set(run.samples["backing"]) == set(run.provenance["plan"]["backings"])
    assert set(run.samples["cpu"]) == {CPU}
    assert run.samples["core_mhz"].median() > 100  # of one that was pushed aside it is far less
    assert "memory" in {finding.subject for finding in experiment.analyse(run)}
