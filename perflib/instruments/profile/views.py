"""Views of a table of samples: flat profile, call trees, callers and callees.

Every view works on the distinct stacks, of which a million samples have some thousands, and takes
the frames' names as they stand in the column ``stack``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd

from perflib.model.errors import UserError, choose

Weight = Literal["samples", "period"]
"""What is added up: the number of samples, or their periods (one event's own unit)."""

NO_CALLER = "[no caller]"
ITSELF = "[itself]"
# kernels.copies gives a copied function's names four digits, and five from the 10,000th copy on.
COPY = r"_\d{4,5}(?=;|$)"


class Node:
    """A place in a call tree: a function as it was reached along one path.

    ``total`` counts the samples of the function and of all below it, ``self`` those that end the
    path: the function's own (top-down), or those without a further caller (bottom-up). ``below``
    has the next nodes by function. The root stands for all samples.
    """

    __slots__ = ("below", "function", "self", "total")

    def __init__(self, function: str) -> None:
        self.function = function
        self.total = 0
        self.self = 0
        self.below: dict[str, Node] = {}

    def walk(self, minimum_percent: float = 0.0) -> Iterator[tuple[int, Node]]:
        """Depth and node, parents before children, the heaviest first.

        What has less than ``minimum_percent`` of this node's samples is left out with all below.
        """
        least = self.total * minimum_percent / 100
        waiting = [(0, self)]
        while waiting:
            depth, node = waiting.pop()
            yield depth, node
            below = [child for child in node.below.values() if child.total >= least]
            below.sort(key=lambda child: (child.total, child.function), reverse=True)
            waiting.extend((depth + 1, child) for child in reversed(below))

    def frame(self, minimum_percent: float = 0.0) -> pd.DataFrame:
        """The tree as a table, one row a node, in the order of ``walk``.

        Columns: depth (0 is this node), parent (the parent's row, -1 for none), function,
        total, total_percent, self, self_percent.
        """
        rows = []
        last = [-1]
        for row, (depth, node) in enumerate(self.walk(minimum_percent)):
            del last[depth + 1 :]
            rows.append((depth, last[depth], node.function, node.total, node.self))
            last.append(row)
        made = pd.DataFrame(rows, columns=["depth", "parent", "function", "total", "self"])
        for column in ("total", "self"):
            place = made.columns.get_loc(column)
            assert isinstance(place, int)
            made.insert(place + 1, f"{column}_percent", _percent(made[column], self.total))
        return made

    def text(self, minimum_percent: float = 0.5) -> str:
        """The tree for a terminal: percent of all, percent of its own, function, indented.

        A line at the end says how many nodes of less than ``minimum_percent`` were left out.
        """
        whole = max(self.total, 1)
        lines = [" total    self  function"]
        for depth, node in self.walk(minimum_percent):
            shares = f"{100 * node.total / whole:5.1f} % {100 * node.self / whole:5.1f} %"
            lines.append(f"{shares}  {'  ' * depth}{node.function}")
        left_out = sum(1 for _ in self.walk()) - (len(lines) - 1)
        if left_out:
            nodes = "1 node" if left_out == 1 else f"{left_out} nodes"
            lines.append(f"({nodes} of less than {minimum_percent:g} % left out)")
        return "\n".join(lines)


class _Stack(NamedTuple):
    frames: list[str]
    weight: int


def weights(samples: pd.DataFrame, weight: Weight = "samples") -> np.ndarray:
    """What each sample counts: one, or its period.

    Raises
    ------
    UserError
        Periods are requested where a sample has none, or where several events, and with them
        several units, would be added up.
    """
    if weight == "samples":
        return np.ones(len(samples), dtype=np.int64)
    if weight != "period":
        raise UserError(choose("weight", str(weight), ("samples", "period")))
    periods = samples["period"].to_numpy()
    if (periods < 0).any():
        msg = (
            f"{int((periods < 0).sum())} of {len(samples)} samples have no period: count samples "
            "instead, or print periods with 'perf script -F +period'"
        )
        raise UserError(msg)
    events = [str(event) for event in samples["event"].unique()]
    if len(events) > 1:
        msg = f"periods of several events cannot be added up: choose one of {', '.join(events)}"
        raise UserError(msg)
    return periods


def _by_code(column: pd.Series, values: np.ndarray) -> np.ndarray:
    """The sum of ``values`` for each category of ``column``."""
    sums = np.zeros(len(column.cat.categories), dtype=np.int64)
    np.add.at(sums, column.cat.codes.to_numpy(), values)
    return sums


def _stacks(samples: pd.DataFrame, weight: Weight) -> list[_Stack]:
    sums = _by_code(samples["stack"], weights(samples, weight))
    categories = samples["stack"].cat.categories
    used = np.flatnonzero(sums)
    return [
        _Stack(stack.split(";"), int(total))
        for stack, total in zip(categories[used], sums[used], strict=True)
    ]


def _percent(part: pd.Series, whole: float) -> pd.Series:
    return 100.0 * part / whole if whole else part * 0.0


def _recoded(column: pd.Series, renamed: list[str]) -> pd.Series:
    """A categorical column whose categories are renamed, several of them perhaps to one name."""
    codes, names = pd.factorize(np.asarray(renamed, dtype=object))
    old = column.cat.codes.to_numpy()
    new = np.where(old >= 0, np.append(codes, -1)[old], -1)
    made = pd.Categorical.from_codes(new, pd.Index(names, dtype=str))
    return pd.Series(made, index=column.index, name=column.name)


def leaves(samples: pd.DataFrame) -> pd.Series:
    """The function that each sample was in, named as in the stacks: a categorical column."""
    stack = samples["stack"]
    return _recoded(stack, [name.rpartition(";")[2] for name in stack.cat.categories]).rename(
        "function"
    )


def object_of(samples: pd.DataFrame) -> dict[str, str]:
    """The object of each function that a sample was in; of several, the one with most samples.

    A stack names no objects, so a function that only ever calls others is not there.
    """
    function, objects = leaves(samples), samples["object"]
    if samples.empty:
        return {}
    width = len(objects.cat.categories)
    pair = function.cat.codes.to_numpy().astype(np.int64) * width + objects.cat.codes.to_numpy()
    pairs, counts = np.unique(pair, return_counts=True)
    # The heaviest comes last, so that it stays in the dictionary.
    return {
        str(function.cat.categories[code // width]): str(objects.cat.categories[code % width])
        for code in pairs[np.argsort(counts, kind="stable")]
    }


def select(
    samples: pd.DataFrame,
    *,
    event: str | None = None,
    thread: int | str | None = None,
    cpu: int | None = None,
    start_ns: int | None = None,
    end_ns: int | None = None,
) -> pd.DataFrame:
    """The samples of one event, one thread (its tid, or its name), one CPU, one span of time.

    Times are in ns on the profile's own clock; ``start_ns`` is included, ``end_ns`` is not.

    Raises
    ------
    UserError
        There is no such event, thread or CPU, or no sample in the span.
    """
    kept = np.ones(len(samples), dtype=bool)
    thread_column = "comm" if isinstance(thread, str) else "tid"
    for what, column, wanted in (
        ("event", "event", event),
        ("thread", thread_column, thread),
        ("CPU", "cpu", cpu),
    ):
        if wanted is not None:
            found = (samples[column] == wanted).to_numpy()
            if not found.any():
                raise UserError(choose(what, str(wanted), map(str, samples[column].unique())))
            kept &= found
    time_ns = samples["time_ns"].to_numpy()
    if start_ns is not None:
        kept &= time_ns >= start_ns
    if end_ns is not None:
        kept &= time_ns < end_ns
    if not kept.any() and len(samples):
        chosen_by = {"event": event, "thread": thread, "cpu": cpu, "start_ns": start_ns}
        words = [f"{k} {v}" for k, v in (chosen_by | {"end_ns": end_ns}).items() if v is not None]
        msg = (
            f"no sample is left of {len(samples)} with {', '.join(words)}: the profile goes from "
            f"{time_ns.min()} to {time_ns.max()} ns"
        )
        raise UserError(msg)
    return samples[kept]


def merge_copies(samples: pd.DataFrame) -> pd.DataFrame:
    """One name for all copies of a function: ``kv_scatter_0042`` becomes ``kv_scatter``.

    KV's code is repeated under numbered names (see ``kernels.copies``). Every name that ends in an
    underscore and four or five digits is folded, so this is for such programs only.
    """
    merged = samples.copy(deep=False)
    for column in ("symbol", "stack"):
        categories = pd.Series(samples[column].cat.categories, dtype=str)
        renamed = categories.str.replace(COPY, "", regex=True)
        merged[column] = _recoded(samples[column], list(renamed))
    return merged


def flat(samples: pd.DataFrame, weight: Weight = "samples") -> pd.DataFrame:
    """How much is spent in each function itself, and in it with all that it calls.

    Parameters
    ----------
    samples
        The table that ``perfscript.read`` makes, or a part of it (``select``).
    weight
        ``"samples"``: each counts one; ``"period"``: each counts its period.

    Returns
    -------
    pandas.DataFrame
        One row a function, the largest self first: function, object, self_samples, self_percent,
        total_samples, total_percent (``self_period`` ... with periods). A stack in which a
        function occurs several times counts once in its total. The object is the file in which
        most of the function's samples are; empty where it only calls others.

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame({"stack": ["main", "main;f", "main;f"], "object": "a.out"})
    >>> flat(table.astype("category"))[["function", "self_samples", "total_samples"]]
      function  self_samples  total_samples
    0        f             2              2
    1     main             1              3
    """
    own: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for frames, count in _stacks(samples, weight):
        own[frames[-1]] += count
        for function in set(frames):
            total[function] += count
    objects = object_of(samples)
    whole = sum(own.values())
    made = pd.DataFrame(
        {
            "function": pd.Series(list(total), dtype=str),
            "object": pd.Series([objects.get(function, "") for function in total], dtype=str),
            f"self_{weight}": pd.Series([own[function] for function in total], dtype=np.int64),
            f"total_{weight}": pd.Series(list(total.values()), dtype=np.int64),
        }
    )
    for at, column in ((3, "self"), (5, "total")):
        made.insert(at, f"{column}_percent", _percent(made[f"{column}_{weight}"], whole))
    by = [f"self_{weight}", f"total_{weight}", "function"]
    return made.sort_values(by, ascending=[False, False, True], ignore_index=True)


def _tree(stacks: list[_Stack]) -> Node:
    root = Node("all")
    for frames, count in stacks:
        node = root
        node.total += count
        for function in frames:
            following = node.below.get(function)
            if following is None:
                following = node.below[function] = Node(function)
            node = following
            node.total += count
        node.self += count
    return root


def top_down(samples: pd.DataFrame, weight: Weight = "samples") -> Node:
    """The call tree from the program's start: what does each function call, and at what cost?"""
    return _tree(_stacks(samples, weight))


def bottom_up(samples: pd.DataFrame, weight: Weight = "samples") -> Node:
    """The call tree from where the time is spent: by whom was each function called?

    The first level has the functions that samples were in, each with its own samples.
    """
    return _tree([_Stack(frames[::-1], count) for frames, count in _stacks(samples, weight)])


def callers(samples: pd.DataFrame, function: str, weight: Weight = "samples") -> pd.DataFrame:
    """Who called a function, with the share of the function's samples that each accounts for.

    A recursion counts as one call: the caller is that of the outermost occurrence in the stack,
    so the shares add up to 100 %. Columns: caller (``[no caller]`` where the stack begins with the
    function), samples (or period), percent (of the function's), percent_of_all.

    Raises
    ------
    UserError
        No such function; the nearest names are given.
    """

    def caller(frames: list[str]) -> str:
        at = frames.index(function)
        return frames[at - 1] if at else NO_CALLER

    return _neighbours(samples, function, weight, "caller", caller)


def callees(samples: pd.DataFrame, function: str, weight: Weight = "samples") -> pd.DataFrame:
    """What a function called, with the share of its samples that each callee accounts for.

    A recursion counts as one call: the callee is that of the innermost occurrence in the stack.
    Columns: callee (``[itself]``: samples in the function's own code), samples (or period),
    percent (of the function's), percent_of_all.

    Raises
    ------
    UserError
        No such function; the nearest names are given.
    """

    def callee(frames: list[str]) -> str:
        after = frames[::-1].index(function)
        return frames[len(frames) - after] if after else ITSELF

    return _neighbours(samples, function, weight, "callee", callee)


def _neighbours(
    samples: pd.DataFrame,
    function: str,
    weight: Weight,
    what: str,
    neighbour: Callable[[list[str]], str],
) -> pd.DataFrame:
    stacks = _stacks(samples, weight)
    counts: Counter[str] = Counter()
    for frames, count in stacks:
        if function in frames:
            counts[neighbour(frames)] += count
    if not counts:
        known = {name for frames, _ in stacks for name in frames}
        raise UserError(choose("function", function, known))
    rows = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    made = pd.DataFrame(rows, columns=[what, weight])
    made["percent"] = _percent(made[weight], sum(counts.values()))
    made["percent_of_all"] = _percent(made[weight], sum(stack.weight for stack in stacks))
    return made
