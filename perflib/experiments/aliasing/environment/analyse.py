"""What the starts show: the size of the environment, the link order, and random addresses."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pandas as pd

from perflib.experiments.aliasing.alone import ALONE, SHARED, State
from perflib.experiments.aliasing.environment import claims
from perflib.experiments.aliasing.environment.table import AliasEnvTable
from perflib.framework.samples import mean_of_known
from perflib.model.finding import Finding
from perflib.model.run import Run
from perflib.stats.compare import compare_cores
from perflib.stats.decide import Decision, Reason
from perflib.stats.interval import Interval, percent
from perflib.stats.intervals import share_interval, t_interval

_HALF = 50.0  # percent
_SPIKE = 0.5  # aliases an iteration


def table_of(run: Run, state: State = ALONE) -> AliasEnvTable:
    """A run's samples, with its simulated counts."""
    simulated, iterations = run.provenance.get("simulated"), run.params["iterations"]
    return AliasEnvTable(run.samples, simulated, iterations, state)


def findings(run: Run) -> list[Finding]:
    """All that the samples allow."""
    table, threshold = table_of(run), run.params["threshold_percent"]
    found = [_environment(table, threshold), _simulated(table)] if table.sizes else []
    if len(table.orders) > 1:
        found += [_link_order(table, threshold), *_aliased_orders(table, threshold)]
    if len(table.randomised):
        found.append(_aslr(table))
    shared = percent(t_interval(table_of(run, SHARED).extra()))
    if math.isfinite(shared.half_width):
        found.append(claims.ENVIRONMENT_SHARED.decided(shared, threshold))
    return found


def _environment(table: AliasEnvTable, threshold: float) -> Finding:
    effect = percent(t_interval(table.extra()))
    most = max(effect.high, 0.0)
    bound = Reason("at_most", {"most": most, "most_ns": table.base_ns * most / 100})
    pairs = table.pairs()
    return claims.ENVIRONMENT.decided(
        effect,
        threshold,
        evidence={
            "predicted_bytes": table.predicted,
            "pairs": {size: pairs.get(size, "") for size in table.predicted},
            "sizes": len(table.sizes),
            "rounds": len(table.rounds),
        },
        prevented=None if table.predicted else Reason("never_agree"),
        remarks=[bound] if math.isfinite(effect.half_width) else [],
    )


def _simulated(table: AliasEnvTable) -> Finding:
    """Exactly the sizes at which printed addresses agree, and no others?"""
    counts, actual = table.simulated_counts, set(table.pairs())
    if counts is None or table.simulated is None or not np.isfinite(counts).any():
        return claims.SIMULATED.found(Decision("inconclusive", (Reason("not_simulated"),)))
    by_size = dict(zip(table.sizes, map(float, counts), strict=True))
    spikes = {size: count for size, count in by_size.items() if count >= _SPIKE}
    others = [count for size, count in by_size.items() if size not in spikes]
    wrong = len(spikes.keys() ^ actual)
    return claims.SIMULATED.found(
        _spikes_decision(table, set(spikes), actual),
        Interval(float(wrong), math.nan, math.nan),
        evidence={
            "spikes_bytes": sorted(spikes),
            "printed_bytes": sorted(actual),
            "aliases_per_iteration": list(spikes.values()),
            "elsewhere_per_iteration": float(np.nanmax([0.0, *others])),
            "model": f"simulated: {table.simulated['model']}",
        },
    )


def _spikes_decision(table: AliasEnvTable, spikes: set[int], actual: set[int]) -> Decision:
    rows = table.simulated["rows"] if table.simulated else []
    if elsewhere := sum(not row["same_place"] for row in rows):
        return Decision("inconclusive", (Reason("elsewhere", {"count": elsewhere}),))
    if not actual:
        never = Reason("never_agree", {"spikes": len(spikes)})
        return Decision("refuted" if spikes else "inconclusive", (never,))
    numbers = {
        "right": len(spikes & actual), "predicted": len(actual), "others": len(spikes - actual),
    }  # fmt: skip
    agree = spikes == actual
    return Decision("supported" if agree else "refuted", (Reason("spikes", numbers),))


def _link_order(table: AliasEnvTable, threshold: float) -> Finding:
    """Is any order slower than the others, for whatever reason?"""
    compared = compare_cores(table.order_log_ns(), table.start_s)
    effects = [effect.slowdown.effect for effect in compared.effects]
    place = int(np.argmax(np.nan_to_num(effects, nan=-math.inf)))
    effect, slowest = compared.effects[place], table.orders[place]
    each = zip(table.orders, compared.effects, strict=True)
    return claims.LINK_ORDER.found(
        effect.decide(threshold, [Reason("slowest")]),
        effect.slowdown,
        threshold=threshold,
        facts={"slowest": slowest},
        evidence={
            "slowest": slowest,
            "percent": {order: list(one.slowdown) for order, one in each},
            "pairs": table.order_pairs,
            "p_holm": effect.p_holm,
        },
    )


def _aliased_orders(table: AliasEnvTable, threshold: float) -> list[Finding]:
    """Are the orders slower in which addresses agree?"""
    pairs = table.order_pairs
    marked = np.array([bool(pairs.get(order)) for order in table.orders])
    if marked.all() or not marked.any():
        return []
    logs = table.order_log_ns()
    extra = mean_of_known(logs[:, marked]) - mean_of_known(logs[:, ~marked])
    effect = percent(t_interval(table.by_block(extra)))
    return [claims.ALIASED_ORDERS.decided(effect, threshold, evidence={"pairs": pairs})]


def _aslr(table: AliasEnvTable) -> Finding:
    """At a predicted size, with random addresses: how many starts still have the agreement?"""
    rows = table.randomised
    hit = rows["predicted"].astype(bool).to_numpy()
    share = share_interval(hit, np.ones(len(rows)), np.zeros(len(rows), dtype=np.int64))
    effect = Interval(*(100 * end for end in share))
    expected = 100 * len(table.pairs()) / max(len(table.sizes), 1)
    within = effect.low <= expected <= effect.high
    numbers = {"hits": int(hit.sum()), "starts": len(rows), "expected": expected}
    fixed = "inc_address" in rows and rows["inc_address"].nunique() == 1 and len(rows) > 1
    return claims.ASLR.decided(
        effect,
        _HALF,
        evidence={
            "environment_bytes": sorted({int(size) for size in rows["environment_bytes"]}),
            "expected_percent": expected,
            "starts": len(rows),
        },
        prevented=Reason("fixed") if fixed else None,
        remarks=[Reason("as_expected" if within else "not_as_expected", numbers)],
    )


def tables(run: Run) -> dict[str, Callable[[], pd.DataFrame]]:
    """The derived tables; see ``AliasEnvironment.tables``."""
    table = table_of(run)
    return {
        "environment": lambda: _by_size(run, table),
        "predicted": lambda: pd.DataFrame(
            sorted(table.pairs().items()), columns=["environment_bytes", "pairs"]
        ),
        "addresses": table.addresses,
        "starts": lambda: _starts(run.samples),
        "counters": table.ranking,
        "link_order": table.by_order,
        "aslr": table.single_starts,
    }


def _by_size(run: Run, alone: AliasEnvTable) -> pd.DataFrame:
    """Of each size; with ``shared_...`` times where a busy sibling was seen."""
    found, shared = alone.by_size(), table_of(run, SHARED)
    if not shared.used.any():
        return found
    times = shared.by_size()[["iteration_ns", "iteration_ns_low", "iteration_ns_high"]]
    return found.join(times.add_prefix("shared_"))


def _starts(samples: pd.DataFrame) -> pd.DataFrame:
    right = samples["ok"] if "ok" in samples else pd.Series(True, samples.index)
    by_kind = right.astype(bool).groupby(samples["kind"])
    return by_kind.agg(starts="size", as_requested="sum").reset_index()
