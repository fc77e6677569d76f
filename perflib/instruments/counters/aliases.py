"""One name for what each generation of processors calls differently; the data is aliases.toml."""

from __future__ import annotations

import functools
import tomllib
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Alias:
    """A name, what it counts, and each PMU's own name for it (libpfm4's PMU and event names).

    ``missing`` says what a processor has instead that is not in ``events``.
    """

    name: str
    meaning: str
    missing: str
    events: dict[str, str]


@functools.cache
def aliases() -> dict[str, Alias]:
    """Every alias by its name."""
    data = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
    families = data["families"]
    return {
        name: Alias(
            name=name,
            meaning=entry["meaning"],
            missing=entry.get("missing", ""),
            events={
                pmu: event for family, event in entry["events"].items() for pmu in families[family]
            },
        )
        for name, entry in data["aliases"].items()
    }
