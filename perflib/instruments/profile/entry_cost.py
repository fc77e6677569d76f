"""Do a function's first instructions hold more of its samples than an even spread would give?

Guerri et al. 2015 found "an unexpectedly large number of cycles" on the initial instructions of
most of KV's costly functions, and suspected instruction fetch. Their number is compared here with
what an even spread over the function's instructions gives, and with a *control* window: as many
instructions at a random place elsewhere in the same function. Loops make any code uneven: an entry
is odd only if it is costlier than such a place is.

Where samples come from a clock, as in most virtual machines, the address recorded is where the
interrupt was taken: at or after the instruction that took the time (skid), and behind code in
which interrupts are off. Costs near a function's boundary may then belong to its caller.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats as distributions

from perflib.model.errors import UserError
from perflib.stats.counted import clopper_pearson
from perflib.stats.interval import Interval
from perflib.stats.intervals import holm

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Code = Mapping[str, "int | Sequence[int] | Ints"]

_WITHIN = 0.99  # of its samples are within a function whose length is not known
_MIN_PLACES = 5  # in a function, to estimate its length by
_MAX_WINDOW_SHARE = 0.5  # a window of more of the function than this is no entry


@dataclass(frozen=True)
class EntryCost:
    """How the samples of functions spread over their first instructions.

    Parameters
    ----------
    table
        One row a function, the most samples first: ``function``, ``samples``, ``at_entry`` (of
        them in the window), ``share_percent`` with ``_low`` and ``_high`` (Clopper and Pearson),
        ``even_percent`` (what an even spread gives), ``ratio`` of the two with ``_low`` and
        ``_high``, ``p_holm`` (one-sided, that the ratio is ``times`` or less), ``verdict``;
        ``control_ratio``, ``control_p_holm`` and ``control_verdict`` of the control window;
        ``even_by``: an even spread over ``instructions``, over ``bytes``, or over the bytes up to
        the ``largest offset seen`` (no size was given, or it does not fit).
    overall, control
        The ratio over all functions of the table, of the entry and of the control window. Its
        interval covers what other functions of this kind would give: from their scatter.
    instructions, window_bytes
        What counts as entry; bytes where the instructions are not known.
    times, confidence
        From which ratio on an entry is costly; what share of the intervals cover the truth.
    without_offset, too_few, too_short
        Samples left out: their function or their offset in it is not known; their functions have
        too few of them; the window is most of the function.
    clock
        Are the samples a clock's, so that they skid?
    """

    table: pd.DataFrame
    overall: Interval
    control: Interval
    instructions: int
    window_bytes: int
    times: float
    confidence: float
    without_offset: int
    too_few: int
    too_short: int
    clock: bool


def entry_cost(
    samples: pd.DataFrame,
    code: Code | None = None,
    *,
    instructions: int = 4,
    window_bytes: int = 16,
    least_samples: int = 50,
    times: float = 1.5,
    confidence: float = 0.95,
    seed: int = 0,
) -> EntryCost:
    """Compare the samples on functions' first instructions with an even spread.

    Parameters
    ----------
    samples
        The table of samples; ``symbol`` and ``offset`` (bytes into the function, -1: unknown) are
        used, and ``event`` to recognise a clock.
    code
        For each function the offsets of its instructions in bytes, ascending from 0, or its size in
        bytes. Of a function that is not in it the largest offset seen is taken for its end, one
        sample in a hundred aside: too short rather than too long, which makes the even share too
        large and the ratio too small.
    instructions
        The window, where the instructions are known.
    window_bytes
        The window, where they are not.
    least_samples
        Functions with fewer are left out.
    times
        An entry is costly when it holds more than so many times its even share.
    confidence
        What share of the intervals cover the truth.
    seed
        Of the control windows' places.

    Returns
    -------
    The table, and the ratios over all functions.

    Raises
    ------
    UserError
        No sample has an offset, or no function has enough samples; an unusable ``code``.

    Examples
    --------
    >>> even = pd.DataFrame({"symbol": "f", "offset": list(range(0, 400, 4)) * 5})
    >>> found = entry_cost(even, {"f": range(0, 400, 4)})
    >>> float(found.table["ratio"][0]), found.table["verdict"][0]
    (1.0, 'inconclusive')
    """
    for name in ("symbol", "offset"):
        if name not in samples:
            msg = f"the table lacks the column {name!r}; it has: {', '.join(map(str, samples))}"
            raise UserError(msg)
    if instructions < 1 or window_bytes < 1:
        msg = "the window at the entry must hold one instruction, or one byte, or more"
        raise UserError(msg)
    offsets = samples["offset"].to_numpy(np.int64)
    known = (offsets >= 0) & (samples["symbol"] != "[unknown]").to_numpy(dtype=bool)
    if not (offsets > 0).any():
        # Text made without symbol offsets may be read as offset 0 throughout.
        msg = (
            f"none of the {len(samples)} samples has an offset in its function: make the text with "
            "'perf script -F +symoff', for programs with symbols"
        )
        raise UserError(msg)
    named = samples.loc[known, ["symbol", "offset"]]
    generator = np.random.default_rng(seed)
    rows: list[dict[str, Any]] = []
    too_few = too_short = 0
    for symbol, group in named.groupby("symbol", sort=True, observed=True):
        if len(group) < least_samples:
            too_few += len(group)
            continue
        places = group["offset"].to_numpy(np.int64)
        layout = _layout(str(symbol), places, (code or {}).get(str(symbol)))
        width = instructions if layout.even_by == "instructions" else window_bytes
        even = width / layout.slots
        if even > _MAX_WINDOW_SHARE:
            too_short += len(group)
            continue
        start = int(generator.integers(width, layout.slots - width + 1))
        row: dict[str, Any] = {"function": symbol, "samples": len(group), "even": even}
        row["at_entry"] = int((layout.slot_of_sample < width).sum())
        in_control = (layout.slot_of_sample >= start) & (layout.slot_of_sample < start + width)
        row |= {"at_control": int(in_control.sum()), "even_by": layout.even_by}
        rows.append(row)
    if not rows:
        msg = (
            f"no function can be judged: {too_few} samples are of functions with fewer than "
            f"{least_samples}, {too_short} of functions that are hardly longer than the window"
        )
        raise UserError(msg)
    table = _judged(pd.DataFrame(rows), times, confidence)
    clock = "event" in samples and samples["event"].astype(str).str.contains("clock").any()
    return EntryCost(
        table=table,
        overall=_pooled(table["at_entry"], table["samples"], table["even_percent"], confidence),
        control=_pooled(table["at_control"], table["samples"], table["even_percent"], confidence),
        instructions=instructions,
        window_bytes=window_bytes,
        times=times,
        confidence=confidence,
        without_offset=int((~known).sum()),
        too_few=too_few,
        too_short=too_short,
        clock=bool(clock),
    )


class _Layout(NamedTuple):
    """A function cut into equal slots, instructions or bytes, and the slot of each sample."""

    slots: int
    slot_of_sample: Ints
    even_by: str


def _layout(function: str, places: Ints, given: int | Sequence[int] | Ints | None) -> _Layout:
    last = int(places.max())
    if given is None:
        return _as_seen(places)
    if isinstance(given, int | np.integer):
        if given <= 0:
            msg = f"the size of {function!r} must be positive; it is {given} bytes"
            raise UserError(msg)
        if last >= given:
            return _as_seen(places)
        return _Layout(int(given), places, "bytes")
    starts = np.asarray(given, dtype=np.int64)
    if starts.ndim != 1 or not starts.size or starts[0] != 0 or (np.diff(starts) <= 0).any():
        msg = f"the instruction offsets of {function!r} must ascend from 0"
        raise UserError(msg)
    if last >= starts[-1] + 16:  # no instruction is longer than 15 bytes
        return _as_seen(places)
    slots = np.searchsorted(starts, places, side="right") - 1
    return _Layout(starts.size, slots.astype(np.int64), "instructions")


def _as_seen(places: Ints) -> _Layout:
    """A function as long as its samples say, one in a hundred of which may be far off.

    Samples on few places determine no length: it then counts as one slot, too short to judge.
    """
    last = int(np.quantile(places, _WITHIN, method="higher"))
    if np.unique(places).size < _MIN_PLACES:
        last = 0
    return _Layout(last + 1, np.minimum(places, last), "largest offset seen")


def _judged(table: pd.DataFrame, times: float, confidence: float) -> pd.DataFrame:
    """The rows with shares, ratios, p values and verdicts."""
    number, even = table["samples"].to_numpy(), table.pop("even").to_numpy(np.float64)
    table["even_percent"] = 100 * even
    for count, prefix in (("at_entry", ""), ("at_control", "control_")):
        hits = table[count].to_numpy()
        low, high = clopper_pearson(hits, number, confidence)
        if not prefix:
            table["share_percent"] = 100 * hits / number
            table["share_percent_low"], table["share_percent_high"] = 100 * low, 100 * high
            table["ratio_low"], table["ratio_high"] = low / even, high / even
        table[f"{prefix}ratio"] = hits / number / even
        limit = np.minimum(times * even, 1.0)
        p_holm = holm(np.asarray(distributions.binom.sf(hits - 1, number, limit)))
        table[f"{prefix}p_holm"] = p_holm
        table[f"{prefix}verdict"] = np.where(
            p_holm < 1 - confidence,
            "supported",
            np.where(high / even < times, "refuted", "inconclusive"),
        )
    return table.sort_values("samples", ascending=False, kind="stable", ignore_index=True)


def _pooled(
    hits: pd.Series[int], number: pd.Series[int], even_percent: pd.Series[float], confidence: float
) -> Interval:
    """All functions' samples in their windows over those that an even spread would put there.

    Its error is the larger of two: by counting (a sum of binomials), and by the functions' scatter
    about the common ratio, with Student's t on as many functions as weigh alike.
    """
    seen, expected = hits.to_numpy(np.float64), (number * even_percent / 100).to_numpy(np.float64)
    whole = float(expected.sum())
    ratio = float(seen.sum()) / whole
    share = np.clip((seen + 0.5) / (number.to_numpy() + 1), 0, 1)
    counting = math.sqrt(float((number.to_numpy() * share * (1 - share)).sum())) / whole
    half_width = float(distributions.norm.ppf(0.5 + confidence / 2)) * counting
    alike = whole**2 / float((expected**2).sum())
    if alike >= 2:
        scatter = float(((seen - ratio * expected) ** 2).sum()) * alike / (alike - 1)
        quantile = float(distributions.t.ppf(0.5 + confidence / 2, alike - 1))
        half_width = max(half_width, quantile * math.sqrt(scatter) / whole)
    return Interval(ratio, max(0.0, ratio - half_width), ratio + half_width)
