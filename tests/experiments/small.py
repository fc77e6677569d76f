"""Parameters with which each experiment takes seconds."""

from __future__ import annotations

from typing import Any

from perflib import experiments

# In addition to a budget of a second.
_SMALLER: dict[str, dict[str, Any]] = {
    "machine": {"spin_ms": 20.0},
    "kv_per_core": {"events": 10},
    "event_profile": {"event_ms": 60.0},
    "random_calls": {"sizes_kib": [8, 64, 2048], "functions": 4096},
    "code_segment": {
        "patterns": ["random", "chase", "line"],
        "sizes_kib": [8, 64, 1024, 4096],
        "simulated_sizes": 2,
    },
    "memory_levels": {
        "largest_mib": 4,
        "smallest_kib": 4,
        "sizes_per_doubling": 1,
        "trial_ms": 0.2,
        "repeats": 3,
    },
    "numa": {"array_mib": 8},
    "alias_map": {"reach_bytes": 16},
    "alias_environment": {
        "starts": 2,
        "iterations": 2048,
        "step_bytes": 64,
        "periods": 1,
        "link_orders": 2,
        "aslr_starts": 2,
        "simulate": False,
    },
    "alias_offsets": {
        "elements": [2048],
        "sizes": [64],
        "sample_ms": 0.1,
        "simulated_offsets": [4, 2048],
    },
    "allocators": {"processes": 4, "timed_sizes": [8192]},
    "simulate": {"events": 1},
    "memory_load": {
        "array_mib": 2,
        "rates": [50],
        "kinds": ["read", "triad"],
        "trial_ms": 0.2,
        "repeats": 2,
    },
    "contention": {"kinds": ["one_line", "fetch_add", "pthread"], "trial_ms": 0.2, "repeats": 2},
    "sharing": {"alternate_ms": 4, "alternations": 3},
    "layout": {"iterations": 1000, "factors": ["environment", "aslr"]},
    "sensitivity": {
        "job": "compute",
        "trial_s": 0.02,
        "cache_mib": 1.0,
        "traffic": [100],
        "occupied": [100],
    },
    "threads": {"events": 20},
    "erasure_coding": {
        "block_mib": 0.0625,
        "implementations": ["ours_table", "ours_simd"],
    },
}
SMALL: dict[str, dict[str, Any]] = {
    name: {"budget_s": 1.0} | _SMALLER.get(name, {}) for name in experiments.NAMES
}
assert set(_SMALLER) <= set(experiments.NAMES)
