"""What two runs record differently."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perflib.model.run import Run

# What differs between any two runs: when and how they were made, and what the system counted.
_ALWAYS = (
    "start", "end", "measured_s", "trials", "plan.", "conditions", "tag", "softirqs.",
    "machine.limits.periods", "machine.limits.throttled_periods",
)  # fmt: skip


def flat(value: Any, name: str = "") -> dict[str, Any]:
    """Nested records as ``outer.inner`` names; long lists stay what they are."""
    if isinstance(value, Mapping) and value:
        return {
            key: item
            for inner, part in value.items()
            for key, item in flat(part, f"{name}.{inner}" if name else str(inner)).items()
        }
    return {name: value}


def differences(a: Run, b: Run) -> dict[str, tuple[Any, Any]]:
    """Every parameter and record that differs, but what differs between any two runs."""
    first, second = (flat({"params": run.params, **run.provenance}) for run in (a, b))
    return {
        name: (first.get(name), second.get(name))
        for name in sorted(first.keys() | second.keys())
        if first.get(name) != second.get(name) and not name.startswith(_ALWAYS)
    }
