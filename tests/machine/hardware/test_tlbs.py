from __future__ import annotations

import pytest

from perflib.machine.hardware.tlbs import Tlb, decode_tlbs, reach_bytes
from tests.machine.dumps import dump

K4, M2, M4, G1 = 4 << 10, 2 << 20, 4 << 20, 1 << 30


def test_haswell_by_descriptors() -> None:
    assert decode_tlbs(dump("haswell_ep")) == (
        Tlb(1, "data", (K4,), 64, 4),
        Tlb(1, "data", (M2, M4), 32, 4),
        Tlb(1, "data", (G1,), 4, 4),
        Tlb(1, "instruction", (K4,), 64, 8),
        Tlb(1, "instruction", (M2, M4), 8, 8),
        Tlb(2, "unified", (K4, M2), 1024, 8),
    )


def test_sapphire_rapids_by_leaf_18() -> None:
    found = decode_tlbs(dump("sapphire_rapids"))
    assert found == (
        Tlb(1, "instruction", (K4,), 256, 8),
        Tlb(1, "instruction", (M2, M4), 32, 8),
        Tlb(1, "load", (K4,), 64, 4),
        Tlb(1, "load", (M2, M4), 32, 4),
        Tlb(1, "load", (G1,), 8, 8),
        Tlb(1, "store", (K4, M2, M4, G1), 16, 16),
        Tlb(2, "unified", (K4, M2, M4), 1024, 8),
        Tlb(2, "unified", (K4, G1), 1024, 8),
    )
    assert reach_bytes(found, "instruction", level=1) == 1 << 20
    assert reach_bytes(found, "data", level=1) == 64 * K4
    # Both parts of the second level hold 4 KiB pages: the 2048 entries of the data sheet.
    assert reach_bytes(found, "data", level=2) == 2048 * K4
    assert reach_bytes(found, "data", level=2, page_bytes=M2) == 1024 * M2


def test_rome() -> None:
    assert decode_tlbs(dump("rome")) == (
        Tlb(1, "data", (K4,), 64, 64),
        Tlb(1, "data", (M2,), 64, 64),
        Tlb(1, "data", (G1,), 64, 64),
        Tlb(1, "instruction", (K4,), 64, 64),
        Tlb(1, "instruction", (M2,), 64, 64),
        Tlb(1, "instruction", (G1,), 64, 64),
        Tlb(2, "data", (K4,), 2048, 8),
        Tlb(2, "data", (M2,), 2048, 4),
        Tlb(2, "instruction", (K4,), 1024, 8),
        Tlb(2, "instruction", (M2,), 1024, 8),
    )


def test_a_guest_that_hides_gigabyte_pages() -> None:
    found = decode_tlbs(dump("guest"))
    assert len(found) == 8
    assert reach_bytes(found, "data", level=1, page_bytes=G1) == 0


@pytest.mark.parametrize("bit", ["as the processor says", "hidden by a hypervisor"])
def test_since_zen_5_sizes_are_in_units_of_32(bit: str) -> None:
    leaves = dict(dump("turin"))
    if bit != "as the processor says":
        leaves[0x80000021, 0] = (0, 0, 0, 0)
    found = decode_tlbs(leaves)
    assert Tlb(2, "data", (K4,), 4096, 8) in found
    assert Tlb(2, "instruction", (K4,), 2048, 4) in found
    assert Tlb(2, "data", (G1,), 1024, 4) in found
    assert Tlb(1, "data", (K4,), 96, 96) in found
    assert Tlb(1, "data", (G1,), 96, 96) in found


def test_registers_without_descriptors_and_other_vendors_say_nothing() -> None:
    leaves = dict(dump("haswell_ep"))
    leaves[0x2, 0] = (0x80000001, 0x80F0B5FF, 0, 0)
    assert decode_tlbs(leaves) == ()
    assert decode_tlbs({}) == ()
    leaves = {(0x0, 0): (1, 0, 0, 0), (0x1, 0): (0, 0, 0, 0)}
    assert decode_tlbs(leaves) == ()
