"""clock_gaps.c against its Python reference, and against the clock itself."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perflib import kernels
from perflib.machine.activity import noise
from tests.kernels.calls import room, values
from tests.reference.clock_gaps import checksum, clock_gaps_in

KERNEL = "clock_gaps"


@pytest.mark.arm64
@given(
    start=st.integers(0, 2**60),
    steps=st.lists(st.one_of(st.integers(0, 60), st.integers(1, 10**10)), max_size=50),
    threshold_ns=st.integers(1, 10**6),
    capacity=st.integers(0, 20),
)
def test_gaps_in_recorded_readings(
    kernel: kernels.Kernel, start: int, steps: list[int], threshold_ns: int, capacity: int
) -> None:
    stamps_ns = list(accumulate(steps, initial=start))
    expected, totals = clock_gaps_in(stamps_ns, threshold_ns)
    gaps = kernel.ffi.new("clock_gap[]", capacity)
    result = kernel.ffi.new("clock_gaps_result *")
    total = kernel.lib.clock_gaps_in(
        stamps_ns, len(stamps_ns), threshold_ns, gaps, capacity, result
    )
    noted = [(gap.start_ns, gap.length_ns, gap.switches) for gap in gaps][: result.gaps]
    assert noted == [(*gap, 0) for gap in expected[:capacity]]
    assert vars(values(kernel.ffi, result[0])) == totals
    assert total == checksum([length for _, length in expected])


def spin(
    kernel: kernels.Kernel, duration_ns: int = 1000, threshold_ns: int = 1000, capacity: int = 10
) -> tuple[int, Any, Any]:
    """The checksum, the gaps that were noted, and the totals."""
    gaps, buffer = room(kernel, "clock_gap", max(capacity, 0))
    (totals,), result = room(kernel, "clock_gaps_result")
    answer = kernel.lib.clock_gaps(duration_ns, threshold_ns, buffer, capacity, result)
    return answer, gaps[: totals["gaps"]], totals


def test_spinning_notes_what_it_counts(kernel: kernels.Kernel) -> None:
    answer, noted, totals = spin(kernel, 20_000_000, 200, 200_000)
    assert totals["gaps"] == len(noted)
    assert totals["gap_ns"] == noted["length_ns"].sum()
    assert answer == checksum(noted["length_ns"].tolist())
    assert (noted["length_ns"] > 200).all()
    assert (noted["switches"] >= 0).all()
    assert (noted["start_ns"][1:] > noted["start_ns"][:-1]).all()
    assert totals["steps"] > totals["gaps"]
    counted = [int(totals[name]) for name in ("gap_ns", "gaps", "steps", "duration_ns")]
    assert 0 < totals["shortest_ns"] <= noise.step_ns(*counted) <= totals["longest_ns"]
    assert 0 <= noise.stolen_share(*counted) < 1


@pytest.mark.arm64
def test_a_call_without_time_or_room(kernel: kernels.Kernel) -> None:
    _, _, totals = spin(kernel, 0, 1000, 0)
    assert (totals["steps"], totals["gaps"], totals["shortest_ns"]) == (0, 0, 0)
    assert noise.stolen_share(0, 0, 0, 0) == 0


@pytest.mark.parametrize(
    "wrong", [{"threshold_ns": 0}, {"duration_ns": -1}, {"capacity": -1}], ids=str
)
def test_arguments_out_of_range(kernel: kernels.Kernel, wrong: dict[str, int]) -> None:
    assert spin(kernel, **wrong)[0] < 0
