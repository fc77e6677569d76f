"""The instructions of a function on two cores, or of two builds, with both shares of its samples.

A function may grow as a whole, because its core is slower. So its instructions are compared by
their *shares* of its samples: of each instruction the odds against all others, within rounds, as
`perflib.stats.excess` compares functions within an event. The instruction that stands out most is
taken out of what the others are compared with, or all would seem to have become cheaper.

The objects' files are read when this is called. Where one is gone, or is another build, the rows
are offsets; offsets of one build can be compared, those of two builds cannot.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats as distributions

from perflib.instruments.profile.alignment import Pair, align
from perflib.instruments.profile.annotate import Located, located
from perflib.instruments.profile.costs import CLOCKS
from perflib.model.errors import UserError
from perflib.stats.excess import excesses

Floats = NDArray[np.float64]

_CODE = ["offset", "address", "instruction"]
_SOURCE = ["source_file", "source_line", "source_text"]
_PRECISE = re.compile(r":[a-zA-Z]*p{2,3}")


@dataclass(frozen=True)
class SideBySide:
    """A function's instructions with the shares of two sides.

    Parameters
    ----------
    function, first, second
        What is compared: the second with the first.
    objects
        The file that the function is in, of each side.
    table
        One row an instruction, in the order of the code: ``offset``, ``address`` and
        ``instruction`` of each side (``_first``, ``_second``; empty where that side has no such
        instruction, or no file), ``samples_first``, ``samples_second``; ``percent_first`` and
        ``percent_second`` of the function's samples; ``difference``, second less first, in
        percentage points with ``difference_low`` and ``difference_high``: all intervals of the
        table cover at once. ``costlier_percent``: by how much the instruction grew, compared with
        those that did not stand out, with ``_low`` and ``_high``. ``p_holm`` is corrected for the
        number of instructions; NaN where there are too few samples to test. ``stands_out``; then
        ``source_file``, ``source_line``, ``source_text`` of the second side where it has any, else
        of the first.
    rounds
        Repetitions that both sides have; of one alone intervals come from counting.
    tested
        How many instructions were.
    comparable
        Whether it is known which instruction is which.
    skid
        ``clock``, ``counter`` or ``precise``: how far from the costly instruction samples are.
    confidence, claims
        What share of the intervals cover, and among how many claims this is one.
    alone_percent
        See `perflib.instruments.profile.comparison.Comparison`.
    remarks
        What could not be found, and should not be trusted, in sentences.
    """

    function: str
    first: str
    second: str
    objects: tuple[str, str]
    table: pd.DataFrame
    rounds: int
    tested: int
    comparable: bool
    skid: str
    confidence: float
    claims: int
    alone_percent: float
    remarks: tuple[str, ...]

    @property
    def counting_only(self) -> bool:
        """Is there one repetition only, so that intervals come from counting alone?"""
        return self.rounds == 1

    @property
    def open_points(self) -> float:
        """The largest difference of shares that stayed open for any other instruction; points."""
        rest = self.table[~self.table["stands_out"] & self.table["p_holm"].notna()]
        ends = rest[["difference_low", "difference_high"]].abs().to_numpy(np.float64)
        return float(ends.max()) if ends.size else math.inf

    def named(self) -> pd.DataFrame:
        """The rows that stand out, the one with the smallest p value first."""
        return self.table[self.table["stands_out"]].sort_values("p_holm", kind="stable")


def skid_of(event: str) -> str:
    """How far behind the costly instruction a sample of an event is; see ``SideBySide.skid``.

    >>> skid_of("cpu-clock:u"), skid_of("cycles:upp"), skid_of("cycles")
    ('clock', 'precise', 'counter')
    """
    if event.partition(":")[0] in CLOCKS:
        return "clock"
    return "precise" if _PRECISE.search(event) else "counter"


def side_by_side(
    samples: pd.DataFrame,
    first: str,
    second: str,
    function: str,
    object_name: str | None = None,
    *,
    builds: Sequence[Mapping[str, str]] = ({}, {}),
    confidence: float = 0.95,
    claims: int = 1,
    alone_percent: float = math.nan,
) -> SideBySide:
    """Which instructions of a function became costlier on the second side?

    Parameters
    ----------
    samples
        The table of samples of one event with a column ``configuration`` (the side) and, where the
        work was repeated, ``round``.
    first, second
        The configurations.
    function, object_name
        As ``annotate`` takes them.
    builds
        For each side the build ids of its objects when they were profiled.
    confidence
        What share of the intervals cover the truth, all of a table at once; an instruction is
        named below one minus it, over the number of ``claims``.
    claims, alone_percent
        See `SideBySide`.

    Raises
    ------
    UserError
        There is no such function on either side, or no repetition has it on both.

    Examples
    --------
    ``side_by_side(samples, "cpu0", "cpu8", "__sin_avx").named()``
    """
    of_side = samples["configuration"].astype(str).to_numpy()
    try:
        sides = [
            located(samples[of_side == name], function, object_name, builds=known)
            for name, known in zip((first, second), builds, strict=True)
        ]
    except UserError:
        located(samples[np.isin(of_side, (first, second))], function, object_name)  # a wrong name
        msg = f"only one of {first} and {second} has samples in {function!r}: nothing to compare"
        raise UserError(msg) from None
    objects = (sides[0].annotation.object, sides[1].annotation.object)
    pairs, comparable = _pairs(sides, _same_build(objects, builds))
    table = _both(sides, pairs)
    counts, rounds = _counts(sides, pairs)
    table, tested = _compared(
        table, counts, comparable, confidence, claims, fluctuates=not alone_percent > 0
    )
    remarks = _remarks(sides, (first, second))
    if not comparable:
        remarks.append(
            "The sides are two builds, or may be, and without both files nothing says which "
            "instruction of one is which of the other: nothing is compared."
        )
    return SideBySide(
        function=function,
        first=first,
        second=second,
        objects=objects,
        table=table,
        rounds=rounds,
        tested=tested,
        comparable=comparable,
        skid=skid_of(str(sides[1].samples["event"].iloc[0])),
        confidence=confidence,
        claims=claims,
        alone_percent=alone_percent,
        remarks=tuple(remarks),
    )


def _same_build(objects: tuple[str, str], builds: Sequence[Mapping[str, str]]) -> bool:
    """One file on both sides, and nothing says that it was exchanged between them."""
    ids = [known.get(name, "") for known, name in zip(builds, objects, strict=True)]
    return (ids[0] == ids[1] and bool(ids[0])) or (objects[0] == objects[1] and not all(ids))


# --- which instruction is which ------------------------------------------------------------------


def _pairs(sides: Sequence[Located], same: bool) -> tuple[list[Pair], bool]:
    """Rows of one that belong to rows of the other; whether that is known."""
    tables = [side.annotation.table for side in sides]
    code = [table["instruction"].notna().to_numpy() for table in tables]
    if all(known.any() for known in code):
        listed = [table.loc[known, _CODE] for table, known in zip(tables, code, strict=True)]
        same = listed[0].reset_index(drop=True).equals(listed[1].reset_index(drop=True))
        return (_by_offset(tables) if same else _aligned(tables, code)), True
    if same:
        return _by_offset(tables), True
    apart: list[Pair] = [(i, None) for i in range(len(tables[0]))]
    return [*apart, *((None, j) for j in range(len(tables[1])))], False


def _by_offset(tables: Sequence[pd.DataFrame]) -> list[Pair]:
    """One build: rows of one offset (and of one address, where two functions share a name)."""
    rows: dict[tuple[int, int, int], list[int | None]] = {}
    for side, table in enumerate(tables):
        starts = (table["address"] - table["offset"]).bfill().ffill().fillna(0)
        keys = zip(starts, table["offset"], table["address"].fillna(-1), strict=True)
        for row, (start, offset, address) in enumerate(keys):
            rows.setdefault((int(start), int(offset), int(address)), [None, None])[side] = row
    return [(pair[0], pair[1]) for _, pair in sorted(rows.items())]


def _aligned(tables: Sequence[pd.DataFrame], code: Sequence[NDArray[np.bool_]]) -> list[Pair]:
    """Two builds: by the instructions' texts; samples on no instruction stay by themselves."""
    rows = [np.flatnonzero(known) for known in code]
    texts = [
        [str(text) for text in table["instruction"].to_numpy()[known]]
        for table, known in zip(tables, code, strict=True)
    ]
    pairs: list[Pair] = [
        (None if i is None else int(rows[0][i]), None if j is None else int(rows[1][j]))
        for i, j in align(texts[0], texts[1])
    ]
    pairs += [(int(i), None) for i in np.flatnonzero(~code[0])]
    pairs += [(None, int(j)) for j in np.flatnonzero(~code[1])]
    return pairs


def _both(sides: Sequence[Located], pairs: Sequence[Pair]) -> pd.DataFrame:
    """The columns of both sides, one row a pair."""
    made: dict[str, Any] = {}
    taken = []
    for number, (side, name) in enumerate(zip(sides, ("first", "second"), strict=True)):
        places = np.array([-1 if pair[number] is None else pair[number] for pair in pairs])
        chosen = side.annotation.table.reset_index(drop=True).reindex(places)
        taken.append(chosen.reset_index(drop=True))
        for column in _CODE:
            made[f"{column}_{name}"] = taken[-1][column]
        made[f"offset_{name}"] = taken[-1]["offset"].astype("Int64")
        made[f"samples_{name}"] = taken[-1]["samples"].fillna(0).astype(np.int64)
        made[f"percent_{name}"] = taken[-1]["percent"].fillna(0.0)
    table = pd.DataFrame(made)
    has_source = taken[1]["source_file"].notna()
    for column in _SOURCE:
        table[column] = taken[1][column].where(has_source, taken[0][column])
    return table


# --- what differs --------------------------------------------------------------------------------


def _counts(sides: Sequence[Located], pairs: Sequence[Pair]) -> tuple[tuple[Floats, Floats], int]:
    """``[round, row]`` of each side, in the rounds that both have; how many those are."""
    trials = [
        side.samples["round"].to_numpy()
        if "round" in side.samples
        else np.zeros(len(side.samples), dtype=np.int64)
        for side in sides
    ]
    rounds = np.intersect1d(trials[0], trials[1])
    if not rounds.size:
        msg = "no repetition has samples of both in the function: nothing can be compared"
        raise UserError(msg)
    made = []
    for number, (side, trial) in enumerate(zip(sides, trials, strict=True)):
        row_of = np.full(len(side.annotation.table), -1)
        for row, pair in enumerate(pairs):
            if (at := pair[number]) is not None:
                row_of[at] = row
        counts = np.zeros((len(rounds), len(pairs)))
        kept = np.isin(trial, rounds)
        where = np.searchsorted(rounds, trial[kept])
        np.add.at(counts, (where, row_of[side.rows[kept]]), 1)
        made.append(counts)
    return (made[0], made[1]), len(rounds)


def _compared(
    table: pd.DataFrame,
    counts: tuple[Floats, Floats],
    comparable: bool,
    confidence: float,
    claims: int,
    *,
    fluctuates: bool,
) -> tuple[pd.DataFrame, int]:
    """The table with what differs, and how many of its rows were tested."""
    size = len(table)
    values = {
        name: np.full(size, np.nan)
        for name in (
            "difference", "difference_low", "difference_high", "costlier_percent",
            "costlier_percent_low", "costlier_percent_high", "p_holm",
        )
    }  # fmt: skip
    stands_out = np.zeros(size, dtype=np.bool_)
    placed = (table[["offset_first", "offset_second"]].fillna(-1).max(axis=1) >= 0).to_numpy(bool)
    met = (counts[0] + counts[1]).any(axis=0)
    used = np.flatnonzero(placed & met & comparable)
    first, second = counts[0][:, used], counts[1][:, used]
    both = first.any(axis=1) & second.any(axis=1)
    if not both.any():
        return _with(table, values, stands_out), 0
    first, second = first[both], second[both]
    found = excesses(first, second, (1 - confidence) / claims, fluctuates=fluctuates)
    never_first, never_second = first.sum(axis=0) == 0, second.sum(axis=0) == 0
    logs = (found.log_odds, *found.interval(confidence, together=True))
    with np.errstate(over="ignore"):  # of one sample in a few rounds any growth is possible
        for end, log in zip(("", "_low", "_high"), logs, strict=True):
            ratio = np.expm1(log)
            if end != "_low":
                ratio = np.where(never_first, np.inf, ratio)
            if end != "_high":
                ratio = np.where(never_second, -1.0, ratio)
            values[f"costlier_percent{end}"][used] = 100 * ratio
    values["p_holm"][used] = np.where(found.tested, found.p_holm, np.nan)
    stands_out[used[list(found.named)]] = True
    # Shares scatter by all that happens in a round, also by what slows the core for a while.
    plain = excesses(first, second, 0.0, fluctuates=False)
    whole = [side.sum() for side in (first, second)]
    shares = [side.sum(axis=0) / total for side, total in zip((first, second), whole, strict=True)]
    variance = sum(
        (share * (1 - share) + 1 / total) / total  # of no sample, too, something is open
        for share, total in zip(shares, whole, strict=True)
    )
    tested = int(found.tested.sum())
    tail = (1 - confidence) / 2 / max(1, tested)
    half = distributions.t.ppf(1 - tail, plain.df) * np.sqrt(
        np.maximum(plain.dispersion, 1.0) * variance
    )
    difference = shares[1] - shares[0]
    for name, side in (("difference", 0.0), ("difference_low", -1.0), ("difference_high", 1.0)):
        values[name][used] = 100 * (difference + side * half)
    return _with(table, values, stands_out), tested


def _with(
    table: pd.DataFrame, values: Mapping[str, Floats], stands_out: NDArray[np.bool_]
) -> pd.DataFrame:
    made = table.assign(**values, stands_out=stands_out)
    return made[[*(name for name in made if name not in _SOURCE), *_SOURCE]]


def _remarks(sides: Sequence[Located], names: tuple[str, str]) -> list[str]:
    """Remarks on both sides once, those on one with its name."""
    remarks_of = [side.annotation.remarks for side in sides]
    both = [remark for remark in remarks_of[0] if remark in remarks_of[1]]
    return both + [
        f"{name}: {remark}"
        for name, remarks in zip(names, remarks_of, strict=True)
        for remark in remarks
        if remark not in both
    ]
