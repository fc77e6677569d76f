"""The processor's microarchitecture by its real name, from vendor, family, model and stepping.

The names are data, in microarch.toml.

Never from feature flags: a hypervisor hides some, and what is left is that of an older processor.
A hypervisor may give another family and model, too. So a name is compared with the private caches:
where they are not that core's, the processor only presents itself as one, and no table is asked
about that name.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perflib.machine.hardware import cpuid
from perflib.machine.hardware.caches import Cache, caches
from perflib.machine.hardware.cpuid import Leaves, Signature


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


def processor(
    root: Path = Path("/"), leaves: Leaves | None = None, found: Iterable[Cache] | None = None
) -> Microarchitecture:
    """The machine's processor; where its caches are not those of its name, the name says so.

    ``root``: where /proc and /sys are found. ``leaves``, ``found``: its CPUID and caches, if read.
    """
    found = caches(root) if found is None else found
    kib = {(one.level, str(one.kind)): one.size_bytes >> 10 for one in found}
    return _compared(cpuid.signature(root, leaves), kib)


def described(machine: Mapping[str, Any]) -> dict[str, Any]:
    """The description of a machine in a run's provenance, its name as it is given today."""
    if machine.get("family") is None:
        return dict(machine)
    numbers = Signature(*(machine[key] for key in ("vendor", "family", "model", "stepping")))
    found = machine.get("caches") or ()
    kib = {(one["level"], one["kind"]): one["size_bytes"] >> 10 for one in found}
    name = _compared(numbers, kib)
    return {**machine, "microarchitecture": name.name, "product": name.product}


def _compared(numbers: Signature, kib: Mapping[tuple[int, str], int]) -> Microarchitecture:
    presented = microarchitecture(numbers)
    known = _known()["caches"]
    private = [kib.get(key, 0) for key in ((1, "data"), (1, "instruction"), (2, "unified"))]
    if presented.name not in known or not all(private) or private in _known()["invented"]:
        return presented
    if private in known[presented.name]:
        return presented
    alike = [name for name, all_sizes in known.items() if private in all_sizes]
    what = f"those of {' or '.join(alike)}" if alike else "not that core's"
    listed = "L1d {} KiB, L1i {} KiB, L2 {} KiB".format(*private)
    words = f"presents itself as {presented}, but its caches are {what} ({listed})"
    return Microarchitecture(words, "")


def microarchitecture(signature: Signature) -> Microarchitecture:
    """The name by the numbers; ``unknown (...)`` with them for a processor that is not listed."""
    family, model = signature.family, signature.model
    stepping = signature.stepping or 0
    rows: list[dict[str, Any]] = []
    if family is not None and model is not None:
        if signature.vendor == "GenuineIntel" and family == 6:
            rows = [
                row
                for row in _known()["intel"]
                if model in row["models"] and stepping >= row.get("stepping", 0)
            ]
        elif signature.vendor == "AuthenticAMD":
            rows = [
                row
                for row in _known()["amd"]
                if family == row["family"] and row["models"][0] <= model <= row["models"][1]
            ]
        elif signature.vendor == "HygonGenuine" and family == 0x18:
            return Microarchitecture("Zen", "Hygon Dhyana")
        elif signature.vendor.startswith("ARM"):
            rows = [
                row
                for row in _known()["arm"]
                if (family, model) == (row["implementer"], row["part"])
            ]
    if rows:
        return Microarchitecture(rows[-1]["core"], rows[-1].get("product", ""))
    numbers = f"{signature.vendor}, family {family}, model {model}, stepping {signature.stepping}"
    return Microarchitecture(f"unknown ({numbers})", "")


@functools.cache
def _known() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
