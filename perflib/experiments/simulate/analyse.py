"""What simulated counts say: how frequent misses are, in which functions, on which machine."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd

from perflib.experiments.simulate.claims import MORE, OFTEN, SHARED
from perflib.framework.levels import levels_table
from perflib.instruments.simulators.lines import ACCESSES, FALSE, LINES, TRANSFERS, WRITES
from perflib.model.finding import Finding
from perflib.model.run import Run
from perflib.stats.decide import Reason
from perflib.stats.interval import Interval, columns
from perflib.stats.intervals import t_interval

OTHERS = "(other functions)"  # what has too little of a counter to be a row of its own
_RARE = 0.01  # a thousand instructions: of so few misses it does not matter that they differ
_THREADS = 3  # named in a sentence
_MISSES = ["geometry", "counter", "per_1000", "per_1000_low", "per_1000_high"]
_MISSES += ["simulated_count", "function", "share_percent"]
# No misses.
_BASES = ("instructions", "loads", "stores", "branches", LINES, ACCESSES, WRITES)
OF_LINES = (TRANSFERS, FALSE)


def findings(run: Run) -> list[Finding]:
    """How frequent each kind of miss is; and of several geometries, which has more of them."""
    once = Reason("once") if run.samples["round"].nunique() < 2 else None
    found = []
    for row in misses(run).to_dict("records"):
        of_lines = row["counter"] in OF_LINES
        about = {} if of_lines else {"geometry": row["geometry"]}
        found.append(
            (SHARED if of_lines else OFTEN).decided(
                Interval(row["per_1000"], row["per_1000_low"], row["per_1000_high"]),
                run.params["often_per_1000"],
                about={**about, "counter": row["counter"]},
                facts={
                    "function": row["function"],
                    "share": row["share_percent"] / 100,
                    "who": _who(run.samples, row["function"]) if of_lines else "",
                },
                evidence={"count": row["simulated_count"]},
                prevented=once,
                remarks=[Reason("turns" if of_lines else "simulated", {"tool": _tool(run)})],
            )
        )
    reference, *others = _geometry_names(run)
    for counter, values in _per_1000(run.samples).items():
        by_round = values.groupby(["round", "geometry"]).mean().unstack("geometry")
        if reference not in by_round or counter == "mispredicted branches":
            continue  # branches are predicted in the same way for all
        for other in (one for one in others if one in by_round):
            ratio = 100 * (by_round[other] / by_round[reference] - 1)
            ratio = ratio[np.isfinite(ratio)]
            if len(ratio):
                about = {"geometry": other, "reference": reference, "counter": counter}
                limit = run.params["differ_percent"]
                found.append(MORE.decided(_interval(ratio), limit, about=about, prevented=once))
    return found


def tables(run: Run) -> dict[str, Callable[[], pd.DataFrame]]:
    """The derived tables; see ``Simulate.tables``."""
    return {
        "misses": lambda: misses(run),
        "functions": lambda: _functions(run.samples),
        **({"lines": lambda: _lines(run.samples)} if "lines" in set(run.samples["part"]) else {}),
        "geometries": lambda: _geometries(run),
    }


def levels(run: Run) -> pd.DataFrame:
    """Misses a thousand instructions."""
    rows = [
        (-1, f"{row['geometry']}: {row['counter']}", row["per_1000"], "per 1000 instructions")
        for row in misses(run).to_dict("records")
    ]
    return levels_table(rows)


def misses(run: Run) -> pd.DataFrame:
    """One row a geometry and counter: how often, a thousand instructions, and where most."""
    per_1000 = _per_1000(run.samples)
    functions = _functions(run.samples)
    rows = []
    for geometry in _geometry_names(run):
        for counter in per_1000.columns:
            values = per_1000.xs(geometry)[counter].dropna()
            mine = functions[
                (functions["geometry"] == geometry) & (functions["counter"] == counter)
            ]
            if values.empty:
                continue
            found = _interval(values)
            named = mine[mine["symbol"] != OTHERS]
            most = named.iloc[0] if len(named) else {"symbol": "no function", "share_percent": 0.0}
            rows.append(
                {
                    "geometry": geometry,
                    "counter": counter,
                    **columns("per_1000", found),
                    "simulated_count": mine["simulated_count"].sum(),
                    "function": most["symbol"],
                    "share_percent": most["share_percent"],
                }
            )
    return pd.DataFrame(rows, columns=_MISSES)


def spread_percent(samples: pd.DataFrame) -> float:
    """By how much two simulations differ, in the counter that differs most; infinite after one."""
    if samples["round"].nunique() < 2:
        return float("inf")
    each = _per_1000(samples).groupby(["geometry", "part"])
    spread = 100 * (each.max() / each.min() - 1).where(each.max() > _RARE)
    most = spread.to_numpy(dtype=np.float64)
    return float(np.nanmax(most, initial=0.0))


def _per_1000(samples: pd.DataFrame) -> pd.DataFrame:
    """Misses a thousand instructions: a row a geometry, part and round, a column a counter."""
    keys = ["geometry", "part", "round"]
    totals = samples.groupby([*keys, "counter"])["simulated_count"].sum().unstack("counter")
    if "instructions" not in totals:
        return pd.DataFrame()
    kinds = [name for name in totals if name not in _BASES]
    return 1000 * totals[kinds].div(totals["instructions"], axis=0)


def _interval(values: pd.Series[float]) -> Interval:
    array = np.asarray(values, dtype=np.float64)
    if len(array) < 2 or np.ptp(array) == 0:
        return Interval(float(array.mean()), float(array.min()), float(array.max()))
    return t_interval(array)


def _functions(samples: pd.DataFrame) -> pd.DataFrame:
    """Each function's part of each counter, the most first; the mean of the simulations."""
    samples = samples[~samples["counter"].isin(_BASES)]
    if "source_file" not in samples:  # a table from elsewhere need not have it
        samples = samples.assign(source_file="")
    keys = ["geometry", "counter", "symbol", "source_file"]
    rounds = samples.groupby(["geometry", "counter"])["round"].transform("nunique")
    means = samples.assign(simulated_count=samples["simulated_count"] / rounds)
    table = means.groupby(keys)["simulated_count"].sum().reset_index()
    total = table.groupby(["geometry", "counter"])["simulated_count"].transform("sum")
    table["share_percent"] = 100 * table["simulated_count"] / total.where(total > 0)
    order = ["geometry", "counter", "simulated_count"]
    return table.sort_values(order, ascending=[True, True, False], ignore_index=True)


def _lines(samples: pd.DataFrame) -> pd.DataFrame:
    """A row a thread and function of each variable; the means of the simulations.

    ``transfers_per_1000`` and ``false_percent`` are the variable's.
    """
    mine = samples[samples["part"] == "lines"]
    mine = mine.assign(simulated_count=mine["simulated_count"] / max(mine["round"].nunique(), 1))
    counts = mine.groupby(["counter", "symbol"])["simulated_count"].sum()
    of = {name: counts.get(name, pd.Series(dtype=float)) for name in (LINES, TRANSFERS, FALSE)}
    total = counts.get("instructions", pd.Series(dtype=float)).sum()
    keys = ["symbol", "thread", "function"]
    used = mine[mine["counter"].isin((ACCESSES, WRITES))]
    table = used.pivot_table(
        index=keys, columns="counter", values="simulated_count", aggfunc="sum", fill_value=0.0
    )
    written = used[used["counter"] == WRITES].groupby(keys)["bytes"].first()
    touched = used[used["counter"] == ACCESSES].groupby(keys)["bytes"].first()
    symbols = table.index.get_level_values("symbol")
    transfers = of[TRANSFERS].reindex(symbols).to_numpy()
    table = pd.DataFrame(
        {
            "lines": of[LINES].reindex(symbols).to_numpy(),
            "transfers_per_1000": 1000 * transfers / total,
            "false_percent": 100 * of[FALSE].reindex(symbols).to_numpy() / transfers,
            "accesses": table.get(ACCESSES, 0.0),
            "writes": table.get(WRITES, 0.0),
            "touches_bytes": touched.reindex(table.index),
            "writes_bytes": written.reindex(table.index).fillna(""),
        },
        index=table.index,
    ).reset_index()
    return table.sort_values(
        ["transfers_per_1000", "symbol", "thread"], ascending=[False, True, True], ignore_index=True
    )


def _who(samples: pd.DataFrame, variable: str) -> str:
    """Which threads write which bytes of a variable's lines, in words."""
    table = _lines(samples)
    mine = table[(table["symbol"] == variable) & (table["writes"] > 0)]
    said = [
        f"thread {row['thread']} writes bytes {row['writes_bytes']} in {row['function']}"
        for row in mine.head(_THREADS).to_dict("records")
    ]
    return ", ".join(said) + (", ..." if len(mine) > _THREADS else "")


def _geometries(run: Run) -> pd.DataFrame:
    rows = [
        {"geometry": one["geometry"], "level": level, "has": has, "source": one["source"]}
        for one in run.provenance.get("plan", {}).get("geometries", [])
        for level, has in one["levels"].items()
    ]
    return pd.DataFrame(rows, columns=["geometry", "level", "has", "source"])


def _geometry_names(run: Run) -> list[str]:
    """Those with samples, in the order of the parameter; then others of a table from elsewhere."""
    here = list(dict.fromkeys(run.samples["geometry"]))
    requested = [name for name in run.params["geometries"] if name in here]
    return [*requested, *(name for name in here if name not in requested)]


def _tool(run: Run) -> str:
    return str(run.samples["tool"].iloc[0]) if "tool" in run.samples else "another simulator"
