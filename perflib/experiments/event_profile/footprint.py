"""How much code an event runs through: the cache lines of code that its samples fall on.

A build may be slow because it has each function many times over. Then no function stands out, as
copies count as one; but the samples fall on many more lines of code. A line is known by its place
in its function, wherever the program was loaded. The kernel's lines are left out: interrupts that
one core serves are none of the event's code.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from perflib.experiments.event_profile.claims import FOOTPRINT
from perflib.model.finding import Finding
from perflib.stats.decide import Reason, Witness
from perflib.stats.richness import Richness, more_distinct

Ints = NDArray[np.int64]

MORE_PERCENT = 25.0  # so much more code is of interest: a quarter, far beyond two equal builds'
LINE_BYTES = 64
_MIN_ROUNDS = 5  # below, the jackknife's interval is hardly known
_MIN_SAMPLES = 200  # of each side
_MIN_KNOWN_SHARE = 0.8  # share of the samples whose place in the code is known
# With more of the second's samples on lines not met before, half as much code again may stay
# unseen. How many of the first's are is of no matter: of it, too, more would be met.
_MAX_NEW_SHARE = 0.2
_MAX_BATCHES = 24
_NO_PROGRAM = r"\[(?!unknown\]|JIT\])"  # [kernel.kallsyms], [nf_tables], [vdso]


def footprint(samples: pd.DataFrame, first: str, second: str, core: str = "") -> Finding | None:
    """Does the event run through more code on the second configuration than on the first?

    Parameters
    ----------
    samples
        What ``profiled`` makes: with ``raw_symbol``, the name before copies are one.
    first, second
        Configurations.
    core
        Names the core where several are compared with one.

    Returns
    -------
    The finding; ``None`` where no sample's place in its function is known.
    """
    if "offset" not in samples:
        return None
    kernel = samples["object"].astype(str).str.match(_NO_PROGRAM)
    samples = samples[samples["configuration"].isin([first, second]) & ~kernel]
    known = samples["offset"] >= 0
    if not known.any():
        return None
    share = [
        float(known[samples["configuration"] == name].mean())  # NaN where there is no sample
        for name in (first, second)
    ]
    counts, rounds = _counts(samples[known], first, second)
    found = more_distinct(*counts)
    size_bytes = [LINE_BYTES * lines for lines in found.distinct]
    return FOOTPRINT.decided(
        found.more,
        MORE_PERCENT,
        about={"core": core, "first": first, "second": second},
        prevented=_prevented(found, rounds, share),
        to_refute=[
            Witness(found.new[1] <= _MAX_NEW_SHARE, Reason("unseen", {"new": 100 * found.new[1]}))
        ],
        remarks=[Reason("seen", {"samples": found.samples, "sizes": size_bytes})]
        if found.samples
        else [],
        evidence={
            "lines": list(found.distinct),
            "code_bytes": size_bytes,
            "samples": found.samples,
            "new_percent": [100 * new for new in found.new],
            "known_percent": [100 * part for part in share],
            "rounds": rounds,
        },
    )


def _counts(samples: pd.DataFrame, first: str, second: str) -> tuple[tuple[Ints, Ints], int]:
    """Of both, ``[batch, line]`` the number of samples; and how many rounds have both.

    The batches are successive rounds; what only one side has of a round is left out.
    """
    sides = [samples["configuration"] == name for name in (first, second)]
    of_each = [samples.loc[side, "round"].to_numpy() for side in sides]
    rounds = np.intersect1d(of_each[0], of_each[1])
    here = samples["round"].isin(rounds)
    samples = samples[here]
    keys = [samples["object"], samples["raw_symbol"], samples["offset"] // LINE_BYTES]
    lines = samples.groupby(keys, observed=True).ngroup().to_numpy(np.int64)
    place = np.searchsorted(rounds, samples["round"].to_numpy())
    batches = min(len(rounds), _MAX_BATCHES)
    kinds = int(lines.max(initial=-1)) + 1
    cell = place * batches // max(1, len(rounds)) * kinds + lines
    one, other = (
        np.bincount(cell[side[here].to_numpy()], minlength=batches * kinds).reshape(batches, kinds)
        for side in sides
    )
    return (one, other), len(rounds)


def _prevented(found: Richness, rounds: int, known: list[float]) -> Reason | None:
    """Why nothing follows from these samples."""
    if not min(known) >= _MIN_KNOWN_SHARE:
        percent, least = 100 * min(known), 100 * _MIN_KNOWN_SHARE
        return Reason("places_unknown", {"known": percent, "least": least})
    if rounds < _MIN_ROUNDS:
        return Reason("too_few", {"rounds": rounds, "least": _MIN_ROUNDS})
    if found.samples < _MIN_SAMPLES:
        return Reason("too_few_samples", {"samples": found.samples, "least": _MIN_SAMPLES})
    return None
