"""Samples of `correctness` by simulation: rates vary, faults come in bursts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from perflib.experiments.correctness import STATES
from perflib.experiments.correctness.table import checksums

NAMES = ("integer", "multiply", "memory")


def samples(
    seed: int = 1,
    rates: Mapping[tuple[int, str], float] | None = None,
    *,
    only: str = "",
    cores: int = 2,
    rounds: int = 6,
    operations: float = 1e6,
) -> pd.DataFrame:
    """Trials as ``measure`` makes them.

    ``rates``: the share of wrong results by core and class; overdispersed by gamma of shape 0.5, as
    a core errs in bursts. ``only``: in this state alone.
    """
    generator = np.random.default_rng(seed)
    rows: list[dict[str, Any]] = []
    for round_ in range(rounds):
        block = round_ // 2 if round_ % 2 == 0 else 1000 + round_
        for state in STATES:
            for cpu in range(cores):
                for name in NAMES:
                    count = int(operations * generator.uniform(0.2, 1.8))
                    share = (rates or {}).get((cpu, name), 0.0) * (only in ("", state))
                    burst = generator.gamma(0.5, 2.0) if share < 1 else 1.0
                    wrong = int(generator.binomial(count, min(1.0, share * burst)))
                    table = checksums()[name]
                    rows.append(
                        {
                            "round": round_,
                            "state": state,
                            "cpu": cpu,
                            "class": name,
                            "block": block,
                            "operations": count,
                            "wrong": wrong,
                            "first_index": 17 if wrong else -1,
                            "expected": "00000000000000ff" if wrong else "",
                            "found": "00000000000200ff" if wrong else "",
                            "checksum": table[block] if block < 8 else f"{block}-{name}",
                            "time_ns": 1e6,
                            "start_ns": len(rows) * 1_000_000,
                            "ok": True,
                        }
                    )
    return pd.DataFrame(rows)
