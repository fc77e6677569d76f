"""How much code a machine's caches and instruction TLBs hold, as CPUID or a table says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from perflib.machine.hardware.known_tlbs import tlbs_here, tlbs_of
from perflib.machine.hardware.tlbs import reach_bytes


@dataclass(frozen=True)
class Reaches:
    """What caches and instruction TLBs hold, in bytes, by name.

    ``origin``: who says so of the TLBs, where it is not CPUID ("published for Golden Cove").
    """

    caches: dict[str, int]
    tlbs: dict[str, int]
    origin: str = ""

    @classmethod
    def of(cls, machine: Mapping[str, Any]) -> Reaches:
        """From the description of a machine in a run's provenance."""
        caches: dict[str, int] = {}
        for cache in machine.get("caches", ()):
            if cache["kind"] != "data":
                suffix = "i" if cache["kind"] == "instruction" else ""
                caches.setdefault(f"L{cache['level']}{suffix}", int(cache["size_bytes"]))
        known = tlbs_of(machine)
        names = {1: "iTLB", 2: "second-level TLB"}
        tlbs = {
            name: reach_bytes(known.tlbs, "instruction", level) for level, name in names.items()
        }
        origin = "" if known.origin == "CPUID" else known.origin
        return cls(caches, {name: reach for name, reach in tlbs.items() if reach}, origin)

    @property
    def halved(self) -> Reaches:
        """With the halves next to the whole: what two active threads may leave each other."""
        halves = {f"{name}'s half": reach // 2 for name, reach in self.tlbs.items()}
        return replace(self, tlbs=self.tlbs | halves)


def itlb_reach_bytes() -> int:
    """How much code this machine's first-level instruction TLB reaches; 0 where nothing says so."""
    return reach_bytes(tlbs_here().tlbs, "instruction", level=1)
