"""Two builds function by function: the samples of both, in the same layouts, compared.

The statistics are those by which `event_profile` compares cores (`perflib.instruments.profile`):
here the build is in the place of the core.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import pandas as pd

from perflib.framework.samples import usable
from perflib.instruments.profile.builds import canonical, library
from perflib.instruments.profile.comparison import (
    Comparison,
    additional_time_table,
    compare_samples,
)
from perflib.instruments.profile.costs import of_cpu_time
from perflib.instruments.profile.findings import LEAST_ROUNDS
from perflib.model.errors import UserError

_MIN_ROUNDS = 6  # where there are fewer, each layout of a round counts as one
UNKNOWN_LINE = "[no line]"


class BuildProfiles:
    """A run's samples of both builds, by function, library and source line.

    ``facts``: what the builds' files say (`perflib.instruments.profile.builds.facts_of`).
    """

    def __init__(self, samples: pd.DataFrame, facts: Mapping[str, Any]) -> None:
        self.facts = facts
        rows = usable(samples)
        rows = rows[rows["symbol"].notna()]
        starts = rows.groupby(["round", "layout"])["build"].transform("nunique")
        rows = rows[starts == 2].reset_index(drop=True)  # of both, or of none
        rows["period"] = of_cpu_time(rows, ["round", "layout", "build"])
        if rows["round"].nunique() < _MIN_ROUNDS:
            rows["round"] = rows.groupby(["round", "layout"]).ngroup()
        else:
            rows["period"] /= rows.groupby("round")["layout"].transform("nunique")
        programs: Mapping[str, str] = facts.get("programs", {})
        objects = list(zip(rows["object"], rows["build"], strict=True))
        named = {one: library(str(one[0]), programs.get(one[1], "")) for one in set(objects)}
        renamed: dict[str, str] = {}
        self._compared_as = renamed  # an inlined function: as what it was inlined into
        for change in self.changes:
            name, first, second = change["function"], change["first"], change["second"]
            if change["kind"] in ("renamed", "split"):
                renamed[second] = name
            elif change["kind"] == "inlined":
                renamed[name] = canonical(second if name == first else first)
        self.samples = rows.assign(
            configuration=rows["build"],
            object=[named[one] for one in objects],
            line=self._lines(rows),
            symbol=[renamed.get(str(name), canonical(str(name))) for name in rows["symbol"]],
            stack=[
                ";".join(renamed.get(one, canonical(one)) for one in str(stack).split(";"))
                for stack in rows["stack"]
            ],
        ).astype({"stack": "category", "object": "category"})

    @property
    def changes(self) -> list[dict[str, str]]:
        """What was renamed, moved, split, inlined, or is in one build alone."""
        found: list[dict[str, str]] = self.facts.get("changes", [])
        return found

    def _lines(self, rows: pd.DataFrame) -> list[str]:
        """The source line of each row."""
        known, made = self.facts.get("lines", {}), []
        for build, name, offset in rows[["build", "symbol", "offset"]].itertuples(index=False):
            steps = known.get(build, {}).get(str(name), [])
            at = bisect_right([step[0] for step in steps], offset) - 1
            made.append(str(steps[at][1]) if at >= 0 else UNKNOWN_LINE)
        return made

    def compared(self, by: str) -> Comparison | None:
        """Both builds by ``symbol``, ``object`` or ``line``; None: no round has both."""
        samples = self.samples.assign(symbol=self.samples[by].astype(str))
        if by != "symbol":  # names of their own: a library has no functions here
            samples["object"] = samples["symbol"]
        try:
            return compare_samples(samples, "A", "B")
        except UserError:
            return None

    @cached_property
    def functions(self) -> Comparison | None:
        """Both builds by function."""
        return self.compared("symbol")

    def by_function(self) -> pd.DataFrame:
        """The comparison by function, with its library, what became of it, and its code."""
        counts = self.samples.groupby(["symbol", "object"], observed=True)["count"].sum()
        place = {str(name): str(one) for name, one in counts.sort_values(kind="stable").index}
        became = {change["function"]: in_words(change) for change in self.changes}
        code = self.facts.get("functions", {})
        table = _table(self.functions)
        for key, of in (("library", place), ("became", became), ("code", code)):
            table[key] = [of.get(name, "") for name in table["function"]]
        more = self._more_instructions()
        table["instructions_percent"] = [more.get(name, math.nan) for name in table["function"]]
        return table

    def _more_instructions(self) -> dict[str, float]:
        """How many more B executes, in percent, of each function that was simulated in both."""
        executed: dict[str, Counter[str]] = {build: Counter() for build in "AB"}
        for build, counts in self.facts.get("instructions", {}).get("counts", {}).items():
            for name, count in counts.items():
                executed[build][self._compared_as.get(name, name)] += count
        b = executed["B"]
        return {name: 100 * (b[name] / one - 1) for name, one in executed["A"].items() if b[name]}

    def tables(self) -> dict[str, Callable[[], pd.DataFrame]]:
        """The tables of two builds' functions."""
        return {
            "functions": self.by_function,
            "libraries": lambda: _table(self.compared("object")),
            "lines": lambda: _table(self.compared("line")).query("function != @UNKNOWN_LINE"),
        }

    def open_percent(self) -> float:
        """The largest excess of a function that could have stayed unseen, as for an event."""
        found = self.functions
        if found is None or found.rounds < LEAST_ROUNDS:
            return math.inf
        return found.open_percent


def _table(compared: Comparison | None) -> pd.DataFrame:
    return pd.DataFrame({"function": []}) if compared is None else additional_time_table(compared)


def in_words(change: Mapping[str, str]) -> str:
    """What became of a function."""
    first, second, name = change["first"], change["second"], change["function"]
    words = {
        "only": f"is in {'A' if first else 'B'} only",
        "inlined": f"is inlined into {f'{second} in B' if name == first else f'{first} in A'}",
        "renamed": f"is named {second} in B",
        "split": f"is {first} in A and {second} in B",
        "moved": f"moved from {first} to {second}",
    }
    return words[change["kind"]]
