"""Why is this machine, this core, this buffer slower than it should be?

>>> import perflib as pl
>>> kv = pl.experiment("kv_per_core")  # its question, parameters, presets
>>> run = kv.run(events=50, preset="quick")  # doctest: +SKIP
>>> run.findings, run.table("drift"), run.plot("drift")  # doctest: +SKIP

This is the whole public interface. Nothing heavy is imported before it is used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perflib.lab.interface import compare, experiment, ledger, load, report, runs
    from perflib.lab.machine import describe, doctor
    from perflib.lab.tables import table
    from perflib.lab.theme import show, themed
    from perflib.model.errors import MeasurementError, PerflibError, UserError

# Where each public name lives.
_LAZY = {
    # to run experiments and look into runs
    "compare": "perflib.lab.interface",
    "experiment": "perflib.lab.interface",
    "ledger": "perflib.lab.interface",
    "load": "perflib.lab.interface",
    "report": "perflib.lab.interface",
    "runs": "perflib.lab.interface",
    # this machine
    "describe": "perflib.lab.machine",
    "doctor": "perflib.lab.machine",
    # to show things
    "show": "perflib.lab.theme",
    "table": "perflib.lab.tables",
    "themed": "perflib.lab.theme",
    # what can go wrong
    "MeasurementError": "perflib.model.errors",
    "PerflibError": "perflib.model.errors",
    "UserError": "perflib.model.errors",
}

__all__ = [
    "MeasurementError",
    "PerflibError",
    "UserError",
    "compare",
    "describe",
    "doctor",
    "experiment",
    "ledger",
    "load",
    "report",
    "runs",
    "show",
    "table",
    "themed",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name not in _LAZY:
        msg = f"module 'perflib' has no attribute {name!r}"
        raise AttributeError(msg)
    value = getattr(importlib.import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
