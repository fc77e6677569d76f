"""What a matrix of memory latencies says: groups, the kernel's names, own memory, each core."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from perflib.experiments.core_pairs.analyse import (
    class_records,
    core_findings,
    found_groups,
    groups_finding,
    kernel_finding,
)
from perflib.experiments.core_pairs.cells import Cells, PairColumns
from perflib.experiments.core_pairs.numa.claims import DISTANCES, OWN
from perflib.experiments.core_pairs.tables import cells_frame, classes_frame
from perflib.framework.published import published
from perflib.model.finding import Finding
from perflib.model.run import Run
from perflib.stats.clusters import Groups
from perflib.stats.decide import Decision, Reason
from perflib.stats.interval import Interval, percent

COLUMNS = PairColumns("alloc", "load", "cycles")


def cells_of(samples: pd.DataFrame) -> Cells:
    """The matrix: memory of which core, loaded by which."""
    return Cells(samples, COLUMNS)


def findings(run: Run) -> list[Finding]:
    """Groups, what the kernel names, a core's own memory, and each core."""
    cells = cells_of(run.samples)
    found = found_groups(cells, run)
    groups = groups_finding(cells, run, "memory", _classes(cells, found))
    more = [
        kernel_finding(cells, run, groups),
        _distances(cells, run, found),
        _own(run, found),
    ]
    return [
        groups,
        *(finding for finding in more if finding is not None),
        *core_findings(cells, run, "in loading memory"),
    ]


def _classes(cells: Cells, found: Groups) -> list[dict[str, Any]]:
    """The classes of distance, with their latency in ns, where that is known."""
    records, samples = class_records(cells, found), cells.samples
    if "latency_ns" not in samples:
        return records
    known = samples[samples["latency_ns"] > 0]
    by_cell = known.groupby(["alloc_cpu", "load_cpu"])["latency_ns"].median()
    matrix = by_cell.unstack().reindex(index=cells.cpus, columns=cells.cpus).to_numpy(np.float64)
    others = np.isfinite(matrix) & ~np.eye(len(matrix), dtype=bool)
    for number, record in enumerate(records):
        mine = matrix[(found.membership == number) & others]
        record["latency_ns"] = float(np.exp(np.log(mine).mean())) if mine.size else None
    return records


def _own(run: Run, found: Groups) -> Finding | None:
    """Is memory that a core touched itself nearer than what others of its group touched?

    ``None`` where one of both was not measured.
    """
    apart = percent(found.own)
    if not math.isfinite(apart.effect):
        return None
    return OWN.decided(apart, run.params["threshold_percent"])


# --- the kernel's distances ----------------------------------------------------------------------


def _distances(cells: Cells, run: Run, found: Groups) -> Finding | None:
    """Is what the kernel calls farther never nearer?

    The kernel's distances are those that the firmware claims (ACPI's SLIT, as ``numactl
    --hardware`` shows them). Each two pairs of cores whose distances differ and whose classes do,
    too, are compared; the effect is the share that both put into the same order.

    Returns
    -------
    ``None`` where the kernel knows of one distance only.
    """
    machine = run.provenance.get("machine", {})
    place_of = {node["node"]: place for place, node in enumerate(machine.get("nodes", ()))}
    claimed = [node["distances"] for node in machine.get("nodes", ())]
    node_of = {place["cpu"]: place["node"] for place in machine.get("cpus", ())}
    places = [place_of.get(node_of.get(cpu), -1) for cpu in cells.cpus]
    if -1 in places or any(len(row) != len(claimed) for row in claimed):
        return None
    distance = np.array(claimed)[np.ix_(places, places)]
    paired = found.membership >= 0
    np.fill_diagonal(paired, val=False)
    kinds = sorted(set(distance[paired].tolist()))
    if len(kinds) < 2:
        return None
    classes = range(len(found.classes))
    counts = np.array(
        [[(paired & (distance == far) & (found.membership == n)).sum() for n in classes]
         for far in kinds],
        dtype=np.float64,
    )  # fmt: skip
    same, against = _orders(counts)
    decision, share = Decision("inconclusive", (Reason("one_class"),)), math.nan
    if same + against:
        share = 100 * same / (same + against)
        decision = (
            Decision("refuted", (Reason("against"),))
            if against
            else Decision("supported", (Reason("in_order"),))
        )
    return DISTANCES.found(
        decision,
        Interval(share, math.nan, math.nan),
        facts={"against": 100 - share},
        evidence={
            "classes_at_distance": {
                str(far): [found.classes[n].effect for n in np.flatnonzero(row)]
                for far, row in zip(kinds, counts, strict=True)
            }
        },
    )


def _orders(counts: NDArray[np.float64]) -> tuple[float, float]:
    """How many comparisons go the same way in a table of counts ``[distance, class]``, or not."""

    def beyond(table: NDArray[np.float64]) -> float:
        """Of each pair of entries, one lower and to the right of the other."""
        rows = range(len(table) - 1)
        columns = range(table.shape[1] - 1)
        return float(
            sum(table[i, j] * table[i + 1 :, j + 1 :].sum() for i in rows for j in columns)
        )

    return beyond(counts), beyond(counts[:, ::-1])


# --- tables --------------------------------------------------------------------------------------


def tables(run: Run) -> dict[str, Callable[[], pd.DataFrame]]:
    """The derived tables; see ``Numa.tables``."""
    cells = cells_of(run.samples)

    def classes() -> pd.DataFrame:
        return classes_frame(cells, found_groups(cells, run))

    return {
        "heatmap": partial(_heatmap, cells, run),
        "groups": classes,
        "classes": classes,
        "class_latencies": lambda: pd.DataFrame(_classes(cells, found_groups(cells, run))),
        "kernel_groups": partial(_kernel_groups, cells, run),
        "beside_published": partial(_beside_published, cells, run),
    }


def _heatmap(cells: Cells, run: Run) -> pd.DataFrame:
    """The cells, by nodes: those of the samples, or of the machine's description."""
    machine = run.provenance.get("machine", {})
    node = {p["cpu"]: p["node"] for p in machine.get("cpus", ()) if p["node"] is not None}
    for side in (COLUMNS.from_, COLUMNS.to):
        if f"{side}_node" in cells.samples:
            pairs = cells.samples[[f"{side}_cpu", f"{side}_node"]].dropna().drop_duplicates()
            node |= {int(cpu): int(at) for cpu, at in pairs.itertuples(index=False)}
    order = sorted(cells.cpus, key=lambda cpu: (node.get(cpu, -1), cpu))
    return cells_frame(cells, order, node=node)


def _kernel_groups(cells: Cells, run: Run) -> pd.DataFrame:
    """One row for each group that the kernel names, and how well its kind fits those found."""
    kernel = kernel_finding(cells, run, groups_finding(cells, run, "memory"))
    rows = [
        (kind, cpus, kernel.evidence["agreement_percent"][kind])
        for kind, groups in kernel.evidence["kernel"].items()
        for cpus in groups
    ] if kernel is not None else []  # fmt: skip
    return pd.DataFrame(rows, columns=["kind", "cpus", "agreement_percent"])


def published_memory() -> pd.DataFrame:
    """Latencies of memory on two servers, by Derumigny and Thomas 2018."""
    table = published("microbench_latency")
    table = table[table["level"].str.contains("RAM")]
    return table[["machine", "level", "latency_cycles"]].reset_index(drop=True)


def _beside_published(cells: Cells, run: Run) -> pd.DataFrame:
    here = pd.DataFrame(_classes(cells, found_groups(cells, run)))
    here = here.rename(columns={"latency": "latency_cycles"})
    here["machine"] = "this one"
    here["level"] = [f"class {number + 1}" for number in range(len(here))]
    columns = ["machine", "level", "latency_cycles", "latency_ns"]
    return pd.concat([published_memory(), here]).reindex(columns=columns).reset_index(drop=True)
