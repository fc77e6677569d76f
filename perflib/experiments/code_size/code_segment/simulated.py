"""Simulated iTLB misses of the program at some sizes of its code, to compare with the times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from perflib.instruments.simulators.models import HASWELL_ITLB, TlbModel, itlb_of_this_machine
from perflib.instruments.simulators.qemu import qemu_counts

STEPS = 30_000  # that are simulated, or a few more
_WARM_UP = 20  # the program runs a 20th of its steps before it times them


def spread(sizes: Sequence[int], count: int) -> list[int]:
    """``count`` of the sizes, evenly over them, the smallest and the largest among them."""
    places = np.unique(np.linspace(0, len(sizes) - 1, min(count, len(sizes))).round().astype(int))
    return [sizes[place] for place in places]


def _counts(program: Path, pattern: str, n: int, steps: int, tlb: TlbModel) -> Mapping[str, int]:
    argv = [str(program), "--pattern", pattern, "--steps", str(steps), str(n)]
    table = qemu_counts(argv, tlb=tlb)
    return dict(zip(table["counter"], table["simulated_count"].astype(int), strict=True))


def simulated_misses(
    program: Path, pieces: Mapping[str, Sequence[int]], tlb: TlbModel | None = None
) -> dict[str, Any]:
    """Misses a step, by pattern and n, on 4 KiB pages.

    Two runs of each, one with twice the steps, of which a ring's are whole laps: their difference
    leaves the program's start out.

    Parameters
    ----------
    program
        The executable of the kernel.
    pieces
        The numbers of pieces of code, by pattern.
    tlb
        The TLB to simulate: this machine's, or a Haswell core's where it is not known.

    Returns
    -------
    ``model`` in words, and ``rows`` of ``pattern``, ``n``, ``misses_per_step`` (of the first level)
    and ``walks_per_step`` (of both).

    Raises
    ------
    UserError, MeasurementError
        As of ``qemu_counts``: no QEMU, or it failed.
    """
    model = tlb or itlb_of_this_machine() or HASWELL_ITLB
    rows = []
    for pattern, numbers in pieces.items():
        for n in numbers:
            lap = _WARM_UP * n if pattern == "chase" else _WARM_UP
            steps = -(-STEPS // lap) * lap
            once, twice = (_counts(program, pattern, n, k * steps, model) for k in (1, 2))
            run = steps + steps // _WARM_UP
            each = {name: (twice[name] - once[name]) / run for name in twice}
            walks = each.get("iTLB walks", each["iTLB misses"])
            row = {"misses_per_step": each["iTLB misses"], "walks_per_step": walks}
            rows.append({"pattern": pattern, "n": n, **row})
    return {"model": str(model), "rows": rows}
