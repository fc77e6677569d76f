"""The experiments: each a question with parameters, a measurement, an analysis and a figure."""

from __future__ import annotations

import importlib

from perflib.errors import UserError, choose
from perflib.experiments.base import Experiment

__all__ = ["NAMES", "get"]

NAMES = (
    "machine",
    "kv_per_core",
    "event_profile",
    "counters",
    "random_calls",
    "code_segment",
    "memory_levels",
    "numa",
    "coherence",
    "alias_map",
    "alias_environment",
    "alias_offsets",
    "allocators",
    "erasure_coding",
    "threads",
)


def get(name: str) -> Experiment:
    """The experiment of that name."""
    if name not in NAMES:
        raise UserError(choose("experiment", name, NAMES))
    found = importlib.import_module(f"perflib.experiments.{name}").experiment
    assert isinstance(found, Experiment)
    return found
