"""Samples of `sensitivity` by simulation: noise that is skewed, wanders and comes in bursts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from tests.experiments.layout.functions import PERIOD_NS, SHARES

WITNESS = {"traffic": 0.3, "occupied": 0.3, "small_pages": 0.4}
"""How much longer (log) our own jobs take at the largest dose."""
_DOSES = {
    "control": (0.0,), "alone": (0.0,), "traffic": (50.0, 100.0), "occupied": (50.0, 100.0),
    "small_pages": (0.0,), "huge_pages": (0.0,),
}  # fmt: skip
_GB_S, _CACHE_BYTES = 10.0, 32 << 20
_OCCUPIED_GB_S = 4.0


def samples(
    seed: int = 1,
    longer: Mapping[str, float] | None = None,
    *,
    witness: Mapping[str, float] | None = None,
    everybody: float = 0.0,
    rounds: int = 16,
    noise: float = 0.01,
    bursts: float = 0.2,
    start_s: float = 0.0,
) -> pd.DataFrame:
    """Trials as ``measure`` makes them, half a second each.

    ``longer``: by how much (log) the job takes longer at the largest level of a dose, in proportion
    below; ``busy``: while the others are busy at all. ``everybody``: what a competitor that uses
    memory does to all programs. ``bursts``: the share of the trials that others slow by up to 20 %.
    ``start_s``: of the job, before its first event; no dose changes that, and others make it vary.
    """
    generator = np.random.default_rng(seed)
    longer, witness = longer or {}, WITNESS if witness is None else witness
    kinds = [(dose, level) for dose, levels in _DOSES.items() for level in levels]
    witnesses = {"traffic": "triad", "occupied": "chase", "small_pages": "walk"}
    rows, wander, now_s = [], 0.0, 0.0
    for round_ in range(rounds):
        for position, which in enumerate(generator.permutation(len(kinds))):
            dose, level = kinds[which]
            share = level / 100 if level else 1.0
            wander += 0.003 * float(generator.standard_normal())
            slowed = float(generator.uniform(0, 0.2)) if generator.random() < bursts else 0.0
            common = wander + everybody * share * (dose in ("traffic", "occupied"))
            busy = longer.get("busy", 0.0) * (dose in ("control", "traffic", "occupied"))
            programs = {"job": longer.get(dose, 0.0) * share + busy}
            if not dose.endswith("_pages"):
                programs["control"] = 0.0
            if dose == "control":
                programs |= {"triad": 0.0, "chase": 0.0}
            elif dose == "huge_pages":
                programs["walk"] = 0.0
            elif dose in witnesses and level in (0.0, 100.0):
                programs[witnesses[dose]] = witness[dose]
            for program, effect in programs.items():
                skewed = noise * (float(generator.gamma(2.0)) - 2.0)
                cpu_s = 0.5 * float(np.exp(effect + common + slowed + skewed))
                event_s = cpu_s / 5 if program == "job" and start_s else np.nan
                if program == "job" and start_s:
                    cpu_s += start_s * float(generator.uniform(0.7, 1.5))
                used = {"traffic": _GB_S * share, "occupied": _OCCUPIED_GB_S}.get(dose, 0.0)
                rows.append(
                    {
                        "round": round_,
                        "position": position,
                        "program": program,
                        "dose": dose,
                        "level": level,
                        "cpu_s": cpu_s,
                        "wall_s": 1.1 * cpu_s,
                        "event_s": event_s,
                        "run_delay_s": 0.0,
                        "traffic_gb_s": used * float(generator.uniform(0.95, 1.0)),
                        "occupied_bytes": _CACHE_BYTES * share if dose == "occupied" else 0.0,
                        "output": "abc",
                        "start_ns": int(1e9 * now_s),
                        "ok": True,
                    }
                )
                now_s += cpu_s
    return pd.DataFrame(rows)


def recorded(
    seed: int, grown: Mapping[str, float] | None = None, dose: str = "traffic", **shape: Any
) -> pd.DataFrame:
    """The same trials, each of the job with its functions, as ``measure`` makes them.

    ``grown``: by which factor functions cost more at the largest level of a dose. What slows a
    trial down slows half of the functions more than the others; counts scatter more than Poisson's.
    """
    generator = np.random.default_rng([seed, 7])
    starts = samples(seed, **shape)
    job = (starts["program"] == "job").to_numpy()
    names, shares = np.array(list(SHARES)), np.array(list(SHARES.values()))
    sensitive = np.where(generator.random(len(names)) < 0.5, 1.3, 0.7)
    log_cost = np.log(starts["cpu_s"].to_numpy() / 0.5)[:, None] * sensitive + np.log(shares)
    log_cost += 0.01 * generator.standard_t(4, log_cost.shape)
    at = (starts["dose"] == dose) & (starts["level"] >= 100 * (dose in ("traffic", "occupied")))
    log_cost += np.outer(at, np.log([(grown or {}).get(str(name), 1.0) for name in names]))
    cost = 0.5 * np.exp(log_cost)
    cpu_s = starts["cpu_s"].where(~job, cost.sum(axis=1))
    starts = starts.assign(cpu_s=cpu_s, wall_s=1.1 * cpu_s)
    counts = generator.negative_binomial(cost / (PERIOD_NS / 1e9), 0.5)
    counts[~job] = 0
    row, place = counts.nonzero()
    functions = starts.iloc[row].reset_index(drop=True).assign(
        symbol=names[place], object="the program", event="cpu-clock",
        period=PERIOD_NS * counts[row, place], count=counts[row, place],
    )  # fmt: skip
    found: pd.DataFrame = pd.concat([functions, starts[~job]], ignore_index=True)
    return found
