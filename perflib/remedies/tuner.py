"""The best offset for a function, found by measuring and then measured again."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from perflib.experiments.aliasing.addresses import PERIOD_BYTES
from perflib.experiments.aliasing.offsets.arguments import check_arrays, check_offsets
from perflib.experiments.aliasing.offsets.source import CFunction
from perflib.experiments.aliasing.offsets.sweep import OffsetSweep, sweep_offsets
from perflib.experiments.aliasing.offsets.table import OffsetTable
from perflib.model.errors import MeasurementError, UserError
from perflib.remedies.arrays import zeros_at
from perflib.stats.decide import Verdict, decide
from perflib.stats.interval import Interval

_PLAIN_OFFSET = 0  # as of large allocations: both arrays at a page


@dataclass(frozen=True)
class BestOffset:
    """What tuning found.

    Parameters
    ----------
    search
        The sweep over all offsets, which chose one.
    check
        Samples at offset 0 and at that one alone, taken afterwards: the choice cannot flatter them.
    candidate_bytes
        The offset that was chosen.
    threshold_percent
        How much time it must save to be called better.
    move
        Which argument moves.
    """

    search: OffsetSweep
    check: OffsetSweep
    candidate_bytes: int
    threshold_percent: float
    move: int | None = None

    @property
    def gain(self) -> Interval:
        """How much less time calls take at the chosen offset than at 0, in percent of that at 0."""
        longer = self.check.table.difference(self.candidate_bytes, _PLAIN_OFFSET)
        return Interval(-longer.effect, -longer.high, -longer.low)

    @property
    def verdict(self) -> Verdict:
        """On "the chosen offset saves more than ``threshold_percent``"."""
        return decide(self.gain, self.threshold_percent).verdict

    @property
    def offset_bytes(self) -> int:
        """The offset to use: the chosen one where it is shown to be better, otherwise 0."""
        return self.candidate_bytes if self.verdict == "supported" else _PLAIN_OFFSET

    def __str__(self) -> str:
        gain, where = self.gain, f"{self.candidate_bytes} bytes"
        saved = (
            f"saves {gain.effect:.1f} % [{gain.low:.1f}, {gain.high:.1f}] of a call's time at "
            "offset 0"
        )
        if self.verdict == "supported":
            return f"{self.search.name}: an offset of {where} is better: it {saved}."
        best = f"The fastest of {len(self.search.table.offsets) - 1} others, {where}, {saved}"
        if self.verdict == "refuted":
            return (
                f"{self.search.name}: no offset is better by {self.threshold_percent:g} % or more. "
                f"{best}."
            )
        return (
            f"{self.search.name}: no offset is shown to be better. {best}, and "
            f"{self.threshold_percent:g} % is not outside that: a larger budget_s narrows it."
        )

    __repr__ = __str__

    def arrays(self, *arguments: Any) -> tuple[Any, ...]:
        """Arguments for the function with copies of the arrays, placed at ``offset_bytes``.

        The array that moves begins at the offset above a page, each other at a page: as they did
        where they were measured. What is no array is passed on. Each copy has less than 4096 bytes
        more than it needs.

        Raises
        ------
        UserError
            As of ``best_offset``: arrays that are empty, overlap ...
        """
        _, moves = check_arrays(arguments, self.move)
        placed: list[Any] = list(arguments)
        for number, array in enumerate(arguments):
            if isinstance(array, np.ndarray):
                by_columns = array.flags.f_contiguous and not array.flags.c_contiguous
                rows = array.T if by_columns else array
                copy = zeros_at(self.offset_bytes if number == moves else 0, rows.shape, rows.dtype)
                copy[...] = rows
                placed[number] = copy.T if by_columns else copy
        return tuple(placed)


def best_offset(
    function: Callable[..., Any] | str | CFunction,
    *arguments: Any,
    move: int | None = None,
    offsets: Iterable[int] | None = None,
    budget_s: float = 20.0,
    threshold_percent: float = 1.0,
    **settings: Any,
) -> BestOffset:
    """Find the offset of the written array at which a function is fastest, if there is one.

    A sweep over all offsets chooses the one with the shortest calls, offset 0 aside; the fastest of
    many looks faster than it is. So a second sweep, of offset 0 and the chosen one alone, says how
    much it gains. Better means: the whole 95 % interval of that gain is above
    ``threshold_percent``.

    Parameters
    ----------
    function, arguments, move
        As for ``sweep_offsets``. It runs in another process, with copies.
    offsets
        In bytes, below 4096, since a remedy moves an array within a page; 0 is always among them.
        By default just above 0 and in the middle of the page, at several places in a cache line.
    budget_s
        The time for both sweeps: half each, at most.
    threshold_percent
        How much time must be saved for an offset to be called better.
    settings
        Passed on to ``sweep_offsets``: ``precision_percent``, ``sample_ms``, ``cpu`` ...

    Returns
    -------
    A record that prints what was found, with ``offset_bytes`` (0 where none is shown to be better),
    ``gain``, ``verdict``, both sweeps, and ``arrays(...)`` to place your arrays so.

    Raises
    ------
    UserError, MeasurementError
        As of ``sweep_offsets``; an offset of a page or more, or none but 0.

    Examples
    --------
    >>> a, out = np.ones(1 << 16, np.float32), np.zeros(1 << 16, np.float32)
    >>> found = best_offset(np.copyto, out, a, move=0)  # doctest: +SKIP
    >>> out, a = found.arrays(out, a)  # doctest: +SKIP
    """
    _, moves = check_arrays(arguments, move)
    wanted = None if offsets is None else [_PLAIN_OFFSET, *offsets]
    places = check_offsets(wanted, arguments[moves])
    if wanted is None:
        places = [offset for offset in places if offset < PERIOD_BYTES]
    if places[-1] >= PERIOD_BYTES:
        msg = (
            f"an array is moved within a page, from 0 to {PERIOD_BYTES - 1} bytes, not by "
            f"{places[-1]}"
        )
        raise UserError(msg)
    common = {"move": move, "threshold_percent": threshold_percent, **settings}
    common["budget_s"] = budget_s / 2
    search = sweep_offsets(function, *arguments, offsets=places, **common)
    candidate = _fastest_beside_0(search.table)
    check = sweep_offsets(function, *arguments, offsets=[_PLAIN_OFFSET, candidate], **common)
    return BestOffset(search, check, candidate, threshold_percent, move)


def _fastest_beside_0(table: OffsetTable) -> int:
    """Of the offsets but 0, the one with the shortest calls."""
    curve = table.curve()
    others = curve[curve["offset_bytes"] != _PLAIN_OFFSET]
    if others.empty:
        msg = "no sample is usable but those at offset 0: there is nothing to choose from"
        raise MeasurementError(msg)
    return int(others["offset_bytes"].to_numpy()[others["percent"].to_numpy().argmin()])
