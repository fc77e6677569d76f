"""Simulated iTLB misses at some sizes of the code, by QEMU where there is one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pandas as pd
import pytest

from perflib.experiments import get
from perflib.experiments.code_size.code_segment import simulated as code_simulated
from perflib.experiments.code_size.code_segment.simulated import simulated_misses, spread
from perflib.instruments.simulators.models import HASWELL_ITLB, TlbModel
from perflib.kernels import build
from perflib.model.errors import UserError

CODE = get("code_segment")
SMALL = TlbModel(entries=16, ways=16, second_level=(64, 4))

needs_qemu = pytest.mark.skipif(
    shutil.which("qemu-x86_64") is None, reason="apt-get install qemu-user"
)
pytestmark = [
    pytest.mark.skipif(bool(CODE.unavailable()), reason=CODE.unavailable()),
]


@pytest.fixture(scope="module")
def program() -> Path:
    return build("code_segment", executable=True).library


def test_sizes_are_spread() -> None:
    five = [1, 2, 3, 4, 5]
    assert [spread(five, count) for count in (3, 2, 1)] == [[1, 3, 5], [1, 5], [1]]
    assert spread([1, 2], 5) == [1, 2]
    assert spread([7], 3) == [7]
    assert spread(list(range(21)), 5) == [0, 5, 10, 15, 20]


def rate(program: Path, pattern: str, n: int, tlb: TlbModel = SMALL) -> tuple[float, float]:
    made = simulated_misses(program, {pattern: [n]}, tlb)
    (row,) = made["rows"]
    assert made["model"] == str(tlb)
    assert (row["pattern"], row["n"]) == (pattern, n)
    return row["misses_per_step"], row["walks_per_step"]


@needs_qemu
def test_a_ring_within_the_reach_misses_nothing_and_beyond_it_always(program: Path) -> None:
    assert rate(program, "chase", 8) == (0, 0)
    misses, walks = rate(program, "chase", 32)
    assert misses == pytest.approx(1.0, abs=0.01)
    assert walks == pytest.approx(0.0, abs=0.01), "the second level holds them"
    assert rate(program, "chase", 128)[1] == pytest.approx(1.0, abs=0.01)


@needs_qemu
def test_cases_at_random_miss_as_often_as_their_page_is_not_there(program: Path) -> None:
    # The dispatcher's own page takes one entry, and is asked for as often as all others together.
    assert rate(program, "page", 8)[0] == pytest.approx(0.0, abs=0.001)
    assert rate(program, "page", 64)[0] == pytest.approx(1 - 15 / 64, abs=0.04)
    assert rate(program, "random", 64 * 32)[0] == pytest.approx(1 - 15 / 64, abs=0.04)


def test_two_runs_take_the_start_out_and_laps_are_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Sequence[str]] = []

    def counts(argv: Sequence[str], **_: Any) -> pd.DataFrame:
        asked.append(argv[1:])
        steps = int(argv[argv.index("--steps") + 1])
        count = 12_345 + (steps + steps // 20) // 2  # half of all, those of its warm-up too
        return pd.DataFrame({"counter": ["iTLB misses"], "simulated_count": [count]})

    monkeypatch.setattr(code_simulated, "qemu_counts", counts)
    monkeypatch.setattr(code_simulated, "itlb_of_this_machine", lambda: None)
    made = simulated_misses(Path("program"), {"chase": [8], "random": [64]})
    assert made["model"] == str(HASWELL_ITLB), "where this machine does not say"
    half = {"misses_per_step": 0.5, "walks_per_step": 0.5}
    assert made["rows"] == [
        {"pattern": "chase", "n": 8, **half},
        {"pattern": "random", "n": 64, **half},
    ]
    steps = [int(words[words.index("--steps") + 1]) for words in asked]
    assert steps[1::2] == [2 * once for once in steps[::2]]
    assert steps[0] % (8 * 20) == 0, "whole laps, those of the warm-up too"
    assert [words[-1] for words in asked] == ["8", "8", "64", "64"]


# --- in a run ------------------------------------------------------------------------------------

TINY = {
    "cores": [min(os.sched_getaffinity(0))], "budget_s": 0.2, "trial_ms": 1.0,
    "sizes_kib": [8, 64], "backings": "4k", "patterns": "random,chase",
}  # fmt: skip


@needs_qemu
def test_a_run_simulates_some_of_its_sizes() -> None:
    run = CODE.measure(CODE.params({**TINY, "simulated_sizes": 1}))
    assert [(row["pattern"], row["n"]) for row in run.provenance["simulated"]["rows"]] == [
        ("random", 64),
        ("chase", 2),
    ]
    assert run.provenance["problems"] == []
    assert "misses" in CODE.figures(run)


def test_without_qemu_the_run_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        code_simulated, "qemu_counts", Mock(side_effect=UserError("qemu-x86_64 is not installed"))
    )
    run = CODE.measure(CODE.params({**TINY, "simulated_sizes": 2}))
    assert run.provenance["problems"] == [
        "iTLB misses are not simulated: qemu-x86_64 is not installed"
    ]
    assert "simulated" not in run.provenance
    assert run.samples["ok"].all()
    assert "misses" not in CODE.figures(run)
