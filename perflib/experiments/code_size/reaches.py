"""How much code this machine's caches and instruction TLBs hold, as CPUID says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from perflib.machine.hardware.tlbs import Tlb, reach_bytes

__all__ = ["Reaches"]


@dataclass(frozen=True)
class Reaches:
    """What caches and instruction TLBs hold, in bytes, by name."""

    caches: dict[str, int]
    tlbs: dict[str, int]

    @classmethod
    def of(cls, machine: Mapping[str, Any]) -> Reaches:
        """From the description of a machine in a run's provenance."""
        caches: dict[str, int] = {}
        for cache in machine.get("caches", ()):
            if cache["kind"] != "data":
                suffix = "i" if cache["kind"] == "instruction" else ""
                caches.setdefault(f"L{cache['level']}{suffix}", int(cache["size_bytes"]))
        known = [
            Tlb(**{**tlb, "page_bytes": tuple(tlb["page_bytes"])})
            for tlb in machine.get("tlbs") or ()
        ]
        names = {1: "iTLB", 2: "second-level TLB"}
        tlbs = {name: reach_bytes(known, "instruction", level) for level, name in names.items()}
        return cls(caches, {name: reach for name, reach in tlbs.items() if reach})
