"""Top-down analysis: which share of the pipeline's issue slots goes where; data in topdown.toml.

A processor has a few slots in each cycle. A slot is filled by a micro-operation that retires, or
is lost: to a wrong path, because the front end delivered nothing, or because the back end could
take no more (level 1); each of these has two parts (level 2). Metrics are formulas over counts,
different for each generation, and taken from what Intel and AMD publish.

A count that was multiplexed has an uncertainty, and so has each metric: by its derivatives to the
counts, with the counts of one set taken together, slice by slice, where the series is given (they
rise and fall together), and those of different sets as independent.

Source: A. Yasin, ISPASS 2014, doi:10.1109/ISPASS.2014.6844459; topdown.toml names the others.
"""

from __future__ import annotations

import ast
import functools
import math
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from perflib.instruments.counters import pfm
from perflib.instruments.counters.multiplexing import ratio_of_slices
from perflib.model.errors import UserError, choose

_COLUMNS = ["metric", "parent", "level", "value", "error", "unit", "status", "formula", "meaning"]
_UNIT = "share of slots"
_NAME = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*")
_WORDS = ("if", "else", "min", "max")
_SYSFS = re.compile(r"(?:cpu|cpu_core)/([a-z0-9-]+)/")
_DOMAINS = ("", ":u", ":k")
_ZEN_ALONE = "other-thread"  # elsewhere each hardware thread has slots of its own
_STEP = 1e-6  # of a count, for its derivative
_TOLERANCE = 0.005  # of the slots: formulas are approximations, also where all was counted


@dataclass(frozen=True)
class Metric:
    """A share of the slots; ``parent`` is empty on level 1."""

    name: str
    parent: str
    meaning: str

    @property
    def level(self) -> int:
        """1 or 2."""
        return 2 if self.parent else 1


@dataclass(frozen=True)
class Model:
    """The formulas of one generation: of ``metrics``, of what they share, and why one has none.

    ``core`` takes the place of helpers where two hardware threads share the core's slots.
    """

    name: str
    processors: tuple[str, ...]
    sources: str
    helpers: Mapping[str, str]
    core: Mapping[str, str]
    formulas: Mapping[str, str]
    absent: Mapping[str, str]

    def definitions(self, core: bool = False) -> dict[str, str]:
        """Everything that has a formula, by name."""
        helpers = {**self.helpers, **self.core} if core else dict(self.helpers)
        return {**helpers, **{n: f for n, f in self.formulas.items() if n not in self.absent}}

    def events(self, name: str, core: bool = False) -> set[str]:
        """The events that a metric needs."""
        return _events(name, self.definitions(core))


@functools.cache
def _data() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text())


@functools.cache
def metrics() -> dict[str, Metric]:
    """Every metric by its name, level 1 first."""
    return {
        name: Metric(name, parent, words) for name, (parent, words) in _data()["metrics"].items()
    }


@functools.cache
def models() -> dict[str, Model]:
    """The generations by name; ``registers`` is that of processors that count slots themselves."""
    found: dict[str, Model] = {}
    for name, entry in _data()["models"].items():
        same = found.get(entry.get("same", ""))
        parts = {
            part: {**(getattr(same, part) if same else {}), **entry.get(part, {})}
            for part in ("helpers", "core", "formulas")
        }
        absent = entry.get("absent", dict(same.absent) if same else {})
        processors = tuple(entry["processors"])
        found[name] = Model(name, processors, entry["sources"], **parts, absent=absent)
    return found


def model_of(cpu: str) -> Model | None:
    """The formulas for a processor, as libpfm4 calls it or shorter; ``None``: there are none.

    Raises
    ------
    UserError
        There is no such processor.
    """
    known = {pmu: model for model in models().values() for pmu in model.processors}
    for pmu, model in known.items():
        if cpu.lower() in (pmu, model.name):
            return model
    if pfm.missing():
        raise UserError(choose("CPU", cpu, known))
    return known.get(pfm.pmu_named(cpu))


# --- formulas ------------------------------------------------------------------------------------


@functools.cache
def _parsed(formula: str) -> ast.expr:
    """A formula's tree: a name may have hyphens in it, a minus has blanks around it."""
    text = _NAME.sub(lambda name: name[0].replace("-", "_"), formula)
    return ast.parse(text, mode="eval").body


def _names(formula: str) -> set[str]:
    return {name for name in _NAME.findall(formula) if name not in _WORDS}


def _events(name: str, definitions: Mapping[str, str]) -> set[str]:
    if name not in definitions:
        return {name}
    parts = (_events(part, definitions) for part in _names(definitions[name]))
    return set().union(*parts)


_OPERATIONS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b if b else math.nan,
}


class _Values:
    """What every name is worth, given the counts of events."""

    def __init__(self, definitions: Mapping[str, str], counts: Mapping[str, float]) -> None:
        self._definitions = definitions
        self._known = dict(counts)

    def __getitem__(self, name: str) -> float:
        if name not in self._known:
            self._known[name] = self._evaluated(_parsed(self._definitions[name]))
        return self._known[name]

    def _evaluated(self, node: ast.expr) -> float:
        match node:
            case ast.Constant(value=int() | float() as number):
                return float(number)
            case ast.Name(id=name):
                return self[name.replace("_", "-")]
            case ast.BinOp(left=left, op=op, right=right):
                return _OPERATIONS[type(op)](self._evaluated(left), self._evaluated(right))
            case ast.IfExp(
                test=ast.Compare(left=left, comparators=[right]), body=body, orelse=other
            ):
                higher = self._evaluated(left) > self._evaluated(right)
                return self._evaluated(body if higher else other)
            case ast.Call(func=ast.Name(id="min" | "max" as name), args=arguments):
                return (min if name == "min" else max)(*map(self._evaluated, arguments))
        msg = f"no formula: {ast.unparse(node)}"
        raise ValueError(msg)


# --- metrics of counts ---------------------------------------------------------------------------


def table_of(
    counts: pd.DataFrame, cpu: str | None = None, series: pd.DataFrame | None = None
) -> pd.DataFrame:
    """The tree of top-down metrics, from counts of whatever sets.

    Parameters
    ----------
    counts
        Rows of `Group.read` or `monitor.totals`: ``event`` (as aliases.toml names it), ``set``,
        ``scaled``, ``scaled_error``, ``status``. An event that several sets have is taken from the
        set that has most of a metric's events. Names may end in ``:u`` or ``:k``.
    cpu
        The processor that was counted, as libpfm4 calls it; this one by default.
    series
        The rows of `Monitor.series` that the totals are of, for the uncertainties.

    Returns
    -------
    One row a metric, in the order of the tree: ``metric``, ``parent``, ``level``, ``value`` and
    ``error`` (share of the slots, standard uncertainty), ``unit``, ``status`` (``counted``,
    ``scaled``, or ``cannot be measured here:`` and why; the value is then NaN), ``formula`` (the
    events that it takes), ``meaning``. Metrics of user space or the kernel alone end in ``:u``,
    ``:k``.

    Raises
    ------
    UserError
        There is no such processor.
    """
    if cpu is None:
        cpu = "" if pfm.missing() else pfm.this_cpu() or ""
    model = model_of(cpu) if cpu else None
    rows = []
    domains = [one for one in _DOMAINS if any(_domain(name) == one for name in counts["event"])]
    for domain in domains or [""]:
        mine = counts[counts["event"].map(_domain) == domain]
        here = _Counts(mine, series, domain)
        for metric in metrics().values():
            value, error, status, formula = _measured(metric.name, model, here, cpu)
            row = {
                "metric": f"{metric.name}{domain}",
                "parent": f"{metric.parent}{domain}" if metric.parent else "",
                "level": metric.level,
                "value": value,
                "error": error,
                "unit": _UNIT,
                "status": status,
                "formula": formula,
                "meaning": metric.meaning,
            }
            rows.append(row)
    return pd.DataFrame(rows, columns=_COLUMNS)


def _domain(name: str) -> str:
    return name[-2:] if name.endswith((":u", ":k")) else ""


def _plain(name: str) -> str:
    """An event's name in formulas: without the domain, and without the PMU of sysfs."""
    name = name.removesuffix(":u").removesuffix(":k")
    sysfs = _SYSFS.fullmatch(name)
    return sysfs[1] if sysfs else name


class _Counts:
    """Counts by event and set, of one domain."""

    def __init__(self, counts: pd.DataFrame, series: pd.DataFrame | None, domain: str) -> None:
        self.rows: dict[str, dict[str, dict[str, Any]]] = {}
        for row in counts.to_dict("records"):
            by_set = self.rows.setdefault(_plain(str(row["event"])), {})
            by_set[str(row.get("set", ""))] = {str(key): value for key, value in row.items()}
        self._series = series
        self._domain = domain

    def chosen(self, events: Iterable[str]) -> dict[str, dict[str, Any]]:
        """One row an event, from as few sets as possible; a row without a count says why."""
        wanted = sorted(events)
        usable = {
            event: {name: row for name, row in self.rows.get(event, {}).items() if _is_number(row)}
            for event in wanted
        }
        sets = [name for rows in usable.values() for name in rows]
        order = sorted(set(sets), key=lambda name: (-sets.count(name), name))
        found = {}
        for event in wanted:
            mine = usable[event] or self.rows.get(event, {})
            name = next((one for one in order if one in mine), next(iter(mine), None))
            found[event] = mine[name] if name is not None else {"status": "not counted"}
        return found

    def error(self, slopes: Mapping[str, float], chosen: Mapping[str, dict[str, Any]]) -> float:
        """The uncertainty of ``sum(slope * count)``: sets by themselves, then as independent."""
        variance = 0.0
        for name in {str(row.get("set", "")) for row in chosen.values()}:
            mine = {e: s for e, s in slopes.items() if str(chosen[e].get("set", "")) == name}
            scaled = any(chosen[event]["status"] == "scaled" for event in mine)
            together = self._in_slices(mine, name) if scaled and len(mine) > 1 else math.nan
            if math.isnan(together):
                together = math.hypot(*(s * chosen[e]["scaled_error"] for e, s in mine.items()))
            variance += together**2
        return math.sqrt(variance)

    def _in_slices(self, slopes: Mapping[str, float], name: str) -> float:
        largest = max(map(abs, slopes.values()))
        if self._series is None or not largest > 0:
            return math.nan
        rows = self._series.dropna(subset=["clock_ns"])
        all_ns = float(rows.drop_duplicates("time_ns")["clock_ns"].sum())
        rows = rows[(rows["set"] == name) & (rows["event"].map(_domain) == self._domain)]
        if rows.empty or not all_ns > 0:
            return math.nan
        rows = rows.assign(event=rows["event"].map(_plain))
        seen = rows.pivot_table(index="time_ns", columns="event", values="value")
        clock = rows.groupby("time_ns")["running_ns"].max()
        if not set(slopes) <= set(seen.columns):
            return math.nan
        # in units of the steepest event, of which a slice can miss one
        above = np.array(sum(slope / largest * seen[event] for event, slope in slopes.items()))
        below = clock.loc[seen.index].to_numpy()
        share = float(np.nansum(below)) / all_ns
        return float(ratio_of_slices(above, below, share).error) * all_ns * largest


def _is_number(row: Mapping[str, Any]) -> bool:
    return bool(np.isfinite(row.get("scaled", np.nan)))


def _measured(
    name: str, model: Model | None, counts: _Counts, cpu: str
) -> tuple[float, float, str, str]:
    """Value, error, status and formula of a metric, from counters or else from registers."""
    attempts = [one for one in (model, models()["registers"]) if one is not None]
    if any(event.startswith("topdown-") for event in counts.rows):
        attempts.reverse()  # they were requested
    elif model is not None:
        attempts = [model]
    reasons = []
    for one in attempts:
        core = any(_is_number(row) for row in counts.rows.get("core-cycles", {}).values())
        definitions = one.definitions(core and bool(one.core))
        if name in one.absent or name not in definitions:
            reasons.append(one.absent.get(name, "this processor has no formula for it"))
            continue
        events = _events(name, definitions)
        chosen = counts.chosen(events)
        lacking = [event for event in sorted(events) if not _is_number(chosen[event])]
        formula = one.formulas[name]
        if lacking:
            why = chosen[lacking[0]]["status"]
            reasons.append(f"needs {lacking[0]}: {why}")
            continue
        value, error = _value(name, definitions, chosen, counts)
        if not math.isfinite(value):
            reasons.append("nothing was counted: the slots are zero")
            continue
        scaled = any(chosen[event]["status"] == "scaled" for event in events)
        return value, error, "scaled" if scaled else "counted", formula
    if model is None and not reasons[1:] and not counts.rows.get("topdown-retiring"):
        named = f"{cpu} is none of" if cpu else "this processor is not known to be one of"
        known = ", ".join(one for one in models() if one != "registers")
        reasons = [f"formulas are known for {known}, and {named} them"]
    return math.nan, math.nan, f"cannot be measured here: {reasons[0]}", ""


def _value(
    name: str, definitions: Mapping[str, str], chosen: Mapping[str, dict[str, Any]], counts: _Counts
) -> tuple[float, float]:
    values = {event: float(row["scaled"]) for event, row in chosen.items()}
    value = _Values(definitions, values)[name]
    slopes = {}
    for event, count in values.items():
        step = _STEP * max(abs(count), 1.0)
        more = _Values(definitions, {**values, event: count + step})[name]
        less = _Values(definitions, {**values, event: count - step})[name]
        slopes[event] = (more - less) / (2 * step)
    return value, counts.error(slopes, chosen)


def consistency(table: pd.DataFrame) -> list[str]:
    """Whether level 1 makes up all slots, and each pair of level 2 its parent: sentences.

    The parts are measured one by one on some processors, and by difference on others, where they
    agree by construction. Nothing is forced: a sum that is off is reported as it is. A sum's
    uncertainty is taken as that of independent parts.
    """
    said = []
    values = dict(zip(table["metric"], table["value"], strict=True))
    errors = dict(zip(table["metric"], table["error"], strict=True))
    for domain in _DOMAINS:
        for parent in ["", *(one.name for one in metrics().values() if one.level == 1)]:
            parts = [f"{one.name}{domain}" for one in metrics().values() if one.parent == parent]
            here = [one for one in parts if math.isfinite(values.get(one, math.nan))]
            if set(parts) - set(here) - {f"{_ZEN_ALONE}{domain}"}:
                continue  # a part of it was not measured
            whole = f"{parent}{domain}"
            target = values.get(whole, math.nan) if parent else 1.0
            error = math.hypot(errors.get(whole, 0.0), *(errors[one] for one in here))
            if not here or not math.isfinite(target + error):
                continue  # an uncertainty that is not known: a single slice was seen
            total = sum(values[one] for one in here)
            what = f"the parts of {whole} sum" if parent else f"level 1{domain} sums"
            off = abs(total - target) > _TOLERANCE + 2 * error
            verdict = "which is not" if off else "as they should:"
            said.append(
                f"{what} to {100 * total:.1f} % ± {200 * error:.1f}, {verdict} {100 * target:.1f} %"
            )
    return said
