"""The processor's microarchitecture by its real name, from vendor, family, model and stepping.

The names are data, in microarch.toml.

Never from feature flags: a hypervisor hides some, and what is left is that of an older processor.
A hypervisor may hide family and model too (then nothing helps), but rarely does.
"""

from __future__ import annotations

import functools
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perflib.machine.hardware.cpuid import Signature


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


def microarchitecture(signature: Signature) -> Microarchitecture:
    """The name; ``unknown (...)`` with the numbers for a processor that is not listed."""
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
def _known() -> dict[str, list[dict[str, Any]]]:
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
