"""Ready-made sets of events, and the ratios of their counts; both are data, in sets.toml."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from perflib.instruments.counters import pfm
from perflib.instruments.counters.events import CounterEvent, event
from perflib.instruments.counters.groups import Lacking, Requested
from perflib.instruments.counters.multiplexing import Scaled, ratio_of_slices
from perflib.instruments.counters.topdown import model_of
from perflib.machine.files import integer
from perflib.model.errors import UserError, choose

_COLUMNS = ["ratio", "set", "value", "error", "formula", "status"]


@dataclass(frozen=True)
class Set:
    """Events that are counted together, by name.

    Of a set ``by_processor`` a processor counts what its top-down formulas need. Where hardware
    threads share a core, a set ``by_core`` counts the core's cycles.
    """

    name: str
    events: tuple[str, ...]
    meaning: str
    by_processor: bool = False
    by_core: bool = False


Terms = tuple[tuple[int, str], ...]


@dataclass(frozen=True)
class Ratio:
    """``factor * sum(above) / sum(below)``; each term is an event's name with its sign."""

    name: str
    above: Terms
    below: Terms
    factor: float

    @property
    def events(self) -> set[str]:
        """Every event that it needs."""
        return {name for _, name in (*self.above, *self.below)}

    @property
    def formula(self) -> str:
        """The formula in words."""
        words = f"({_words(self.above)}) / ({_words(self.below)})"
        return words if self.factor == 1 else f"{self.factor:g} * {words}"


def _words(terms: Terms) -> str:
    return " ".join(f"{'+-'[sign < 0]} {name}" for sign, name in terms).removeprefix("+ ")


@functools.cache
def _data() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text())


@functools.cache
def sets() -> dict[str, Set]:
    """Every ready-made set by its name."""
    return {
        name: Set(name, **{**entry, "events": tuple(entry["events"])})
        for name, entry in _data()["sets"].items()
    }


@functools.cache
def ratios() -> dict[str, Ratio]:
    """Every derived ratio by its name."""
    return {
        name: Ratio(name, _terms(entry["above"]), _terms(entry["below"]), entry.get("factor", 1))
        for name, entry in _data()["ratios"].items()
    }


def published_names() -> dict[str, str]:
    """The perfctr monitor's (Jurga 2006) name of a counter to ours, where the count is the same."""
    return dict(_data()["published"])


def _terms(formula: str) -> Terms:
    if not formula:
        return ()
    first, *rest = formula.split()
    pairs = zip(rest[::2], rest[1::2], strict=True)
    return ((1, first), *((-1 if sign == "-" else 1, name) for sign, name in pairs))


def expand(name: str, pmu: str | None = None) -> list[str]:
    """The sets that a name stands for: a set itself, or several (``topdown``), in one list.

    Of several those remain that a processor needs for its formulas; this one by default. Where
    it is not known, all remain, and their rows say why nothing is counted.

    Raises
    ------
    UserError
        No such set.

    >>> expand("software")
    ['software']
    >>> expand("topdown", "spr")
    ['topdown-l1', 'topdown-frontend', 'topdown-speculation', 'topdown-memory']
    """
    groups: dict[str, list[str]] = _data()["groups"]
    if name not in groups:
        if name not in sets():
            raise UserError(choose("set of events", name, [*sets(), *groups]))
        return [name]
    found: list[str] = []
    counted: set[str] = set()
    for one in groups[name]:
        events = set(names_here(one, pmu))
        if events - counted - _FIXED:
            found.append(one)
        counted |= events
    return found


def names_here(name: str, pmu: str | None = None) -> list[str]:
    """The names of a set's events on a processor; this one by default.

    >>> names_here("topdown-speculation", "spr")
    ['cycles', 'issue-slots', 'slots-mispredicted']
    """
    one = sets()[name]
    shared = _shares_cores() if pmu is None else False
    if pmu is None and one.by_processor and not pfm.missing():
        pmu = pfm.this_cpu()
    model = model_of(pmu) if one.by_processor and pmu else None
    if model is None:
        return list(one.events)
    needed = set().union(*(model.events(metric, shared) for metric in model.formulas)) | _FIXED
    instead = _data()["core"] if shared and one.by_core and model.core else {}
    names = (instead.get(event, event) for event in one.events)
    return [event for event in names if event in needed]


_FIXED = {"cycles", "instructions"}  # they take no counter on Intel's processors


def _shares_cores() -> bool:
    return integer(Path("/sys/devices/system/cpu/smt/active")) == 1


def events_of(name: str, *, lookup: Callable[[str], CounterEvent] = event) -> list[Requested]:
    """The events of a set, as `Group` takes them.

    A name that has no encoding on this machine becomes a `Lacking` with the reason, and in the
    end a row that says so. A set that goes by the processor has the events that this one has, and
    where two hardware threads share a core the core's own.

    Raises
    ------
    UserError
        No such set.

    >>> [one.name for one in events_of("software")]
    ['task-clock', 'page-faults', 'context-switches', 'cpu-migrations']
    """
    if name not in sets():
        raise UserError(choose("set of events", name, sets()))
    found: list[Requested] = []
    for wanted in names_here(name):
        try:
            found.append(lookup(wanted))
        except UserError as error:
            found.append(Lacking(wanted, f"absent: {error}"))
    return found


def asked_for(words: Iterable[str], also: Iterable[str] = ()) -> dict[str, list[Requested]]:
    """The sets that words stand for, by name; events that are named one by one are one set.

    Parameters
    ----------
    words
        Names of sets and of events.
    also
        What else could have been named, for the error's nearest valid choice.

    Raises
    ------
    UserError
        A word is no set and no event.

    >>> [*asked_for(["faults", "page-faults"])]
    ['faults', 'events']
    """
    known = [*sets(), *_data()["groups"]]
    found: dict[str, list[Requested]] = {}
    for word in words:
        if word in known:
            found |= {name: events_of(name) for name in expand(word)}
            continue
        try:
            found.setdefault("events", []).append(event(word))
        except UserError as error:
            near = choose("set or count", word, [*also, *known]).partition(" (")[0]
            msg = f"{str(error).rstrip('.')}; nor is it a set or a count of the kernel: {near}"
            raise UserError(msg) from None
    return found


# --- ratios --------------------------------------------------------------------------------------


def ratio_table(counts: pd.DataFrame, series: pd.DataFrame | None = None) -> pd.DataFrame:
    """Every ratio whose events were requested in one set, with its standard uncertainty.

    Parameters
    ----------
    counts
        Rows of `Group.read` or `monitor.totals`: ``event``, ``set``, ``scaled``, ``scaled_error``,
        ``status``. Names may end in ``:u`` or ``:k``; the two are not mixed.
    series
        The rows of `Monitor.series` that the totals are of. Counts of one set come from the same
        slices, and rise and fall together: with the slices the uncertainty is that of their ratio
        (`multiplexing.ratio_of_slices`). Without, the counts' uncertainties are taken to be
        independent, which in one set mostly overstates it.

    Returns
    -------
    ``ratio``, ``set``, ``value``, ``error``, ``formula`` and ``status``: ``counted``, ``scaled``,
    or what is missing; the value is then NaN.
    """
    rows = []
    for name, part in counts.groupby("set", sort=False):
        for domain in ("", ":u", ":k"):
            mine = {
                row["event"].removesuffix(":u").removesuffix(":k"): row
                for row in part.to_dict("records")
                if (row["event"][-2:] if row["event"].endswith((":u", ":k")) else "") == domain
            }
            for ratio in ratios().values():
                if ratio.events <= mine.keys():
                    value, error, status = _ratio(ratio, mine, series, domain)
                    rows.append(
                        (f"{ratio.name}{domain}", name, value, error, ratio.formula, status)
                    )
    return pd.DataFrame(rows, columns=_COLUMNS)


def _ratio(
    ratio: Ratio, counts: Mapping[str, Any], series: pd.DataFrame | None, domain: str
) -> tuple[float, float, str]:
    lacking = [name for name in sorted(ratio.events) if not np.isfinite(counts[name]["scaled"])]
    if lacking:
        return np.nan, np.nan, f"needs {lacking[0]}: {counts[lacking[0]]['status']}"
    above, above_error = _sum(ratio.above, counts)
    below, below_error = _sum(ratio.below, counts)
    if not below > 0:
        return np.nan, np.nan, f"{_words(ratio.below)} is zero"
    scaled = any(counts[name]["status"] == "scaled" for name in ratio.events)
    value = above / below
    error = float(np.hypot(above_error, value * below_error)) / below
    if scaled and series is not None:
        set_name = str(counts[ratio.below[0][1]]["set"])
        value, error, _ = _in_slices(ratio, series, set_name, domain)
    return ratio.factor * value, ratio.factor * error, "scaled" if scaled else "counted"


def _sum(terms: Terms, counts: Mapping[str, Any]) -> tuple[float, float]:
    total = sum(sign * counts[name]["scaled"] for sign, name in terms)
    variance = sum(counts[name]["scaled_error"] ** 2 for _, name in terms)
    return float(total), float(np.sqrt(variance))


def _in_slices(ratio: Ratio, series: pd.DataFrame, set_name: str, domain: str) -> Scaled:
    """The ratio estimator over the slices in which the set was on."""
    rows = series.dropna(subset=["clock_ns"])
    all_ns = float(rows.drop_duplicates("time_ns")["clock_ns"].sum())
    rows = rows[rows["set"] == set_name]
    share = float(rows.groupby("event")["running_ns"].sum().max()) / all_ns
    seen = rows.pivot_table(index="time_ns", columns="event", values="scaled")
    seen = seen[[f"{name}{domain}" for name in sorted(ratio.events)]].dropna()

    above = sum(sign * seen[f"{name}{domain}"] for sign, name in ratio.above)
    below = sum(sign * seen[f"{name}{domain}"] for sign, name in ratio.below)
    return ratio_of_slices(np.asarray(above), np.asarray(below), share)


# --- the perfctr monitor's tables ----------------------------------------------------------------


def monitor_table(counts: pd.DataFrame | Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """The table of counts and ratios of Jurga 2006, for any run of counts, or for several.

    Parameters
    ----------
    counts
        Rows of `Group.read` or `monitor.totals`, of any sets; or several runs of them by name. An
        event may have the monitor's own name (``CYC``, ``TOT``, ``LD`` ...).

    Returns
    -------
    Indexed by the monitor's ``quantity`` (``CYC``, ``INS/CYC``, ``LD/TOT percent`` ...): for one
    run ``value``, ``error`` (standard uncertainty) and ``status``; for several a column of values
    for each run, and ``NAME, change %`` against the first. What was not counted is NaN.
    """
    if isinstance(counts, pd.DataFrame):
        return _monitor_rows(counts)
    if not counts:
        msg = "no counts: give one run of them, or several by name"
        raise UserError(msg)
    runs = pd.DataFrame({name: _monitor_rows(run)["value"] for name, run in counts.items()})
    first, *others = runs.columns
    for name in others:
        runs[f"{name}, change %"] = 100 * (runs[name] / runs[first] - 1)
    return runs


def _monitor_rows(counts: pd.DataFrame) -> pd.DataFrame:
    ours = published_names()
    known: dict[str, dict[str, Any]] = {}
    for row in counts.to_dict("records"):
        name = str(row["event"])
        name = ours.get(name, name)
        better = name not in known or not np.isfinite(known[name]["scaled"])
        if better:  # of an event that several sets have, the first
            known[name] = {str(key): value for key, value in row.items()}
    rows = {}
    for entry in _data()["table"]:
        above, below = _terms(entry["above"]), _terms(entry.get("below", ""))
        rows[entry["quantity"]] = _monitor_row(entry["quantity"], above, below, known)
    columns = ["value", "error", "status"]
    return pd.DataFrame.from_dict(rows, orient="index", columns=columns).rename_axis("quantity")


def _monitor_row(
    quantity: str, above: Terms, below: Terms, known: Mapping[str, Any]
) -> tuple[float, float, str]:
    plain = quantity.partition("/")[0]
    if plain in known:  # a count under the monitor's name that none of our events is (FP)
        above = ((1, plain),)
    terms = [name for _, name in (*above, *below)]
    for name in terms:
        if name not in known or not np.isfinite(known[name]["scaled"]):
            why = known[name]["status"] if name in known else "not counted"
            return np.nan, np.nan, f"needs {name}: {why}"
    value, error = _sum(above, known)
    if below:
        whole, whole_error = _sum(below, known)
        if not whole > 0:
            return np.nan, np.nan, f"{_words(below)} is zero"
        value, error = value / whole, float(np.hypot(error, value / whole * whole_error)) / whole
    factor = 100 if quantity.endswith("percent") else 1
    scaled = any(known[name]["status"] == "scaled" for name in terms)
    return factor * value, factor * error, "scaled" if scaled else "counted"
