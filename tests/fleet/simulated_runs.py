"""Runs of one machine whose scatter from run to run has heavy tails."""

from __future__ import annotations

import numpy as np
import pandas as pd

from perflib import experiments
from perflib.model.run import Run

CODE = experiments.get("code_segment")


def a_run(
    rng: np.random.Generator, number: int, *, slower: float = 0.0, core: int | None = None
) -> Run:
    """A run whose level, cores and settings scatter with heavy tails, by what a run draws anew."""
    rows = []
    of_run = 0.003 * rng.standard_t(5)
    for cpu in range(4):
        of_core = (0.001 + 0.001 * cpu) * rng.standard_t(5)
        for n in (64, 4096):
            log = of_run + of_core + (slower if core in (None, cpu) else 0.0)
            for index in range(6):
                time_ns = 1e5 * n**0.1 * np.exp(log + 0.002 * rng.gamma(1.0))
                rows.append((index, cpu, "random", "base", n, n * 64, 1000, time_ns))
    columns = ["round", "cpu", "pattern", "backing", "n", "code_bytes", "steps", "time_ns"]
    start = pd.Timestamp("2026-03-02", tz="UTC") + pd.Timedelta(days=number)
    return Run(
        f"code_segment-{number}",
        "code_segment",
        CODE.Params.make({}).model_dump(mode="json"),
        pd.DataFrame(rows, columns=columns),
        {"start": start.isoformat()},
    )
