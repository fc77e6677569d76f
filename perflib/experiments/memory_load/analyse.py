"""What samples of memory under load say: the rise, the knee, all cores together, each alone."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pandas as pd

from perflib.experiments.memory_load import KINDS
from perflib.experiments.memory_load.claims import KNEE, PEAK, RISES, SLOWER, TOGETHER
from perflib.experiments.memory_load.table import Cores, Curve, LoadTable, Nodes
from perflib.framework.levels import levels_table
from perflib.model.finding import Finding
from perflib.model.run import Run
from perflib.stats.decide import Decision, Reason, Verdict, Witness
from perflib.stats.interval import NO_INTERVAL, Interval, columns

_MIN_VALID_PERCENT = 90.0  # percent of the samples: of less, the finding says so
_MOST_SEEN = ("read", "nt_write", "update")  # kinds whose counted bytes are all that is moved
_BYTES = 8  # that a module moves at once
_MODULES = re.compile(r"(\d+) x (?:[\d.]+ [GM]iB) (DDR[345]) (\d+) MT/s")
_LINE_BYTES = 64


def table_of(run: Run) -> LoadTable:
    """The run's samples as arrays."""
    return LoadTable(run.samples)


def findings(run: Run) -> list[Finding]:
    """Of each pair of nodes the rise and the knee; all cores together; each core; the peak."""
    table, threshold = table_of(run), run.params["threshold_percent"]
    found = []
    for pair, curve in table.curves.items():
        found += [_rises(pair, curve, threshold), _knee(pair, curve, threshold)]
    for pair in table.pairs:
        found += [
            _together(table, pair, kind, threshold)
            for kind in _ordered(table.kinds)
            if table.together(pair, kind) is not None and pair.memory_node == pair.core_node
        ]
    found += _cores(table, _traffic(run, table), threshold)
    if table.moved:
        found.append(_peak(run, table))
    return found


def _ordered(kinds: list[str]) -> list[str]:
    return sorted(kinds, key=lambda kind: KINDS.index(kind) if kind in KINDS else len(KINDS))


def _traffic(run: Run, table: LoadTable) -> str:
    """The kind by which cores are compared: the one that loads memory, where it was measured."""
    kinds = _ordered(table.kinds)
    wanted: str = run.params["traffic"]
    return wanted if wanted in kinds or not kinds else kinds[0]


# --- latency -------------------------------------------------------------------------------------


def _place(pair: Nodes, curve: Curve) -> dict[str, Any]:
    about = {"cpu": curve.cpu, **pair._asdict()}
    return {"about": about, "place": f"cpu{curve.cpu}, memory of node {pair.memory_node}"}


def _prevented(curve: Curve) -> Reason | None:
    if curve.top is None:
        return Reason("one_core")
    rise = curve.rise(curve.top, curve.reference)
    if math.isfinite(rise.half_width) or curve.valid_percent >= _MIN_VALID_PERCENT:
        return None  # too few rounds are another reason
    return Reason("no_valid", {"share": curve.core_percent})


def _rises(pair: Nodes, curve: Curve, threshold: float) -> Finding:
    place = _place(pair, curve)
    over_idle = curve.rise(curve.top, curve.place("idle"))
    over_cache = curve.rise(curve.top, curve.place("cache"))
    rise = over_cache if curve.place("cache") is not None else over_idle
    cache = curve.rise(curve.place("cache"), curve.place("idle"))
    both = curve.place("cache") is not None and math.isfinite(over_idle.half_width)
    against = Reason("against_idle", {"idle": over_idle})
    remarks = []
    if cache.low > 0 and math.isfinite(cache.half_width):
        remarks.append(Reason("control", {"cache": cache}))
    remarks += _state(curve)
    moved = NO_INTERVAL if curve.top is None else curve.moved(curve.top)
    idle, loaded = curve.latency_ns(curve.place("idle")), curve.latency_ns(curve.top)
    return RISES.decided(
        rise,
        threshold,
        about=place["about"],
        facts={
            "place": place["place"],
            "moved": moved.effect,
            "idle_ns": idle.effect,
            "loaded_ns": loaded.effect,
        },
        evidence={
            "idle_ns": list(idle),
            "loaded_ns": list(loaded),
            "moved_gb_s": list(moved),
            "over_idle_percent": list(over_idle),
            "cache_over_idle_percent": list(cache),
            "valid_percent": curve.valid_percent,
        },
        prevented=_prevented(curve),
        to_support=[
            Witness(not both or over_idle.low > 0, against, Reason("against_cache")),
        ],
        remarks=remarks,
    )


def _state(curve: Curve) -> list[Reason]:
    """Which samples count."""
    found = []
    if curve.loaded and curve.valid_percent < _MIN_VALID_PERCENT:
        found.append(Reason("few_valid", {"percent": curve.valid_percent}))
    code = {"alone": "alone", "steadier": "from_all", "all": "not_alone"}[curve.state]
    if curve.loaded:
        found.append(Reason(code, {"percent": curve.alone_percent}))
    return found


def _knee(pair: Nodes, curve: Curve, threshold: float) -> Finding:
    place = _place(pair, curve)
    knee = curve.knee(threshold)
    reason = _prevented(curve)
    verdict: Verdict = "inconclusive"
    if reason is None:
        if knee.code == "no_valid":
            reason = Reason("no_interval")
        else:
            numbers = {"low": knee.gb_s.low, "high": knee.gb_s.high}
            reason = Reason(knee.code, numbers if knee.code in ("between", "up_to") else {})
            if knee.code in ("between", "up_to", "from_start"):
                verdict = "supported"
            elif knee.code == "never":
                verdict = "refuted"
    moved = [curve.moved(at).effect for at in curve.loaded]
    return KNEE.found(
        Decision(verdict, (reason, *_state(curve))),
        knee.gb_s,
        about=place["about"],
        facts={
            "place": place["place"],
            "apart": threshold,
            "moved": max((one for one in moved if math.isfinite(one)), default=math.nan),
        },
    )


# --- bandwidth -----------------------------------------------------------------------------------


def _together(table: LoadTable, pair: Nodes, kind: str, threshold: float) -> Finding:
    all_cores = table.together(pair, kind)
    assert all_cores is not None
    alone = table.alone(pair, kind)
    about = {"core_node": pair.core_node, "memory_node": pair.memory_node, "traffic": kind}
    facts: dict[str, Any] = {"count": len(alone)}
    above, prevented, remarks = NO_INTERVAL, None, []
    if alone:
        fastest = max(alone.values(), key=lambda cores: _or(table.gb_s(cores).effect))
        above = table.above(all_cores, fastest)
        facts |= {
            "together_gb_s": table.gb_s(all_cores).effect,
            "alone_gb_s": table.gb_s(fastest).effect,
        }
        valid = min(table.valid_percent[all_cores], table.valid_percent[fastest])
        if valid < _MIN_VALID_PERCENT:
            remarks.append(Reason("few_valid", {"percent": valid}))
    if not math.isfinite(above.half_width):
        facts |= {"together_gb_s": math.nan, "alone_gb_s": math.nan}
        prevented = Reason("nothing")
    return TOGETHER.decided(
        above, threshold, about=about, facts=facts, prevented=prevented, remarks=remarks
    )


def _or(value: float) -> float:
    return value if math.isfinite(value) else -math.inf


def _cores(table: LoadTable, kind: str, threshold: float) -> list[Finding]:
    """Is a core slower than the others to move the same bytes?"""
    compared = table.cores(kind)
    if compared is None:
        return []
    cpus, comparison = compared
    nodes = {pair.core_node for pair in table.pairs}
    remarks = [Reason("nodes")] if len(nodes) > 1 else []
    return [
        SLOWER.found(
            effect.decide(threshold, remarks),
            effect.slowdown,
            about={"cpu": cpu},
            threshold=threshold,
            facts={"traffic": kind},
            evidence={"p_holm": effect.p_holm, "segments_percent": list(effect.segments)},
        )
        for cpu, effect in zip(cpus, comparison.effects, strict=True)
    ]


def peak_gb_s(modules: str | None) -> float | None:
    """What memory modules can deliver at most, if each has a channel of its own.

    Parameters
    ----------
    modules
        As ``perflib.machine.hardware.firmware`` lists them: speeds in megatransfers per second, of
        8 bytes each. ``None`` is returned where a module's speed is not known, or its width is
        another (HBM, LPDDR).

    >>> peak_gb_s("8 x 32 GiB DDR5 4800 MT/s, 8 empty")
    307.2
    >>> peak_gb_s("1 x 16 GiB memory") is None
    True
    """
    listed = [part for part in (modules or "").split(", ") if not part.endswith(" empty")]
    found = [_MODULES.fullmatch(part) for part in listed if part]
    if not found or any(one is None for one in found):
        return None
    return sum(int(one[1]) * int(one[3]) for one in found if one is not None) * _BYTES / 1e3


def _peak(run: Run, table: LoadTable) -> Finding:
    """The highest bandwidth of all cores of a node, of an equal share of the modules' peak."""
    machine: Mapping[str, Any] = run.provenance.get("machine", {})
    modules = (machine.get("firmware") or {}).get("memory_modules")
    peak = peak_gb_s(modules if isinstance(modules, str) else None)
    if machine.get("hypervisor"):
        return PEAK.found(Decision("inconclusive", (Reason("virtual"),)))
    if peak is None:
        return PEAK.found(Decision("inconclusive", (Reason("unknown"),)))
    peak /= max(len({pair.memory_node for pair in table.pairs}), 1)
    counted = [cores for cores in table.moved if cores.kind in _MOST_SEEN] or list(table.moved)
    best = max((table.gb_s(cores) for cores in counted), key=lambda one: _or(one.effect))
    share = Interval(*(100 * value / peak for value in best))
    return PEAK.decided(
        share,
        100.0,
        facts={"best_gb_s": best.effect, "peak_gb_s": peak},
        remarks=[Reason("modules", {"modules": modules})],
    )


# --- tables --------------------------------------------------------------------------------------


def tables(run: Run) -> dict[str, Callable[[], pd.DataFrame]]:
    """The derived tables; see ``MemoryLoad.tables``."""
    table, threshold = table_of(run), run.params["threshold_percent"]
    return {
        "curve": partial(_curve_frame, table),
        "summary": partial(_summary, table, threshold),
        "bandwidth": partial(_bandwidth_frame, table),
    }


def _curve_frame(table: LoadTable) -> pd.DataFrame:
    """One row a pair of nodes and rate."""
    rows = [
        {
            **pair._asdict(),
            "cpu": curve.cpu,
            "load": rate.load,
            "rate_percent": rate.percent,
            **columns("gb_s", curve.moved(place)),
            **columns("latency_ns", curve.latency_ns(place)),
            **columns("rise_percent", curve.rise(place, curve.reference)),
        }
        for pair, curve in table.curves.items()
        for place, rate in enumerate(curve.rates)
    ]
    names = [*Nodes._fields, "cpu", "load", "rate_percent"]
    ends = [f"{name}{end}" for name in ("gb_s", "latency_ns", "rise_percent")
            for end in ("", "_low", "_high")]  # fmt: skip
    return pd.DataFrame(rows, columns=[*names, *ends])


def _summary(table: LoadTable, threshold: float) -> pd.DataFrame:
    """One row a pair of nodes: what Intel's MLC prints as matrices."""
    rows = []
    for pair in table.pairs:
        curve = table.curves.get(pair)
        most = [table.gb_s(cores).effect for cores in table.moved if Nodes(*cores[:2]) == pair]
        row: dict[str, Any] = pair._asdict()
        if curve is not None:
            row |= columns("idle_ns", curve.latency_ns(curve.place("idle")))
            row |= columns("loaded_ns", curve.latency_ns(curve.top))
            row |= columns("rise_percent", curve.rise(curve.top, curve.reference))
            row |= columns("knee_gb_s", curve.knee(threshold).gb_s)
            most += [curve.moved(place).effect for place in curve.loaded]
        row["most_gb_s"] = max((one for one in most if math.isfinite(one)), default=math.nan)
        rows.append(row)
    ends = [f"{name}{end}" for name in ("idle_ns", "loaded_ns", "rise_percent", "knee_gb_s")
            for end in ("", "_low", "_high")]  # fmt: skip
    return pd.DataFrame(rows, columns=[*Nodes._fields, *ends, "most_gb_s"])


def _bandwidth_frame(table: LoadTable) -> pd.DataFrame:
    """One row of what streams where; ``best_gb_s``: the best of all samples, as STREAM reports."""

    def place(cores: Cores) -> tuple[Any, ...]:
        return (*cores[:2], not cores.streams.isdecimal(), cores.streams,
                _ordered([cores.kind, *KINDS]).index(cores.kind))  # fmt: skip

    rows = [
        {
            **cores._asdict(),
            **columns("gb_s", table.gb_s(cores)),
            "best_gb_s": table.best[cores],
            "valid_percent": table.valid_percent[cores],
        }
        for cores in sorted(table.moved, key=place)
    ]
    names = [*Cores._fields, "gb_s", "gb_s_low", "gb_s_high", "best_gb_s", "valid_percent"]
    return pd.DataFrame(rows, columns=names)


def levels(run: Run) -> pd.DataFrame:
    """Latency at each rate, and what a line takes at each bandwidth: larger is slower."""
    table = table_of(run)
    rows: list[tuple[Any, str, Any, str]] = [
        (
            curve.cpu,
            f"memory_node={pair.memory_node} load={rate.load} rate={rate.percent:g}",
            curve.latency_ns(place).effect,
            "ns",
        )
        for pair, curve in table.curves.items()
        for place, rate in enumerate(curve.rates)
    ]
    for cores in table.moved:
        alone = cores.streams.isdecimal()
        where = f"memory_node={cores.memory_node} core_node={cores.core_node}"
        rows.append(
            (
                int(cores.streams) if alone else -1,
                f"{where} {cores.kind}" if alone else f"{where} {cores.kind} together",
                _LINE_BYTES / table.gb_s(cores).effect,
                "ns",
            )
        )
    return levels_table(rows)
