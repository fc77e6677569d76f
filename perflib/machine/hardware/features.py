"""What the processor can do, and whether the system lets it: CPUID's features in words.

A feature bit alone misleads. AVX-512 may be offered while the system does not save its registers
(then each such instruction is invalid), PCID may be left off by a boot option, and a hypervisor
clears bits of its choice. So three sources are put together: the CPUID leaves, XCR0 (the register
states that the system has switched on) and the flags of /proc/cpuinfo (what Linux uses). The
features themselves are data, in features.toml, which names the manuals.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from perflib.machine.files import fields
from perflib.machine.hardware.cpuid import (
    Leaves,
    Registers,
    last_subleaf,
    leaves_or_reason,
    signature,
    xcr0,
)
from perflib.model.errors import PerflibError

State = Literal["enabled", "not enabled", "absent", "unknown"]

_REGISTERS = ("eax", "ebx", "ecx", "edx")
_VENDORS = {"GenuineIntel": "Intel", "AuthenticAMD": "AMD", "HygonGenuine": "AMD"}
# XCR0: which bits must be set for the registers of a kind, and their name.
_SAVED = {
    "avx": (0x6, "YMM registers"),
    "avx512": (0xE6, "ZMM and mask registers"),
    "amx": (0x60000, "tile registers"),
}
_NO_REGISTERS: Registers = (0, 0, 0, 0)


@dataclass(frozen=True)
class Feature:
    """One feature: where CPUID shows it, and what it is for.

    ``leaf``, ``subleaf``, ``register``, ``low``, ``high``: the bits, present unless all are zero.
    ``vendor``: "Intel" or "AMD" where the bits are one's alone, else empty. ``needs``: the kind
    of registers that the system must save, else empty. ``flag``: its name in /proc/cpuinfo, empty
    where Linux has none. ``switched``: the system must switch it on, and shows the flag where it
    did.
    """

    name: str
    group: str
    purpose: str
    leaf: int
    subleaf: int
    register: str
    low: int
    high: int
    vendor: str = ""
    needs: str = ""
    flag: str = ""
    switched: bool = False

    def value(self, registers: Registers) -> int:
        """The bits of the feature in the registers of its leaf."""
        word = registers[_REGISTERS.index(self.register)]
        return word >> self.low & (1 << self.high - self.low + 1) - 1


@dataclass(frozen=True)
class FeatureState:
    """A feature on one machine.

    ``state``: "enabled" (the processor has it and nothing is in the way), "not enabled" (the
    processor has it, the system has not switched it on), "absent" (CPUID does not show it) or
    "unknown". ``note``: why, or the numbers that CPUID gives with the bit; may be empty.
    """

    feature: Feature
    state: State
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self.feature) | {"state": self.state, "note": self.note}


def _read() -> tuple[Feature, ...]:
    text = Path(__file__).with_suffix(".toml").read_text()
    return tuple(
        _feature(group, name, entry)
        for group, entries in tomllib.loads(text).items()
        for name, entry in entries.items()
    )


def _feature(group: str, name: str, entry: Mapping[str, Any]) -> Feature:
    leaf, subleaf, register, bits = entry["at"].split(".")
    low, _, high = bits.partition("-")
    return Feature(
        name=name,
        group=group,
        purpose=entry["for"],
        leaf=int(leaf, 16),
        subleaf=int(subleaf, 16),
        register=register,
        low=int(low),
        high=int(high or low),
        **{key: entry[key] for key in ("vendor", "needs", "flag", "switched") if key in entry},
    )


FEATURES = _read()
_IN_A_GUEST = next(feature for feature in FEATURES if feature.flag == "hypervisor")


def features(
    leaves: Leaves, xcr0: int | None = None, flags: Collection[str] = frozenset()
) -> tuple[FeatureState, ...]:
    """Every feature that this vendor's processors may have, and its state.

    Parameters
    ----------
    leaves
        CPUID's answers. A leaf that the processor does not have makes its features absent; for
        one that is merely not in the mapping a flag is taken as proof, and no flag as none.
    xcr0
        The register states that the system has switched on; ``None``: not known.
    flags
        The flags of /proc/cpuinfo; empty: not known.

    Examples
    --------
    >>> leaves = {(0x0, 0): (1, 0, 0, 0), (0x1, 0): (0, 0, 1 << 28 | 1 << 27, 0)}
    >>> found = {each.feature.name: each for each in features(leaves, xcr0=0x3)}
    >>> found["AVX"].state, found["AVX"].note
    ('not enabled', 'the system does not save the YMM registers (XCR0 is 0x3)')
    """
    vendor = signature(known=leaves).vendor if {(0x0, 0), (0x1, 0)} <= leaves.keys() else ""
    vendor = _VENDORS.get(vendor, vendor)
    return tuple(
        FeatureState(feature, *_state(feature, leaves, xcr0, flags))
        for feature in FEATURES
        if not (vendor and feature.vendor) or feature.vendor == vendor
    )


def of_this_machine() -> tuple[FeatureState, ...]:
    """The features of the core that this call runs on."""
    cpuinfo = fields(Path("/proc/cpuinfo"))
    if words := cpuinfo.get("Features"):
        return of_arm64(words)
    leaves, _ = leaves_or_reason()
    flags = frozenset(cpuinfo.get("flags", "").split())
    try:
        enabled = xcr0()
    except (PerflibError, OSError):  # no compiler; then there are no leaves either
        enabled = None
    return features(leaves, enabled, flags)


def of_arm64(words: str) -> tuple[FeatureState, ...]:
    """What Linux lists of an arm64 core, by its names (documented as elf_hwcaps)."""
    group, purpose = "as Linux names them", "documented with Linux: arm64, ELF hwcaps"
    return tuple(
        FeatureState(Feature(word, group, purpose, 0, 0, "", 0, 0, flag=word), "enabled")
        for word in words.split()
    )


def _state(
    feature: Feature, leaves: Leaves, xcr0: int | None, flags: Collection[str]
) -> tuple[State, str]:
    registers = _registers(feature, leaves)
    if registers is None:
        if feature.flag in flags:
            return "enabled", ""
        return "unknown", "CPUID was not read"
    if not feature.value(registers):
        guest = _IN_A_GUEST.value(leaves.get((0x1, 0), _NO_REGISTERS))
        return "absent", "perhaps hidden by the hypervisor" if guest else ""
    if feature.needs:
        return _by_saved_registers(feature, leaves, xcr0, flags)
    if feature.switched:
        if not flags:
            return "unknown", "the processor has it; whether the system uses it was not read"
        if feature.flag not in flags:
            return "not enabled", f"Linux does not list {feature.flag!r} in /proc/cpuinfo"
    details = _DETAILS.get(feature.name)
    return "enabled", details(leaves) if details else ""


def _by_saved_registers(
    feature: Feature, leaves: Leaves, xcr0: int | None, flags: Collection[str]
) -> tuple[State, str]:
    """Whether instructions on wide registers may be used: the system must save those."""
    needed, name = _SAVED[feature.needs]
    if not leaves.get((0x1, 0), _NO_REGISTERS)[2] & 1 << 27:  # OSXSAVE
        return "not enabled", "XSAVE is not switched on"
    if xcr0 is not None:
        if xcr0 & needed == needed:
            return "enabled", ""
        return "not enabled", f"the system does not save the {name} (XCR0 is {xcr0:#x})"
    if feature.flag in flags:
        return "enabled", ""
    return "unknown", f"the processor has it; whether the system saves the {name} was not read"


def _registers(feature: Feature, leaves: Leaves) -> Registers | None:
    """The leaf's registers, zeros where the processor has no such leaf; ``None``: not known."""
    known = leaves.get((feature.leaf, feature.subleaf))
    if known is not None:
        return known
    last = leaves.get((feature.leaf & 0x80000000, 0))
    if last is not None and feature.leaf > last[0]:
        return _NO_REGISTERS
    main = leaves.get((feature.leaf, 0))
    if main is not None and feature.subleaf > last_subleaf(feature.leaf, main):
        return _NO_REGISTERS
    return None


def _intel_counters(leaves: Leaves) -> str:
    eax, _, _, edx = leaves[0xA, 0]
    return (
        f"version {eax & 0xFF}: {eax >> 8 & 0xFF} programmable of {eax >> 16 & 0xFF} bits, "
        f"{edx & 0x1F} fixed, for each thread"
    )


def _amd_counters(leaves: Leaves) -> str:
    ebx = leaves[0x80000022, 0][1]
    return f"{ebx & 0xF} for each thread, {ebx >> 10 & 0x3F} of the data fabric"


def _amd_branches(leaves: Leaves) -> str:
    return f"{leaves[0x80000022, 0][1] >> 4 & 0x3F} branches deep"


def _intel_branches(leaves: Leaves) -> str:
    depths = leaves.get((0x1C, 0), _NO_REGISTERS)[0] & 0xFF  # bit n: 8 * (n + 1) entries
    return f"{8 * depths.bit_length()} branches deep" if depths else ""


def _tsc_rate(leaves: Leaves) -> str:
    denominator, numerator, crystal_hz, _ = leaves[0x15, 0]
    if not (denominator and crystal_hz):
        return ""
    return f"{crystal_hz * numerator / denominator / 1e6:g} MHz"


# The numbers that go with some features' bits.
_DETAILS: Mapping[str, Callable[[Leaves], str]] = {
    "architectural counters": _intel_counters,
    "architectural LBR": _intel_branches,
    "counters version 2": _amd_counters,
    "LBR version 2": _amd_branches,
    "TSC frequency reported": _tsc_rate,
}
