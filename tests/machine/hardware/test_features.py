from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from perflib.machine.doctor.lines import feature_lines
from perflib.machine.files import fields
from perflib.machine.hardware import cpuid
from perflib.machine.hardware.cpuid import Leaves
from perflib.machine.hardware.features import (
    FEATURES,
    FeatureState,
    features,
    of_arm64,
    of_this_machine,
)
from perflib.model.errors import UserError
from tests.machine.dumps import dump

X87_SSE, YMM, ZMM, TILES = 0x3, 0x4, 0xE0, 0x60000
EVERYTHING = X87_SSE | YMM | ZMM | TILES
ALL_FLAGS = frozenset(feature.flag for feature in FEATURES if feature.flag)


def states(
    machine: str | Leaves, xcr0: int | None = EVERYTHING, flags: frozenset[str] = ALL_FLAGS
) -> dict[str, FeatureState]:
    leaves = dump(machine) if isinstance(machine, str) else machine
    return {each.feature.name: each for each in features(leaves, xcr0, flags)}


def enabled(machine: str) -> set[str]:
    return {name for name, each in states(machine).items() if each.state == "enabled"}


# --- the data -----------------------------------------------------------------------------------


def test_every_feature_has_its_own_name_and_its_own_bits() -> None:
    assert 60 <= len(FEATURES) <= 90
    assert len({feature.name for feature in FEATURES}) == len(FEATURES)
    bits = Counter(
        (feature.leaf, feature.subleaf, feature.register, bit)
        for feature in FEATURES
        for bit in range(feature.low, feature.high + 1)
    )
    assert max(bits.values()) == 1
    for feature in FEATURES:
        assert 0 <= feature.low <= feature.high <= 31
        assert feature.vendor in ("", "Intel", "AMD")


def test_a_purpose_is_a_short_line_and_a_switched_feature_has_the_flag_that_shows_it() -> None:
    for feature in FEATURES:
        assert 10 < len(feature.purpose) <= 110, feature.name
        assert not feature.purpose.endswith("."), feature.name
        assert "," not in feature.name  # names are joined by commas
        assert feature.flag or not feature.switched, feature.name
        assert not (feature.needs and feature.switched), feature.name


# --- recorded machines --------------------------------------------------------------------------


def test_rome_and_genoa() -> None:
    rome, genoa = enabled("rome"), enabled("genoa_96")
    both = {"AVX2", "SHA", "CLZERO", "IBS op", "L3 counters", "MONITORX", "total memory bandwidth"}
    assert both <= rome & genoa
    assert {"AVX-512 F", "AVX-512 BF16", "LA57", "PCID", "IBS L3-miss filter", "CPPC"} <= genoa
    assert {"counters version 2", "serializing LFENCE", "prefetcher control"} <= genoa
    assert not rome & {"AVX-512 F", "LA57", "PCID", "IBS L3-miss filter", "counters version 2"}
    found = states("genoa_96")
    assert found["counters version 2"].note == "6 for each thread, 16 of the data fabric"
    assert found["LBR version 2"].note == "16 branches deep"


def test_a_guest_on_genoa_is_shown_no_counters() -> None:
    found = states("guest")
    counters = [each for each in found.values() if each.feature.group == "counters"]
    assert {each.state for each in counters} == {"absent"}
    assert {each.note for each in counters} == {"perhaps hidden by the hypervisor"}
    assert found["AVX-512 F"].state == found["guest"].state == "enabled"


def test_another_vendors_features_are_left_out() -> None:
    assert {"IBS", "SVM", "CLZERO"}.isdisjoint(states("skylake_sp"))
    assert {"PEBS", "VMX", "Intel PT"}.isdisjoint(states("rome"))
    hygon = dict(dump("rome")) | {(0x0, 0): (0x10, 0x6F677948, 0x656E6975, 0x6E65476E)}
    assert cpuid.signature(known=hygon).vendor == "HygonGenuine"
    assert states(hygon)["IBS"].state == "enabled"
    other = dict(dump("rome")) | {(0x0, 0): (0x10, 0x746E6543, 0x736C7561, 0x48727561)}
    assert not [name for name, each in states(other).items() if each.feature.vendor]


# --- what the system has enabled ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("xcr0", "name", "state"),
    [
        (X87_SSE, "AVX2", "not enabled"),
        (X87_SSE | YMM, "AVX2", "enabled"),
        (X87_SSE | YMM, "AVX-512 F", "not enabled"),
        (X87_SSE | YMM | ZMM, "AVX-512 F", "enabled"),
        (X87_SSE | ZMM, "AVX-512 F", "not enabled"),
        (X87_SSE | YMM | ZMM, "AMX INT8", "not enabled"),
        (EVERYTHING, "AMX INT8", "enabled"),
        (X87_SSE, "SSE4.2", "enabled"),
        (X87_SSE, "AES", "enabled"),
        (X87_SSE, "VAES", "not enabled"),
    ],
)
def test_registers_that_the_system_does_not_save(xcr0: int, name: str, state: str) -> None:
    found = states("emerald_rapids", xcr0)[name]
    assert found.state == state
    assert (state == "enabled") == (found.note == "")
    if state == "not enabled":
        assert "the system does not save the" in found.note
        assert hex(xcr0) in found.note


def test_without_xsave_no_vector_wider_than_sse() -> None:
    leaves = dict(dump("skylake_sp"))
    eax, ebx, ecx, edx = leaves[0x1, 0]
    leaves[0x1, 0] = (eax, ebx, ecx & ~(1 << 27), edx)
    found = states(leaves, xcr0=None)
    assert (found["AVX"].state, found["AVX"].note) == ("not enabled", "XSAVE is not switched on")
    assert found["SSE4.2"].state == "enabled"


def test_without_xcr0_the_flags_tell() -> None:
    assert states("rome", None, frozenset({"avx"}))["AVX"].state == "enabled"
    silent = states("rome", None, frozenset())["AVX"]
    assert silent.state == "unknown"
    assert "YMM" in silent.note


def test_a_switched_feature_is_enabled_where_linux_lists_it() -> None:
    assert states("genoa_96", flags=frozenset({"ibs"}))["IBS op"].state == "enabled"
    off = states("genoa_96", flags=frozenset({"avx"}))["IBS op"]
    assert off.state == "not enabled"
    assert "'ibs'" in off.note
    assert states("genoa_96", flags=frozenset())["IBS op"].state == "unknown"


# --- little or nothing known --------------------------------------------------------------------


def test_a_leaf_that_exists_and_was_not_recorded_is_unknown() -> None:
    found = states("haswell_ep", X87_SSE | YMM, frozenset())
    assert found["AVX"].state == "enabled"
    assert (found["AVX2"].state, found["AVX2"].note) == ("unknown", "CPUID was not read")
    assert found["RDTSCP"].state == "unknown"  # not even the number of the last leaf is known


def test_without_cpuid_the_flags_decide_alone() -> None:
    found = states({}, None, frozenset({"avx2", "ibs"}))
    assert len(found) == len(FEATURES)
    assert (found["AVX2"].state, found["AVX2"].note) == ("enabled", "")
    assert found["IBS op"].state == "enabled"
    assert found["AVX-512 F"].state == found["AVX10"].state == "unknown"
    assert {each.state for each in states({}, None, frozenset()).values()} == {"unknown"}


# --- this machine -------------------------------------------------------------------------------


def listed() -> frozenset[str]:
    flags = fields(Path("/proc/cpuinfo")).get("flags", "")
    if not flags:
        pytest.skip("this is no x86: /proc/cpuinfo has no flags")
    return frozenset(flags.split())


def test_this_machine_agrees_with_the_kernels_flags() -> None:
    """Where a flag is one feature's alone, both must say the same of it.

    An enabled instruction that this kernel does not list is allowed for where the kernel is older
    than the flags of features.toml, and a flag that Linux also sets by the model of the processor
    or by another bit, without CPUID's.
    """
    also_by_other_means = {"3dnowprefetch", "arat", "ibpb", "ibrs", "nonstop_tsc"}
    flags = listed()
    found = [each for each in of_this_machine() if each.feature.flag]
    shared = Counter(each.feature.flag for each in found)
    unshared = [each for each in found if shared[each.feature.flag] == 1]
    assert len(unshared) > 40
    by_us = {each.feature.flag for each in unshared if each.state == "enabled"}
    by_linux = {each.feature.flag for each in unshared} & flags
    assert by_linux - by_us <= also_by_other_means
    release = re.match(r"(\d+)\.(\d+)", Path("/proc/sys/kernel/osrelease").read_text())
    assert release is not None
    if (int(release[1]), int(release[2])) >= (6, 1):
        assert by_us <= by_linux


def test_without_a_compiler_the_flags_are_left(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    flags = listed()
    monkeypatch.delenv("PERFLIB_CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PERFLIB_CACHE", str(tmp_path / "cache"))
    cpuid.leaves.cache_clear()
    with pytest.raises(UserError, match="no C compiler"):
        cpuid.xcr0()
    found = of_this_machine()
    assert len(found) == len(FEATURES)
    assert {each.feature.flag for each in found if each.state == "enabled"} == flags & ALL_FLAGS


# --- as text and as JSON ------------------------------------------------------------------------


def test_lines_say_each_feature_once_and_why_it_is_not_enabled() -> None:
    lines = list(feature_lines(features(dump("emerald_rapids"), X87_SSE | YMM, ALL_FLAGS)))
    assert [line.partition(":")[0] for line in lines] == [
        f"features, {group}" for group in dict.fromkeys(feature.group for feature in FEATURES)
    ]
    (vectors,) = (line for line in lines if "vectors" in line)
    assert "enabled: SSE4.2, BMI2, AVX, FMA, AVX2" in vectors
    assert "not enabled (the system does not save the ZMM and mask registers" in vectors
    assert "absent: AVX10" in vectors
    (counters,) = (line for line in lines if "counters:" in line)
    assert "architectural LBR (32 branches deep)" in counters
    assert list(feature_lines(())) == []


def test_arm64_has_linux_s_names() -> None:
    found = of_arm64("fp asimd atomics")
    assert list(feature_lines(found)) == [
        "features, as Linux names them: enabled: fp, asimd, atomics"
    ]
