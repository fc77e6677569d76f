"""Is this machine fit to measure? What is reported first, and what would change it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

WHY = "What this machine is, what spoils measurements on it, how much of each core one has."

# Of the doctor's checks, those that spoil what an investigation measures while they warn.
_SPOILING = ("cpu_quota", "load", "sharing", "steal", "governor", "thermal_throttling")


@dataclass(frozen=True)
class Spoiler:
    """One thing that spoils measurements: what it is now, and the command that changes it."""

    name: str
    now: str
    command: str


def examine() -> dict[str, Any]:
    """The machine and what the doctor says of it, as JSON holds it; a few seconds."""
    from perflib.machine.describe import describe
    from perflib.machine.doctor.diagnose import diagnose

    begin = time.monotonic()
    machine, checks = describe(), diagnose()
    return {
        "machine": machine,
        "checks": [vars(check) | {"values": list(check.values)} for check in checks],
        "seconds": round(time.monotonic() - begin, 1),
    }


def spoilers(fit: Mapping[str, Any]) -> list[Spoiler]:
    """What spoils measurements here, by ``examine``."""
    return [
        Spoiler(check["name"], check["now"], check["command"])
        for check in fit.get("checks", [])
        if check["state"] == "warn" and check["name"] in _SPOILING
    ]
