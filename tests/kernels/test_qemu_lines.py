"""The model of shared lines against a reference in Python, without QEMU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perflib import kernels

LINE, WORD = 64, 4


class Access(NamedTuple):
    address: int
    size: int
    thread: int
    is_store: bool


KERNEL = "qemu_lines"


def shared(kernel: kernels.Kernel, accesses: Sequence[Access]) -> dict[int, tuple[int, int]]:
    recorded = kernel.ffi.new("qemu_lines_access[]", [tuple(one) for one in accesses])
    most = 1000
    lines = kernel.ffi.new("qemu_lines_line[]", most)
    count = kernel.lib.qemu_lines_shared(recorded, len(accesses), lines, most)
    assert 0 <= count < most
    transfers = [lines[i].transfers for i in range(count)]
    assert transfers == sorted(transfers, reverse=True)
    return {lines[i].line: (lines[i].transfers, lines[i].false_transfers) for i in range(count)}


def expected(accesses: Sequence[Access]) -> dict[int, tuple[int, int]]:
    """Line by line: who has it as it is, and who wrote each of its words last."""
    by_line: dict[int, list[tuple[set[int], int, bool]]] = {}
    for address, size, thread, is_store in accesses:
        touched: dict[int, set[int]] = {}
        for byte in range(address, address + size):
            touched.setdefault(byte // LINE, set()).add(byte % LINE // WORD)
        for line, words in touched.items():
            by_line.setdefault(line, []).append((words, thread, is_store))
    found = {}
    for line, uses in by_line.items():
        first = uses[0][1]
        while uses and uses[0][1] == first:  # alone, it is not followed
            uses.pop(0)
        if not uses:
            continue
        has: set[int] = set()
        wrote: dict[int, int] = {}
        transfers = false = 0
        for words, thread, is_store in uses:
            if wrote and thread not in has:
                transfers += 1
                false += all(wrote.get(word, thread) == thread for word in words)
            has.add(thread)
            if is_store:
                has = {thread}
                wrote |= dict.fromkeys(words, thread)
        found[line * LINE] = (transfers, false)
    return found


ACCESSES = st.builds(
    Access,
    st.one_of(st.integers(0, 200), st.integers(2**40 - 70, 2**40 + 70)),
    st.sampled_from([1, 2, 4, 8, 16, 32, 64]),
    st.integers(0, 4),
    st.booleans(),
)


@pytest.mark.arm64
@given(accesses=st.lists(ACCESSES, max_size=120))
def test_the_model_is_the_reference(kernel: kernels.Kernel, accesses: list[Access]) -> None:
    assert shared(kernel, accesses) == expected(accesses)


def turns(*addresses: int, times: int = 100) -> list[Access]:
    """Each address has its thread, which writes there in turn."""
    return [
        Access(address, 8, thread, is_store=True)
        for _ in range(times)
        for thread, address in enumerate(addresses)
    ]


def test_false_sharing_is_no_true_sharing(kernel: kernels.Kernel) -> None:
    apart = shared(kernel, turns(0, 8))
    assert apart == {0: (198, 198)}  # the first use of each thread fetches nothing that moved
    together = shared(kernel, turns(0, 0))
    assert together == {0: (198, 0)}


def test_null_lines_of_ones_own_and_lines_that_nobody_writes(kernel: kernels.Kernel) -> None:
    assert shared(kernel, turns(0, 64, 128)) == {}
    read = [one._replace(is_store=False) for one in turns(0, 8)]
    assert shared(kernel, read) == {0: (0, 0)}


def test_many_lines_are_found_again(kernel: kernels.Kernel) -> None:
    several = [
        one._replace(address=one.address + 64 * line)
        for line in range(900)
        for one in turns(0, 8, times=2)
    ]
    assert shared(kernel, several) == {64 * line: (2, 2) for line in range(900)}
