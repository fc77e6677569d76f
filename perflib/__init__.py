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
    from perflib.course.fix import fix
    from perflib.course.mystery import mystery
    from perflib.course.sliders import slider
    from perflib.course.worksheet import lesson
    from perflib.experiments.aliasing.addresses import aliasing
    from perflib.experiments.aliasing.erasure_coding import blocks as erasure
    from perflib.experiments.aliasing.erasure_coding.layouts import layout_offsets
    from perflib.experiments.aliasing.offsets.sweep import sweep_offsets
    from perflib.fleet.acceptance import accept
    from perflib.framework.published import published
    from perflib.lab import counters, profiles, threads
    from perflib.lab.bench import bench, sample
    from perflib.lab.code import built, disassembly
    from perflib.lab.farm import farm, farm_question, simulated_farm
    from perflib.lab.farm_report import write_farm_report
    from perflib.lab.home import home
    from perflib.lab.interface import compare, experiment, ledger, load, recorded, report, runs
    from perflib.lab.investigation import investigate, question
    from perflib.lab.machine import describe, doctor
    from perflib.lab.memory import walks
    from perflib.lab.neighbour import busy_neighbour, cpu_quota
    from perflib.lab.pairs import pair, pair_question
    from perflib.lab.tables import table
    from perflib.lab.theme import show, themed
    from perflib.lab.trend import trend
    from perflib.machine.activity.noise import GAP_CAUSES
    from perflib.machine.libraries.allocators import allocators
    from perflib.machine.libraries.blas import blas_libraries
    from perflib.measure.pages.placement import pages_by_node
    from perflib.model.errors import MeasurementError, PerflibError, UserError
    from perflib.remedies import (
        alias_free,
        alias_free_allocator,
        alias_free_copies,
        best_offset,
        show_remedies,
    )
    from perflib.stats.compare import compare_cores
    from perflib.stats.interval import percent
    from perflib.stats.naive import naive_interval
    from perflib.store.query import query

# Where each public name lives.
_LAZY = {
    # to run experiments and look into runs
    "compare": "perflib.lab.interface",
    "experiment": "perflib.lab.interface",
    "home": "perflib.lab.home",
    "ledger": "perflib.lab.interface",
    "load": "perflib.lab.interface",
    "pair": "perflib.lab.pairs",
    "pair_question": "perflib.lab.pairs",  # from a notebook's parameters
    "query": "perflib.store.query",
    "recorded": "perflib.lab.interface",
    "report": "perflib.lab.interface",
    "runs": "perflib.lab.interface",
    "trend": "perflib.lab.trend",
    # Python code between probes
    "bench": "perflib.lab.bench",
    "sample": "perflib.lab.bench",
    # from a symptom to a verdict
    "investigate": "perflib.lab.investigation",
    "question": "perflib.lab.investigation",  # what is asked, from a notebook's parameters
    # many machines
    "accept": "perflib.fleet.acceptance",
    "farm": "perflib.lab.farm",
    "farm_question": "perflib.lab.farm",
    "simulated_farm": "perflib.lab.farm",
    "write_farm_report": "perflib.lab.farm_report",
    # this machine
    "describe": "perflib.lab.machine",
    "doctor": "perflib.lab.machine",
    # where arrays lie: to measure what it costs, and to place them better
    "alias_free": "perflib.remedies",
    "alias_free_allocator": "perflib.remedies",
    "alias_free_copies": "perflib.remedies",
    "best_offset": "perflib.remedies",
    "show_remedies": "perflib.remedies",
    "sweep_offsets": "perflib.experiments.aliasing.offsets.sweep",
    # to show things
    "show": "perflib.lab.theme",
    "table": "perflib.lab.tables",
    "themed": "perflib.lab.theme",
    # what the notebooks explain with
    "GAP_CAUSES": "perflib.machine.activity.noise",
    "aliasing": "perflib.experiments.aliasing.addresses",
    "allocators": "perflib.machine.libraries.allocators",
    "blas_libraries": "perflib.machine.libraries.blas",
    "built": "perflib.lab.code",
    "busy_neighbour": "perflib.lab.neighbour",
    "cpu_quota": "perflib.lab.neighbour",
    "compare_cores": "perflib.stats.compare",
    "counters": "perflib.lab.counters",  # a module of its own
    "disassembly": "perflib.lab.code",
    "erasure": "perflib.experiments.aliasing.erasure_coding.blocks",  # a module of its own
    "layout_offsets": "perflib.experiments.aliasing.erasure_coding.layouts",
    "naive_interval": "perflib.stats.naive",
    "pages_by_node": "perflib.measure.pages.placement",
    "percent": "perflib.stats.interval",
    "profiles": "perflib.lab.profiles",  # a module of its own
    "published": "perflib.framework.published",
    "threads": "perflib.lab.threads",  # a module of its own
    "walks": "perflib.lab.memory",
    # to teach and to learn
    "fix": "perflib.course.fix",  # code to mend
    "lesson": "perflib.course.worksheet",  # predictions, exercises that check themselves
    "mystery": "perflib.course.mystery",  # one thing is wrong with this machine
    "slider": "perflib.course.sliders",  # a number that teaches by moving
    # what can go wrong
    "MeasurementError": "perflib.model.errors",
    "PerflibError": "perflib.model.errors",
    "UserError": "perflib.model.errors",
}

__all__ = [
    "GAP_CAUSES",
    "MeasurementError",
    "PerflibError",
    "UserError",
    "accept",
    "alias_free",
    "alias_free_allocator",
    "alias_free_copies",
    "aliasing",
    "allocators",
    "bench",
    "best_offset",
    "blas_libraries",
    "built",
    "busy_neighbour",
    "compare",
    "compare_cores",
    "counters",
    "cpu_quota",
    "describe",
    "disassembly",
    "doctor",
    "erasure",
    "experiment",
    "farm",
    "farm_question",
    "fix",
    "home",
    "investigate",
    "layout_offsets",
    "ledger",
    "lesson",
    "load",
    "mystery",
    "naive_interval",
    "pages_by_node",
    "pair",
    "pair_question",
    "percent",
    "profiles",
    "published",
    "query",
    "question",
    "recorded",
    "report",
    "runs",
    "sample",
    "show",
    "show_remedies",
    "simulated_farm",
    "slider",
    "sweep_offsets",
    "table",
    "themed",
    "threads",
    "trend",
    "walks",
    "write_farm_report",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name == "__version__":
        from importlib.metadata import version

        return version("perflib-jupyter")
    if name not in _LAZY:
        msg = f"module 'perflib' has no attribute {name!r}"
        raise AttributeError(msg)
    from perflib.model.extras import installed

    with installed():
        module = importlib.import_module(_LAZY[name])
    value = getattr(module, name, module)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
