"""cpuid.c against what the kernel read from the same instruction."""

from __future__ import annotations

import platform

import pytest

from perflib import kernels
from perflib.machine.hardware import cpuid
from perflib.model.errors import MeasurementError
from tests.reference.cpuid import checksum, cpuinfo, saved_bytes

X86 = platform.machine() in ("x86_64", "i386", "i686")


@pytest.mark.skipif(not X86, reason="the CPUID instruction is x86's")
def test_registers_and_checksum() -> None:
    kernel = kernels.load("cpuid")
    registers = kernel.ffi.new("uint32_t[4]")
    total = kernel.lib.cpuid_leaf(0, 0, registers)
    eax, ebx, ecx, edx = registers
    assert total == checksum((eax, ebx, ecx, edx))
    assert cpuid.ascii_of(ebx, edx, ecx) == cpuinfo()["vendor_id"]


@pytest.mark.skipif(not X86, reason="the CPUID instruction is x86's")
def test_signature_is_that_of_cpuinfo() -> None:
    cpuid.leaves.cache_clear()
    expected = cpuinfo()
    found = cpuid.signature(known=cpuid.leaves())
    assert found.vendor == expected["vendor_id"]
    assert found.family == int(expected["cpu family"])
    assert found.model == int(expected["model"])
    assert found.stepping == int(expected["stepping"])


@pytest.mark.skipif(not X86, reason="the XGETBV instruction is x86's")
def test_xcr0_explains_the_size_of_what_is_saved() -> None:
    if "xsave" not in cpuinfo()["flags"].split():
        assert cpuid.xcr0() is None
        return
    found = cpuid.xcr0()
    assert found is not None
    kernel = kernels.load("cpuid")
    registers = kernel.ffi.new("uint32_t[4]")
    places = {}
    for state in range(2, 63):
        kernel.lib.cpuid_leaf(0xD, state, registers)
        places[state] = (registers[0], registers[1])
    kernel.lib.cpuid_leaf(0xD, 0, registers)
    assert registers[1] == saved_bytes(found, places)
    offered = registers[0] | registers[3] << 32
    assert found & ~offered == 0
    assert found & 0x3 == 0x3  # x87 and SSE are on in every 64-bit system


@pytest.mark.skipif(X86, reason="this processor has the instruction")
def test_other_processors_have_no_leaves() -> None:
    cpuid.leaves.cache_clear()
    with pytest.raises(MeasurementError, match="no x86"):
        cpuid.leaves()
    assert cpuid.xcr0() is None
