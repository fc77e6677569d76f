"""Two curves where there are two: a core that is alone, and one whose sibling works."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from perflib.experiments.code_size import figures, tables
from perflib.experiments.code_size.analyse import split_finding
from perflib.experiments.code_size.reaches import Reaches
from perflib.experiments.code_size.table import CodeTable
from perflib.lab.theme import themed
from perflib.machine.hardware.tlbs import Tlb
from perflib.model.finding import Finding
from perflib.stats.interval import Interval
from perflib.stats.knees import Knee, Knees
from tests.experiments.code_size import code_samples
from tests.experiments.code_size.bracketed_samples import samples
from tests.experiments.judged import codes

KIB = 1024
SEEDS = range(3)
PROBES = ["probe_before_ns", "probe_after_ns", "chain_before_ns", "chain_after_ns"]


def machine(**more: Any) -> dict[str, Any]:
    """What is known of the simulated machine: 64 entries, an L2 of 1 MiB, a guest."""
    caches = [(1, "instruction", 32), (2, "unified", 1024)]
    return {
        "hypervisor": "KVM",
        "caches": [
            {"level": level, "kind": kind, "size_bytes": size * KIB} for level, kind, size in caches
        ],
        "tlbs": [vars(Tlb(1, "instruction", (4096,), 64, 64))],
        **more,
    }


def findings(table: pd.DataFrame, **more: Any) -> dict[str, Finding]:
    """On a host that does not back huge pages: the chase's control is the ring on few pages."""
    pairs = [[1.0, 5.0 + 0.01 * i] for i in range(9)]
    known = {"machine": machine(**more), "plan": {"page_reach": {"4k": pairs, "thp": pairs}}}
    return code_samples.by_subject(code_samples.findings(table, provenance=known))


# --- knees ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("busy", [0.25, 0.75])
def test_a_split_tlb_has_two_knees(busy: float) -> None:
    made = [findings(samples(seed, busy=busy)) for seed in SEEDS]
    for name, true_kib in (("knee", 256), ("knee shared", 128)):
        near = [abs(found[name].effect / true_kib - 1) < 0.1 for found in made]
        assert all(near), name
        assert all(found[name].verdict != "refuted" for found in made), name
    verdicts = [found["iTLB split"].verdict for found in made]
    assert set(verdicts) == {"supported"}
    assert "half ends" in made[1]["knee shared"].plain


def test_a_tlb_that_is_not_split_has_one_knee_in_both_states() -> None:
    made = [findings(samples(seed, busy=0.5, reach_shared=64)) for seed in SEEDS]
    for found in made:
        assert found["knee"].effect == pytest.approx(256, rel=0.1)
        assert found["knee shared"].effect == pytest.approx(256, rel=0.1)
    assert all(found["iTLB split"].verdict == "refuted" for found in made)
    assert "do not split" in made[0]["iTLB split"].plain


def test_where_no_states_are_known_there_is_one_curve() -> None:
    table = samples(rounds=8, busy=0.0)
    for given in (table, table.drop(columns=PROBES)):
        found = findings(given)
        assert found["knee"].verdict == "supported"
        assert not {"knee shared", "iTLB split"} & set(found)


def knees(*size_kib: tuple[float, float, float]) -> Knees:
    flat = Interval(0.0, -0.1, 0.1)
    found = tuple(Knee(Interval(*one), Interval(0.5, 0.4, 0.6), 0.01) for one in size_kib)
    return Knees(found, 0.01, 0.5, flat, (flat,))


SIZES = KIB * np.array([32.0, 64, 96, 128, 144, 192, 256, 288, 384, 512])
ITLB = (256 * KIB, 256 * KIB, 288 * KIB)


def rows(*steps: tuple[float, float], noise: float = 0.02) -> Any:
    """``[batch, n]``: rises of so much beyond so many KiB."""
    rng = np.random.default_rng(3)
    level = sum(height * (beyond * KIB < SIZES) for beyond, height in steps)
    return level + rng.normal(0, noise, (8, SIZES.size))


@pytest.mark.parametrize(
    ("alone", "shared", "verdict"),
    [
        ([ITLB], rows((128, 0.6)), "supported"),
        ([ITLB], rows((128, 0.6), (256, 0.1)), "supported"),
        ([ITLB], rows((256, 0.6)), "refuted"),
        ([ITLB], rows((48, 0.3), (256, 0.3)), "refuted"),  # another buffer, much smaller
        ([ITLB], rows((128, 0.3), (256, 0.3)), "inconclusive"),
        ([ITLB], rows(), "inconclusive"),
        ([ITLB], np.full((8, SIZES.size), np.nan), "inconclusive"),
        ([], rows((128, 0.6)), "inconclusive"),
        ([(256 * KIB, 0.0, 288 * KIB)], rows((128, 0.6)), "inconclusive"),
    ],
)
def test_a_split_is_what_rises_at_half_of_the_reach(
    alone: list[Any], shared: Any, verdict: str
) -> None:
    found = split_finding(knees(*alone), SIZES, shared)
    assert found.verdict == verdict
    assert found.plain
    assert found.reason


def test_what_is_published_is_said_to_be() -> None:
    found = findings(samples(rounds=8), tlbs_origin="published for Zen 4", tlbs_source="a manual")
    assert "published" in codes(found["knee"])
    assert "CPUID does not report that reach: it is published for Zen 4." in found["knee"].reason


# --- cores ---------------------------------------------------------------------------------------


def cores_of(found: dict[str, Finding]) -> dict[str, Finding]:
    return {name: one for name, one in found.items() if name.startswith("cpu")}


def test_null_no_core_is_slow_under_load() -> None:
    wide = []
    for seed in range(6):
        busy = {0: 0.2, 1: 0.7}
        found = findings(samples(seed, rings=False, rounds=24, busy=busy))
        assert all(one.verdict != "supported" for one in cores_of(found).values())
        wide += [(one.high - one.low) / 2 for one in cores_of(found).values()]
    assert np.median(wide) < 2, "percent"


def test_a_slow_core_is_found_under_load() -> None:
    for seed in range(2):
        made = samples(seed, rings=False, rounds=40, busy={0: 0.6, 1: 0.2}, slow={0: 0.05})
        found = findings(made)
        for name in ("cpu0", "cpu0 huge pages", "cpu0 small code"):
            assert found[name].verdict == "supported", (seed, name)
            assert found[name].low <= 5.0 <= found[name].high * 1.1
        assert "alone" in codes(found["cpu0"])
        assert found["cpu1"].verdict == "refuted"


def test_a_core_that_is_never_alone_compares_nothing() -> None:
    found = findings(
        samples(rings=False, rounds=16, busy={0: 1.0, 1: 0.4, 2: 0.3}, cores=(0, 1, 2))
    )
    for name, one in cores_of(found).items():
        if name.startswith("cpu0"):
            assert (one.verdict, codes(one)[0]) == ("inconclusive", "never_alone")
        else:
            assert one.verdict != "supported"
            assert np.isfinite(one.effect)


@pytest.mark.parametrize(("where", "verdict"), [("KVM", "inconclusive"), (None, "supported")])
def test_on_a_virtual_machine_code_beyond_the_own_caches_makes_no_core_slow(
    where: str | None, verdict: str
) -> None:
    made = samples(rings=False, rounds=24, slow={0: 0.06}, slow_beyond_kib=1025)
    found = findings(made, hypervisor=where)
    assert found["cpu0"].verdict == verdict
    if where:
        assert codes(found["cpu0"]) == ["shared_level"]
        assert "(up to 512 KiB)" in found["cpu0"].reason


# --- what a table may lack -----------------------------------------------------------------------


def test_cpu_times_may_be_missing() -> None:
    made = samples(rings=False, rounds=16).drop(columns=["cpu_time_ns", "run_delay_ns"])
    assert np.isfinite(CodeTable(made).half_width)


@pytest.mark.parametrize("value", [np.nan, -1.0, 0.0])
def test_probes_that_are_no_times_tell_nothing(value: float) -> None:
    made = samples(rings=False, rounds=8)
    made[PROBES] = value
    assert CodeTable(made).core_states is None


# --- tables and figures --------------------------------------------------------------------------


def test_both_curves_are_in_tables_and_figures() -> None:
    made = samples(busy=0.5)
    table, shared = CodeTable(made), CodeTable.shared(made)
    reaches = Reaches.of(machine())
    assert shared is not None
    rings = tables.ring_ratio(table, shared)
    assert list(rings["state"].unique()) == ["alone", "shared"]
    found = tables.knees(table, shared)
    assert set(found["state"]) == {"alone", "shared"}
    times = tables.times(table, "chase", reaches, shared)
    assert times.groupby("state")["step_ns"].count().min() >= 10
    with themed():
        ring = figures.ring_ratio(rings, found, reaches)
        time = figures.times(times, reaches, "step")
    for axes in ring.axes:
        legend = axes.get_legend()
        assert legend is not None
        named = [text.get_text() for text in legend.get_texts()]
        assert any(name.endswith(", alone") for name in named)
        assert any("sibling busy" in name for name in named)
    (axes,) = time.axes
    labels = [str(one.get_label()) for one in axes.containers]
    assert sum("sibling busy" in label for label in labels) == len(table.backings)
    assert axes.get_ylim()[1] < 3 * times["step_ns"].max()


def test_samples_beside_and_after_another_task_are_left_out() -> None:
    """It puts other code into the caches; what that costs is not the core's."""
    made = samples(rings=False, rounds=24, busy=0.3)
    rng = np.random.default_rng(5)
    taken = made["cpu"].eq(0) & (rng.random(len(made)) < 0.3)
    trial = made.groupby(["round", "cpu", "backing", "n"], sort=False).ngroup()
    after = taken.shift(1, fill_value=False) & (trial == trial.shift(1))
    made.loc[taken, "run_delay_ns"] = 3_000_000
    made.loc[taken | after, "cpu_time_ns"] *= 1.4
    for name, one in cores_of(findings(made)).items():
        assert one.verdict != "supported", name
        assert abs(one.effect) < 2, name
