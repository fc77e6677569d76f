"""Samples of pieces in turns, as programs write them: noise with heavy tails, drift, company."""

from __future__ import annotations

import numpy as np
import pandas as pd


def samples(
    seed: int = 0,
    longer: tuple[float, ...] = (0.0,),
    *,
    processes: int = 10,
    turns: int = 20,
    noise: float = 0.01,
    busy: float = 0.0,
    between: float = 0.002,
) -> pd.DataFrame:
    """Rows of ``piece0`` and of others that take so many percent longer.

    ``busy``: the share of samples next to a sibling that works, which take half as long again.
    ``between``: how far processes scatter, in each piece.
    """
    generator = np.random.default_rng(seed)
    extra = [0.0, *longer]
    rows = []
    clock_ns = 10**12
    for process in range(processes):
        own = between * generator.standard_normal(len(extra))
        state = generator.random() < busy
        for turn in range(turns):
            for piece in generator.permutation(len(extra)):
                if generator.random() < 0.1:  # a neighbour comes and goes
                    state = generator.random() < busy
                log = np.log1p(extra[piece] / 100) + own[piece] + noise * generator.standard_t(4)
                time_ns = 1e5 * np.exp(log + 0.1 * turn / turns) * (1.5 if state else 1.0)
                probes = 5000 * (1.6 if state else 1.0) * (1 + 0.003 * generator.random(2))
                chains = 2000 * (1 + 0.003 * generator.random(2))
                clock_ns += round(time_ns) + 10_000
                cost_ns = round(time_ns)
                row = (process, f"piece{piece}", 0, clock_ns, cost_ns, cost_ns - 200, 0)
                rows.append((*row, *probes.round(), *chains.round()))
    names = ["process", "name", "cpu", "start_ns", "time_ns", "cpu_time_ns", "run_delay_ns",
             "probe_before_ns", "probe_after_ns", "chain_before_ns", "chain_after_ns"]  # fmt: skip
    table = pd.DataFrame(rows, columns=names)
    return table.assign(round=table["process"])
