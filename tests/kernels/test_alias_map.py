"""alias_map.c: what its loads find, what it leaves behind, and what it refuses."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from perflib.experiments.aliasing.map.measure import expected_loads
from perflib.kernels import Kernel
from tests.kernels.brackets import check_brackets, check_shared
from tests.kernels.calls import room

REGIONS = (0, 2048, 3072, 4096, 8192)
SLICE_NS = 250_000
KERNEL = "alias_map"


def run(
    kernel: Kernel, cells: Sequence[tuple[int, int]], width: int, pairs: int = 64, bursts: int = 2
) -> tuple[int, Any, Any]:
    """The answer, the samples of ``(store, load)`` cells, and the call's own record."""
    out, samples = room(kernel, "alias_map_sample", len(cells))
    call, account = room(kernel, "alias_map_call")
    store, load = map(list, zip(*cells, strict=True))
    answer = kernel.lib.alias_map_run(
        store, load, len(cells), width, pairs, bursts, samples, account
    )
    return answer, out, call[0]


@pytest.mark.arm64
@pytest.mark.parametrize("width", [4, 8])
def test_loads_find_what_the_reference_says(kernel: Kernel, width: int) -> None:
    offsets = range(-64, 65, width)
    cells = [(s, region + n) for region in REGIONS for s in offsets for n in offsets]
    answer, out, call = run(kernel, cells, width)
    assert answer == 0
    store, load = np.array(cells).T
    np.testing.assert_array_equal(out["loaded"], expected_loads(store, load, width))
    assert (out["pair_ns"] > 0).all()
    assert call["core_mhz"] > 0
    assert call["cpu"] >= -1


@pytest.mark.arm64
def test_slices_hold_the_bursts_of_their_cells(kernel: Kernel) -> None:
    pairs, bursts = 640, 3
    cells = [(0, 8 * (n % 512)) for n in range(3000)]
    answer, out, _ = run(kernel, cells, 8, pairs, bursts)
    assert answer == 0
    begins, first, cells_of = np.unique(
        out["slice"]["start_ns"], return_index=True, return_counts=True
    )
    slices = out["slice"][first]
    assert (np.diff(out["slice"]["start_ns"]) >= 0).all(), "neighbours share a slice"
    assert (out["slice"] == np.repeat(slices, cells_of)).all()
    check_brackets(slices)
    check_shared(slices)
    assert (slices["time_ns"][:-1] >= SLICE_NS).all()
    assert len(begins) > 1
    least_ns = pairs * bursts * np.add.reduceat(out["pair_ns"], first)
    assert (least_ns <= slices["time_ns"]).all(), "the fastest bursts are part of it"


@pytest.mark.arm64
@pytest.mark.parametrize(
    ("cell", "width", "pairs", "bursts"),
    [
        ((0, 0), 2, 64, 1),
        ((0, 0), 8, 0, 1),
        ((0, 0), 8, 33, 1),
        ((0, 0), 8, 64, 0),
        ((4, 0), 8, 64, 1),
        ((0, 2050), 4, 64, 1),
        ((-1032, 0), 8, 64, 1),
        ((0, 12296), 8, 64, 1),
    ],
)
def test_what_is_out_of_bounds_is_refused(
    kernel: Kernel, cell: tuple[int, int], width: int, pairs: int, bursts: int
) -> None:
    answer, out, _ = run(kernel, [(0, 0), cell], width, pairs, bursts)
    assert answer == errno.EINVAL
    assert not out["pair_ns"].any(), "nothing was timed"
    assert not out["slice"]["time_ns"].any()
