"""The models of the QEMU plugin against their Python reference, without QEMU."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perflib import kernels
from tests.reference.tlb import Access, aliased, tlb_misses

KERNEL = "qemu_counters"


def run_aliases(
    kernel: kernels.Kernel, accesses: Sequence[Access], stores: int, window: int
) -> list[bool]:
    ffi = kernel.ffi
    recorded = ffi.new(
        "qemu_counters_access[]", [(a.address, a.position, a.size, a.is_store) for a in accesses]
    )
    found = ffi.new("uint8_t[]", len(accesses))
    count = kernel.lib.qemu_counters_aliases(recorded, len(accesses), stores, window, found)
    assert count == sum(found)
    return [bool(byte) for byte in found]


@pytest.mark.arm64
@given(
    pages=st.lists(st.one_of(st.integers(0, 40), st.integers(0, 2**52 - 1)), max_size=200),
    sets=st.sampled_from([1, 2, 4, 8]),
    ways=st.integers(1, 6),
)
def test_tlb(kernel: kernels.Kernel, pages: list[int], sets: int, ways: int) -> None:
    missed = kernel.ffi.new("uint8_t[]", len(pages))
    count = kernel.lib.qemu_counters_tlb(pages, len(pages), sets * ways, ways, missed)
    assert count == sum(missed)
    assert list(missed) == tlb_misses(pages, sets * ways, ways)


@pytest.mark.parametrize(("entries", "ways"), [(0, 1), (8, 0), (12, 2), (8, 3), (4, 8), (-8, -4)])
def test_tlb_that_is_not_possible(kernel: kernels.Kernel, entries: int, ways: int) -> None:
    missed = kernel.ffi.new("uint8_t[1]")
    assert kernel.lib.qemu_counters_tlb([1], 1, entries, ways, missed) == -1


# Near each other modulo 4096, also across the border of 4096, and often in the same instruction.
ADDRESSES = st.builds(
    lambda page, low: (1 << 30) + page * 4096 + low,
    st.integers(0, 3),
    st.one_of(st.integers(0, 40), st.integers(4080, 4095)),
)
STEPS = st.lists(
    st.tuples(ADDRESSES, st.integers(0, 2), st.sampled_from([1, 2, 4, 8, 16]), st.booleans()),
    max_size=80,
)


@pytest.mark.arm64
@given(steps=STEPS, stores=st.integers(1, 12), window=st.integers(0, 9))
def test_aliases(
    kernel: kernels.Kernel, steps: list[tuple[int, int, int, bool]], stores: int, window: int
) -> None:
    position, accesses = 0, []
    for address, step, size, is_store in steps:
        position += step
        accesses.append(Access(address, position, size, is_store))
    assert run_aliases(kernel, accesses, stores, window) == aliased(accesses, stores, window)


def test_a_vector_in_parts_is_one_store_and_one_load(kernel: kernels.Kernel) -> None:
    store = [Access(8192 + part, 0, 8, True) for part in (0, 8, 16, 24)]
    load = [Access(4096 + part, 1, 8, False) for part in (0, 8, 16, 24)]
    assert run_aliases(kernel, store + load, 1, 0) == [False] * 4 + [True, False, False, False]
