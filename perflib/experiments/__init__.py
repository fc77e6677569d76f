"""The experiments: each a question with parameters, a measurement, an analysis and figures."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from perflib.model.errors import UserError, choose

if TYPE_CHECKING:  # who only needs the names, for help or TAB completion, need not wait for it
    from perflib.framework.experiment import Experiment

__all__ = ["NAMES", "get"]

_FOLDERS = {
    "machine": "machine",
    "kv_per_core": "kv_per_core",
    "event_profile": "event_profile",
    "counters": "counters",
    "random_calls": "code_size.random_calls",
    "code_segment": "code_size.code_segment",
    "memory_levels": "memory_levels",
    "data_tlb": "data_tlb",
    "memory_load": "memory_load",
    "contention": "contention",
    "numa": "core_pairs.numa",
    "coherence": "core_pairs.coherence",
    "sharing": "core_pairs.sharing",
    "alias_map": "aliasing.map",
    "alias_environment": "aliasing.environment",
    "alias_offsets": "aliasing.offsets",
    "allocators": "aliasing.allocators",
    "erasure_coding": "aliasing.erasure_coding",
    "threads": "threads",
    "count": "counting",
    "what_if": "what_if",
    "simulate": "simulate",
    "layout": "layout",
    "bracketed": "bracketed",
    "sensitivity": "sensitivity",
    "correctness": "correctness",
}
NAMES = tuple(_FOLDERS)


def get(name: str) -> Experiment:
    """The experiment of that name.

    Raises
    ------
    UserError
        There is none; or a configuration file names one that there is not.
    """
    from perflib.framework.experiment import Experiment
    from perflib.store import config

    if name not in _FOLDERS:
        raise UserError(choose("experiment", name, NAMES))
    config.check_experiments(NAMES)
    found = importlib.import_module(f"perflib.experiments.{_FOLDERS[name]}").experiment
    assert isinstance(found, Experiment)
    return found
