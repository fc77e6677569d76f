"""The processor's microarchitecture by its real name, from vendor, family, model and stepping.

Never from feature flags: a hypervisor hides some, and what is left looks like an older processor.
A hypervisor may hide family and model too (then nothing helps), but rarely does.
"""

from __future__ import annotations

from dataclasses import dataclass

from perflib.machine.hardware.cpuid import Signature

__all__ = ["Microarchitecture", "microarchitecture"]


@dataclass(frozen=True)
class Microarchitecture:
    """The core's design (``Golden Cove``) and the product built from it (``Sapphire Rapids``).

    Hybrid processors have two core designs: ``Golden Cove + Gracemont``.
    """

    name: str
    product: str

    def __str__(self) -> str:
        """For a reader: ``Golden Cove (Sapphire Rapids)``, ``Haswell``."""
        return self.name if self.product in ("", self.name) else f"{self.name} ({self.product})"


# Family 6. Several rows of one model differ by stepping: the last row whose lowest stepping is
# reached counts. Names and numbers as in Linux, arch/x86/include/asm/intel-family.h, and in
# Intel's Software Developer's Manual, volume 4, table 2-1.
_INTEL: tuple[tuple[int, int, str, str], ...] = (
    # model, lowest stepping, core, product
    (0x0F, 0, "Core", "Merom"),
    (0x17, 0, "Core", "Penryn"),
    (0x1D, 0, "Core", "Dunnington"),
    (0x1A, 0, "Nehalem", "Nehalem-EP"),
    (0x1E, 0, "Nehalem", "Lynnfield"),
    (0x1F, 0, "Nehalem", "Havendale"),
    (0x2E, 0, "Nehalem", "Nehalem-EX"),
    (0x25, 0, "Westmere", "Arrandale"),
    (0x2C, 0, "Westmere", "Westmere-EP"),
    (0x2F, 0, "Westmere", "Westmere-EX"),
    (0x2A, 0, "Sandy Bridge", ""),
    (0x2D, 0, "Sandy Bridge", "Sandy Bridge-EP"),
    (0x3A, 0, "Ivy Bridge", ""),
    (0x3E, 0, "Ivy Bridge", "Ivy Bridge-EP"),
    (0x3C, 0, "Haswell", ""),
    (0x45, 0, "Haswell", "Haswell-ULT"),
    (0x46, 0, "Haswell", "Crystal Well"),
    (0x3F, 0, "Haswell", "Haswell-EP"),
    (0x3D, 0, "Broadwell", "Broadwell-U"),
    (0x47, 0, "Broadwell", "Broadwell-H"),
    (0x4F, 0, "Broadwell", "Broadwell-EP"),
    (0x56, 0, "Broadwell", "Broadwell-DE"),
    (0x4E, 0, "Skylake", "Skylake-U"),
    (0x5E, 0, "Skylake", ""),
    (0x55, 0, "Skylake", "Skylake-SP"),
    (0x55, 5, "Skylake", "Cascade Lake"),
    (0x55, 10, "Skylake", "Cooper Lake"),
    (0x8E, 0, "Skylake", "Kaby Lake"),
    (0x8E, 10, "Skylake", "Coffee Lake"),
    (0x8E, 11, "Skylake", "Whiskey Lake"),
    (0x8E, 12, "Skylake", "Comet Lake"),
    (0x9E, 0, "Skylake", "Kaby Lake"),
    (0x9E, 10, "Skylake", "Coffee Lake"),
    (0xA5, 0, "Skylake", "Comet Lake"),
    (0xA6, 0, "Skylake", "Comet Lake"),
    (0x66, 0, "Palm Cove", "Cannon Lake"),
    (0x7D, 0, "Sunny Cove", "Ice Lake"),
    (0x7E, 0, "Sunny Cove", "Ice Lake"),
    (0x6A, 0, "Sunny Cove", "Ice Lake-SP"),
    (0x6C, 0, "Sunny Cove", "Ice Lake-D"),
    (0x8A, 0, "Sunny Cove + Tremont", "Lakefield"),
    (0xA7, 0, "Cypress Cove", "Rocket Lake"),
    (0x8C, 0, "Willow Cove", "Tiger Lake"),
    (0x8D, 0, "Willow Cove", "Tiger Lake"),
    (0x97, 0, "Golden Cove + Gracemont", "Alder Lake"),
    (0x9A, 0, "Golden Cove + Gracemont", "Alder Lake"),
    (0xBE, 0, "Gracemont", "Alder Lake-N"),
    (0xB7, 0, "Raptor Cove + Gracemont", "Raptor Lake"),
    (0xBA, 0, "Raptor Cove + Gracemont", "Raptor Lake"),
    (0xBF, 0, "Raptor Cove + Gracemont", "Raptor Lake"),
    (0x8F, 0, "Golden Cove", "Sapphire Rapids"),
    (0xCF, 0, "Raptor Cove", "Emerald Rapids"),
    (0xAA, 0, "Redwood Cove + Crestmont", "Meteor Lake"),
    (0xAC, 0, "Redwood Cove + Crestmont", "Meteor Lake"),
    (0xAD, 0, "Redwood Cove", "Granite Rapids"),
    (0xAE, 0, "Redwood Cove", "Granite Rapids-D"),
    (0xAF, 0, "Crestmont", "Sierra Forest"),
    (0xB6, 0, "Crestmont", "Grand Ridge"),
    (0xBD, 0, "Lion Cove + Skymont", "Lunar Lake"),
    (0xC5, 0, "Lion Cove + Skymont", "Arrow Lake"),
    (0xC6, 0, "Lion Cove + Skymont", "Arrow Lake"),
    (0xB5, 0, "Redwood Cove + Crestmont", "Arrow Lake-U"),
    (0xCC, 0, "Cougar Cove + Darkmont", "Panther Lake"),
    (0xDD, 0, "Darkmont", "Clearwater Forest"),
    (0x1C, 0, "Bonnell", ""),
    (0x36, 0, "Saltwell", ""),
    (0x37, 0, "Silvermont", "Bay Trail"),
    (0x4D, 0, "Silvermont", "Avoton"),
    (0x4C, 0, "Airmont", ""),
    (0x5C, 0, "Goldmont", "Apollo Lake"),
    (0x5F, 0, "Goldmont", "Denverton"),
    (0x7A, 0, "Goldmont Plus", "Gemini Lake"),
    (0x86, 0, "Tremont", "Snow Ridge"),
    (0x96, 0, "Tremont", "Elkhart Lake"),
    (0x9C, 0, "Tremont", "Jasper Lake"),
    (0x57, 0, "Knights Landing", ""),
    (0x85, 0, "Knights Mill", ""),
)

# Source: AMD's revision guides and processor programming references, by family and model.
_AMD: tuple[tuple[int, int, int, str, str], ...] = (
    # family, first model, last model, core, product
    (0x10, 0x00, 0xFF, "K10", ""),
    (0x15, 0x00, 0x01, "Bulldozer", ""),
    (0x15, 0x02, 0x1F, "Piledriver", ""),
    (0x15, 0x30, 0x3F, "Steamroller", ""),
    (0x15, 0x60, 0x7F, "Excavator", ""),
    (0x16, 0x00, 0x0F, "Jaguar", ""),
    (0x16, 0x30, 0x3F, "Puma", ""),
    (0x17, 0x00, 0x07, "Zen", "Naples"),
    (0x17, 0x08, 0x0F, "Zen+", "Pinnacle Ridge"),
    (0x17, 0x10, 0x17, "Zen", "Raven Ridge"),
    (0x17, 0x18, 0x1F, "Zen+", "Picasso"),
    (0x17, 0x20, 0x2F, "Zen", "Dali"),
    (0x17, 0x30, 0x3F, "Zen 2", "Rome"),
    (0x17, 0x47, 0x47, "Zen 2", ""),
    (0x17, 0x60, 0x67, "Zen 2", "Renoir"),
    (0x17, 0x68, 0x6F, "Zen 2", "Lucienne"),
    (0x17, 0x70, 0x7F, "Zen 2", "Matisse"),
    (0x17, 0x84, 0x87, "Zen 2", ""),
    (0x17, 0x90, 0x9F, "Zen 2", "Van Gogh"),
    (0x17, 0xA0, 0xAF, "Zen 2", "Mendocino"),
    (0x19, 0x00, 0x07, "Zen 3", "Milan"),
    (0x19, 0x08, 0x0F, "Zen 3", "Chagall"),
    (0x19, 0x10, 0x17, "Zen 4", "Genoa"),
    (0x19, 0x18, 0x1F, "Zen 4", "Storm Peak"),
    (0x19, 0x20, 0x2F, "Zen 3", "Vermeer"),
    (0x19, 0x40, 0x4F, "Zen 3+", "Rembrandt"),
    (0x19, 0x50, 0x5F, "Zen 3", "Cezanne"),
    (0x19, 0x60, 0x6F, "Zen 4", "Raphael"),
    (0x19, 0x70, 0x7F, "Zen 4", "Phoenix"),
    (0x19, 0x90, 0x9F, "Zen 4", "Instinct MI300"),
    (0x19, 0xA0, 0xAF, "Zen 4c", "Bergamo"),
    (0x1A, 0x00, 0x0F, "Zen 5", "Turin"),
    (0x1A, 0x10, 0x1F, "Zen 5c", "Turin Dense"),
    (0x1A, 0x20, 0x2F, "Zen 5", "Strix Point"),
    (0x1A, 0x40, 0x4F, "Zen 5", "Granite Ridge"),
    (0x1A, 0x60, 0x6F, "Zen 5", "Krackan Point"),
    (0x1A, 0x70, 0x7F, "Zen 5", "Strix Halo"),
)

# (implementer, part) as in /proc/cpuinfo. Source: Linux, arch/arm64/include/asm/cputype.h.
_ARM: dict[tuple[int, int], tuple[str, str]] = {
    (0x41, 0xD03): ("Cortex-A53", ""),
    (0x41, 0xD07): ("Cortex-A57", ""),
    (0x41, 0xD08): ("Cortex-A72", ""),
    (0x41, 0xD0B): ("Cortex-A76", ""),
    (0x41, 0xD0C): ("Neoverse N1", ""),
    (0x41, 0xD40): ("Neoverse V1", ""),
    (0x41, 0xD49): ("Neoverse N2", ""),
    (0x41, 0xD4F): ("Neoverse V2", ""),
    (0x41, 0xD84): ("Neoverse V3", ""),
    (0x41, 0xD8E): ("Neoverse N3", ""),
    (0x43, 0x0AF): ("Vulcan", "ThunderX2"),
    (0x46, 0x001): ("A64FX", ""),
    (0x48, 0xD01): ("TaiShan v110", "Kunpeng 920"),
    (0x61, 0x022): ("Icestorm", "Apple M1"),
    (0x61, 0x023): ("Firestorm", "Apple M1"),
    (0xC0, 0xAC3): ("AmpereOne", ""),
}


def microarchitecture(signature: Signature) -> Microarchitecture:
    """The name; ``unknown (...)`` with the numbers for a processor that no table here has."""
    family, model = signature.family, signature.model
    stepping = signature.stepping or 0
    found: tuple[str, str] | None = None
    if family is not None and model is not None:
        if signature.vendor == "GenuineIntel" and family == 6:
            for known, lowest, name, product in _INTEL:
                if model == known and stepping >= lowest:
                    found = (name, product)
        elif signature.vendor == "AuthenticAMD":
            for known_family, first, last, name, product in _AMD:
                if family == known_family and first <= model <= last:
                    found = (name, product)
        elif signature.vendor == "HygonGenuine" and family == 0x18:
            found = ("Zen", "Hygon Dhyana")
        elif signature.vendor.startswith("ARM"):
            found = _ARM.get((family, model))
    if found is None:
        numbers = (
            f"{signature.vendor}, family {family}, model {model}, stepping {signature.stepping}"
        )
        found = (f"unknown ({numbers})", "")
    return Microarchitecture(*found)
