"""The compiled switch and the assembled one: claims, figure, and a real run."""

from __future__ import annotations

import math
import os
import shutil
from typing import Any

import numpy as np
import pandas as pd
import pytest

from perflib import kernels
from perflib.experiments import get
from perflib.experiments.code_size.claims import SAME_KNEE_SIMULATED
from perflib.experiments.code_size.code_segment.compiled import (
    same_knee,
    same_knee_simulated,
)
from perflib.experiments.code_size.code_segment.simulated import simulated_misses
from perflib.experiments.code_size.table import CodeTable
from perflib.experiments.code_size.trials import Bounds
from perflib.instruments.simulators.models import TlbModel
from perflib.model.errors import UserError
from perflib.model.finding import Finding
from tests.experiments.code_size.code_samples import (
    KIB,
    NOT_BACKED,
    SIZES_KIB,
    by_subject,
    findings,
    machine,
    misses,
    run_of,
    samples,
)
from tests.experiments.judged import codes

CODE = get("code_segment")
BOTH = ("random", "compiled")
CASE_BYTES = {"random": 128, "compiled": 141}

needs_this_processor = pytest.mark.skipif(bool(CODE.unavailable()), reason=CODE.unavailable())
needs_qemu = pytest.mark.skipif(
    shutil.which("qemu-x86_64") is None, reason="apt-get install qemu-user"
)


def switches(seed: int = 1, **more: Any) -> pd.DataFrame:
    """Steps that are cheap next to their misses, so that a minute's rounds show a knee."""
    given: dict[str, Any] = {"walk_ns": 4.0, "patterns": BOTH, "cores": (0, 1), "rounds": 40}
    return samples(seed, **(given | more))


def same(table: pd.DataFrame) -> Finding:
    """At the default tolerance and visible height, on huge pages that the host backs."""
    return same_knee(CodeTable(table), 20.0, 5.0, None)


# --- by times ------------------------------------------------------------------------------------


@pytest.mark.parametrize("compiled_kib", [300.0, 900.0])
def test_another_knee_is_refuted(compiled_kib: float) -> None:
    found = same(switches(compiled_kib=compiled_kib, walk_ns=8.0, noise=0.005))
    assert (found.verdict, codes(found)) == ("refuted", ["excluded"])
    # A step of the compiled switch costs more, caches raise both: the shapes differ by as much.
    assert found.effect == pytest.approx(100 * (compiled_kib / 512 - 1), abs=4)


def test_between_them_it_stays_open() -> None:
    found = same(switches(compiled_kib=600.0, noise=0.03))
    assert (found.verdict, codes(found)) == ("inconclusive", ["open"])


def test_null_without_a_knee_nothing_is_claimed() -> None:
    for seed in range(3):
        found = same(switches(seed, walk_ns=0.0))
        assert found.verdict == "inconclusive"
        assert codes(found) in (["no_knee_seen"], ["open"])
    assert math.isnan(same(switches(walk_ns=0.0)).effect)


def test_a_knee_of_one_switch_alone_is_refuted() -> None:
    found = same(switches(compiled_kib=1e6, walk_ns=4.0))
    assert (found.verdict, codes(found)) == ("refuted", ["no_knee"])
    assert "The compiled switch has no knee" in found.reason


def test_on_huge_pages_that_are_not_backed_times_decide_nothing() -> None:
    provenance = {"machine": machine(), "plan": {"page_reach": NOT_BACKED}}
    found = by_subject(findings(switches(), provenance=provenance))["compiled knee"]
    assert (found.verdict, codes(found)) == ("inconclusive", ["not_backed"])
    assert math.isfinite(found.effect), "the estimate stays"


def test_each_switch_alone_compares_nothing() -> None:
    for pattern in BOTH:
        found = by_subject(findings(switches(patterns=(pattern,), rounds=8)))
        assert "compiled knee" not in found
        assert f"pages {pattern}" in found
    assert "knee compiled" in by_subject(findings(switches()))


# --- by simulated misses -------------------------------------------------------------------------


def simulated(compiled_kib: float = 512.0, sizes: tuple[int, ...] = SIZES_KIB) -> dict[str, Any]:
    rows = []
    for pattern, reach_kib in (("random", 512.0), ("compiled", compiled_kib)):
        for size in sizes:
            missed = float(misses(pattern, np.array([float(size)]), reach_kib)[0])
            n = size * KIB // CASE_BYTES[pattern]
            row = {"misses_per_step": missed, "walks_per_step": 0.0}
            rows.append({"pattern": pattern, "n": n, **row})
    return {"model": "TLB of 128 entries", "rows": rows}


@pytest.mark.parametrize(
    ("compiled_kib", "verdict"),
    [(512.0, "supported"), (350.0, "refuted"), (900.0, "refuted"), (1e6, "refuted")],
)
def test_simulated_misses_begin_where_they_begin(compiled_kib: float, verdict: str) -> None:
    found = same_knee_simulated(CodeTable(switches(rounds=2)), simulated(compiled_kib), 20.0)
    assert found is not None
    assert (found.verdict, found.of) == (verdict, SAME_KNEE_SIMULATED)
    if verdict == "supported":
        assert found.low <= 0 <= found.high
        assert found.evidence["reach_kib"] == pytest.approx({"random": 512, "compiled": 512})


def test_simulated_misses_at_the_limit_of_the_tolerance_stay_open() -> None:
    found = same_knee_simulated(CodeTable(switches(rounds=2)), simulated(512 / 1.2), 20.0)
    assert found is not None
    assert (found.verdict, codes(found)) == ("inconclusive", ["open"])


def test_null_where_nothing_misses_nothing_is_claimed() -> None:
    small = simulated(sizes=(8, 128, 448))
    found = same_knee_simulated(CodeTable(switches(rounds=2)), small, 20.0)
    assert found is not None
    assert (found.verdict, codes(found)) == ("inconclusive", ["no_rise"])
    assert "5 of 100 steps" in found.reason


@needs_this_processor
@needs_qemu
@pytest.mark.parametrize("tlb", [TlbModel(entries=128, ways=4), TlbModel(entries=64, ways=64)])
def test_simulated_misses_of_the_real_programs_rise_at_the_same_size(tlb: TlbModel) -> None:
    """Below the reach neither misses, beyond it both miss with as many steps, within a tenth."""
    reach_kib = tlb.entries * 4
    sizes_kib = [reach_kib // 2, reach_kib * 5 // 4, reach_kib * 3 // 2, reach_kib * 3]
    kernel = kernels.load("code_segment", variant="compiled")
    out = kernel.ffi.new("int64_t[10]")
    assert kernel.lib.code_bounds(out) == 0
    each = {"random": 128.0, "compiled": (out[9] - out[8]) / out[7]}
    pieces = {pattern: [int(size * KIB / each[pattern]) for size in sizes_kib] for pattern in BOTH}
    program = kernels.build("code_segment", variant="compiled", executable=True).library
    rows = pd.DataFrame(simulated_misses(program, pieces, tlb)["rows"])
    found = {
        pattern: rows.loc[rows["pattern"] == pattern, "misses_per_step"].to_numpy()
        for pattern in BOTH
    }
    for pattern in BOTH:
        assert found[pattern][0] < 0.02, pattern
        assert found[pattern][1:] == pytest.approx(
            [1 - reach_kib / size for size in sizes_kib[1:]], abs=0.1
        ), pattern


# --- the table and the figure --------------------------------------------------------------------


def test_on_small_pages_alone_there_are_times_alone() -> None:
    run = run_of(switches(backings=["4k"], rounds=8))
    assert len(CODE.figures(run)["compiled"].axes) == 1


# --- measured ------------------------------------------------------------------------------------

TINY: dict[str, Any] = {
    "cores": [min(os.sched_getaffinity(0))], "budget_s": 0.3, "trial_ms": 1.0,
    "patterns": "random,compiled", "backings": "4k",
}  # fmt: skip


@needs_this_processor
@needs_qemu
def test_both_are_measured_in_the_same_rounds_and_simulated_at_the_same_sizes() -> None:
    given = {**TINY, "sizes_kib": [8, 64, 2048, 4096], "simulated_sizes": 2}
    run = CODE.measure(CODE.params(given))
    assert run.provenance["problems"] == []
    assert run.samples["ok"].all()
    assert run.provenance["kernel"]["variant"] == "compiled"
    visits = run.samples.groupby("pattern")["round"].agg(set)
    assert visits["compiled"] == visits["random"]
    table = CodeTable(run.samples)
    assert len(table.sizes("random")) == 4
    assert table.code_bytes("compiled") == pytest.approx([8 * KIB, 64 * KIB, 2048 * KIB], rel=0.05)
    rows = pd.DataFrame(run.provenance["simulated"]["rows"])
    assert list(rows.loc[rows["pattern"] == "random", "n"]) == [64, 16384]
    assert list(rows.loc[rows["pattern"] == "compiled", "n"]) == table.sizes("compiled")[::2]
    assert "compiled knee simulated" in by_subject(CODE.analyse(run))


def test_sizes_that_only_the_assembled_switch_has_are_refused() -> None:
    bounds = Bounds(32768, 128, 4096, 4 << 20, compiled=14800, compiled_bytes=14800 * 141)
    assert bounds.pieces(["compiled"], [2000, 4096]) == {"compiled": [2000 * KIB // 141]}
    with pytest.raises(UserError) as caught:
        bounds.pieces(["compiled"], [4096])
    assert str(caught.value).startswith(
        "sizes_kib: 4096 KiB is not available with pattern 'compiled': its code goes from 1 to 2"
    )
