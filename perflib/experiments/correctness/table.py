"""Samples judged: is a core's software right, what was wrong, and at most how often."""

from __future__ import annotations

import functools
import math
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from perflib.framework.samples import usable
from perflib.model.errors import UserError
from perflib.stats.counted import rate
from perflib.stats.interval import Interval

PER = 1e9  # results, in which rates are given
_ENOUGH_EXPECTED = 3.0  # wrong results that another state would have shown: e^-3 = 5 %
_RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
_PLAIN_BELOW = 10_000


@functools.cache
def checksums() -> Mapping[str, list[str]]:
    """Of each class what the first blocks have to give (tests/reference/correctness.py)."""
    text = Path(__file__).with_name("checksums.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def count_text(number: float) -> str:
    """A count for a reader.

    >>> count_text(3.12e9), count_text(1e6), count_text(512)
    ('3.1 × 10⁹', '10⁶', '512')
    """
    if number < _PLAIN_BELOW:
        return f"{number:.0f}"
    digits, _, power = f"{number:.1e}".partition("e")
    raised = f"10{str(int(power)).translate(_RAISED)}"
    return raised if digits == "1.0" else f"{digits} × {raised}"


def one_in(share: float) -> str:
    """``1 in ...``: the number behind it."""
    return count_text(1 / share) if share > 0 else "∞"


class CorrectnessTable:
    """The samples of a run, each with what is said of its software.

    Raises
    ------
    UserError
        More results are wrong than there are.
    """

    def __init__(self, samples: pd.DataFrame) -> None:
        rows = usable(samples).reset_index(drop=True)
        if (rows["wrong"] > rows["operations"]).any():
            msg = "the samples have more wrong results than operations"
            raise UserError(msg)
        for name in ("operations", "wrong"):
            rows[name] = rows[name].astype(np.float64)
        rows["software"] = _software(rows)
        rows["bad"] = (rows["wrong"] > 0) | (rows["software"] == "wrong")
        self.rows: pd.DataFrame = rows

    @property
    def cores(self) -> list[int]:
        """The cores that were visited."""
        return sorted(int(cpu) for cpu in self.rows["cpu"].unique())

    def pooled(self, by: list[str]) -> pd.DataFrame:
        """One row a group: counts, ``rate_per_1e9`` with its interval, ``bad`` samples."""
        sums = self.rows.groupby(by, sort=True, observed=True)[["operations", "wrong", "bad"]].sum()
        found: pd.DataFrame = sums.reset_index()
        rates = [
            rate(wrong, count)
            for wrong, count in zip(found["wrong"], found["operations"], strict=True)
        ]
        for place, end in enumerate(("", "_low", "_high")):
            found[f"rate_per_1e9{end}"] = [PER * one[place] for one in rates]
        return found

    def of_core(self, cpu: int) -> tuple[Interval, pd.DataFrame]:
        """Of all results of a core the rate (in ``PER``), and its bad samples in order."""
        mine = self.rows[self.rows["cpu"] == cpu]
        found = rate(float(mine["wrong"].sum()), float(mine["operations"].sum()))
        return Interval(*(PER * end for end in found)), mine[mine["bad"]]

    def only_state(self, cpu: int, name: str) -> tuple[str, bool]:
        """The one state in which a class is wrong (empty: several), and whether others rule it out.

        They do if, at the same rate, they would have shown three wrong results or more.
        """
        mine = self.rows[(self.rows["cpu"] == cpu) & (self.rows["class"] == name)]
        sums = mine.groupby("state", observed=True)[["operations", "wrong"]].sum()
        seen = sums[sums["wrong"] > 0]
        if len(seen) != 1:
            return "", False
        share = float(seen["wrong"].iloc[0] / seen["operations"].iloc[0])
        others = float(sums["operations"].sum() - seen["operations"].iloc[0])
        return str(seen.index[0]), share * others >= _ENOUGH_EXPECTED

    def wrong(self) -> pd.DataFrame:
        """Every bad sample."""
        bad = self.rows[self.rows["bad"]].reset_index(drop=True)
        texts = [_texts(row) for row in bad.to_dict("records")]
        names = ["round", "state", "cpu", "class", "operations", "wrong", "software"]
        bits = [" ".join(map(str, bits_of(*one))) for one in texts]
        return bad[names].assign(
            expected=[one[0] for one in texts], found=[one[1] for one in texts], bits=bits
        )


def _texts(row: Mapping[Any, Any]) -> tuple[str, str]:
    found = [row.get(name) for name in ("expected", "found")]
    expected, seen = (one if isinstance(one, str) else "" for one in found)
    return expected, seen


def bits_of(expected: str, found: str) -> list[int]:
    """Which bits differ, from the lowest; none where the texts are no numbers."""
    try:
        different = int(expected, 16) ^ int(found, 16)
    except ValueError:
        return []
    return [bit for bit in range(64) if different >> bit & 1]


def _software(rows: pd.DataFrame) -> list[str]:
    """``right``, ``wrong`` or ``disputed``: by the checksum of the table, or of most cores."""
    if "checksum" not in rows or "block" not in rows:
        return ["right"] * len(rows)
    known = rows[rows["checksum"].notna() & rows["block"].notna()]
    verdicts = pd.Series("right", index=rows.index, dtype=object)
    for (name, block), group in known.groupby(["class", "block"], observed=True):
        table = checksums().get(str(name), [])
        number = int(float(str(block)))
        if number < len(table):
            wanted: str | None = table[number]
        else:
            wanted = _majority(group)
        differs = group["checksum"] != wanted
        verdicts[group.index[differs]] = "disputed" if wanted is None else "wrong"
    return list(verdicts)


def _majority(group: pd.DataFrame) -> str | None:
    """What more than half of the cores say."""
    cores = group.groupby("checksum")["cpu"].nunique().sort_values(kind="stable")
    return str(cores.index[-1]) if 2 * cores.iloc[-1] > group["cpu"].nunique() else None


def weakest(rows: pd.DataFrame) -> pd.Series[Any]:
    """The class of which least is known."""
    place = rows["operations"].to_numpy().argmin()
    assert not math.isnan(float(rows["operations"].iloc[place]))
    return rows.iloc[place]
