"""The TLBs of a machine and who says so: its CPUID, or what is published of its kind.

Many hypervisors hide what CPUID says about TLBs, but few hide the processor's family and model. So
where CPUID is silent, published numbers of the microarchitecture stand in, and are marked so.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perflib.machine.hardware.cpuid import Leaves, leaves_or_reason
from perflib.machine.hardware.microarch import Microarchitecture, processor
from perflib.machine.hardware.tlbs import Tlb, decode_tlbs, listed

_TABLE = Path(__file__).with_name("published_tlbs.toml")


@dataclass(frozen=True)
class KnownTlbs:
    """TLBs, and where the knowledge comes from.

    ``origin``: ``CPUID``, ``published for Golden Cove``, or empty where nothing is known.
    ``source``: the citation of what is published, else empty.
    """

    tlbs: tuple[Tlb, ...] = ()
    origin: str = ""
    source: str = ""


def known_tlbs(leaves: Leaves, name: Microarchitecture) -> KnownTlbs:
    """What CPUID reports, or what is published of the microarchitecture.

    >>> from perflib.machine.hardware.microarch import Microarchitecture
    >>> known = known_tlbs({}, Microarchitecture("Golden Cove", "Sapphire Rapids"))
    >>> known.origin, known.tlbs[0].entries
    ('published for Golden Cove', 256)
    """
    reported = decode_tlbs(leaves)
    if reported:
        return KnownTlbs(reported, "CPUID")
    return published_tlbs(name.name)


def tlbs_here() -> KnownTlbs:
    """The same of this machine."""
    leaves, _ = leaves_or_reason()
    return known_tlbs(leaves, processor(leaves=leaves))


def published_tlbs(microarchitecture: str) -> KnownTlbs:
    """What is published of a microarchitecture, by its name; nothing where nothing is."""
    row = tomllib.loads(_TABLE.read_text()).get(microarchitecture)
    if row is None:
        return KnownTlbs()
    return KnownTlbs(listed(row["tlbs"]), f"published for {microarchitecture}", row["source"])


def published_names() -> list[str]:
    """The microarchitectures of which something is published here."""
    return list(tomllib.loads(_TABLE.read_text()))


def tlbs_of(machine: Mapping[str, Any]) -> KnownTlbs:
    """From the description of a machine in a run's provenance; old ones knew CPUID's only."""
    found = tuple(
        Tlb(**{**tlb, "page_bytes": tuple(tlb["page_bytes"])}) for tlb in machine.get("tlbs") or ()
    )
    origin = machine.get("tlbs_origin") or ("CPUID" if found else "")
    return KnownTlbs(found, origin, machine.get("tlbs_source") or "")
