"""The compiled switch of code_segment.c: its results, its extent, and its pages."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from perflib import kernels
from perflib.kernels import Kernel
from perflib.machine.libraries.elf import read_elf
from perflib.measure.pages import smaps
from perflib.measure.pages.backings import why_not
from perflib.measure.pages.kinds import BACKINGS
from tests.kernels.calls import bounds, lay, run
from tests.reference import code_segment as reference

# They depend on the machine's huge pages: one after the other.
pytestmark = pytest.mark.xdist_group("huge pages")

COMPILED, LOADED = 4, 0
PIECE_CASES, HUGE = 1024, 2 << 20
FREE = Path("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages")


@pytest.fixture(scope="module")
def kernel(processor: str) -> Kernel:  # noqa: ARG001
    return kernels.load("code_segment", variant="compiled")


def checksum(n: int, seed: int, warm: int, steps: int) -> int:
    """The assembled switch's reference: the compiled one draws and folds in the same way."""
    return reference.run("random", seed, n, warm, steps, 128).checksum


@pytest.mark.arm64
@settings(max_examples=40)
@given(
    n=st.integers(1, 16 * PIECE_CASES),
    seed=st.integers(0, 2**64 - 1),
    warm=st.integers(0, 300),
    steps=st.integers(1, 300),
)
@example(n=16 * PIECE_CASES, seed=2**64 - 1, warm=0, steps=60_000)
@example(n=PIECE_CASES, seed=0, warm=1, steps=3000)
def test_reference_gives_the_same_checksum(
    kernel: Kernel, n: int, seed: int, warm: int, steps: int
) -> None:
    lay(kernel, COMPILED, n, LOADED, seed)
    for before in (0, warm + steps):  # a run resumes where the last one ended
        (found,) = run(kernel, warm, steps)
        assert (found.checksum, found.steps) == (checksum(n, seed, before + warm, steps), steps)


@pytest.mark.arm64
def test_every_case_is_reached_and_folds_its_own_number(kernel: Kernel) -> None:
    """One step after another: each number that is drawn has a place, and no two have the same."""
    most, first, end = bounds(kernel)[7:]
    assert most == 16 * PIECE_CASES
    places: dict[int, int] = {}
    lay(kernel, COMPILED, most, LOADED, seed=5)
    steps = 12 * most
    out = kernel.ffi.new("code_sample[]", steps)
    assert kernel.lib.code_run(0, 1, steps, out) == 0
    for one, opcode in zip(out, reference.opcodes(5, most, steps), strict=True):
        assert one.checksum == opcode
        assert one.first_ip == one.last_ip
        assert places.setdefault(opcode, one.first_ip) == one.first_ip
    assert len(places) >= most - 2, "a case is left out by chance once in 160,000"
    assert len(set(places.values())) == len(places)
    assert first <= min(places.values()) < max(places.values()) < end
    for piece in range(16):  # a size needs its own pages, and those of no other
        mine = [at for number, at in places.items() if number // PIECE_CASES == piece]
        others = [at for number, at in places.items() if number // PIECE_CASES > piece]
        assert max(mine) < min(others, default=end)


def test_pieces_have_symbols_side_by_side_in_a_text_of_their_own(kernel: Kernel) -> None:
    found = [one for one in read_elf(kernel.build.library).code if one[2].startswith("switch_")]
    assert [name for _, _, name in found] == [f"switch_{piece}" for piece in range(16)]
    first, end = bounds(kernel)[8:]
    assert first % HUGE == 0
    assert found[-1][1] - found[0][0] == end - first
    for (_, before, _), (after, _, _) in itertools.pairwise(found):
        assert 0 <= after - before < 64


@pytest.mark.usefixtures("pool")
@pytest.mark.parametrize("backing", [name for name in BACKINGS if name != "loaded"])
@pytest.mark.parametrize("n", [1, 5000, 16 * PIECE_CASES])
def test_it_is_on_the_pages_that_are_wanted(kernel: Kernel, backing: str, n: int) -> None:
    if why := why_not(backing, pages_needed=8):
        pytest.skip(why)
    if backing == "hugetlb" and int(FREE.read_text()) < 8:
        pytest.skip("the pool has no pages, and none can be reserved")
    first, end = bounds(kernel)[8:]
    _, after = lay(kernel, COMPILED, n, BACKINGS[backing], seed=7)
    assert (after - first) % HUGE == 0
    assert run(kernel, 10, 3000)[0].checksum == checksum(n, 7, 10, 3000)
    found = smaps.backing_of(smaps.read(os.getpid()), first, after)
    assert smaps.violated(backing, found) == ""
    assert (after >= end) == (n == 16 * PIECE_CASES)
    lay(kernel, COMPILED, n, LOADED)  # its pages of the pool go back


def test_the_perf_map_has_its_pieces(kernel: Kernel, tmp_path: Path) -> None:
    path = tmp_path / "map"
    assert kernel.lib.code_write_map(bytes(path)) == 0
    found = [line.split() for line in path.read_text().splitlines() if " switch_" in line]
    first, end = bounds(kernel)[8:]
    assert [name for _, _, name in found] == [f"switch_{PIECE_CASES * k:05d}" for k in range(16)]
    ends = [int(at, 16) + int(size, 16) for at, size, _ in found]
    assert [int(at, 16) for at, _, _ in found] == [first, *ends[:-1]]
    assert ends[-1] == end
