"""The farm's table: levels and nodes, from the store's runs and from what a plan's user says."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from perflib.framework.results import NODE_WRONG, SECOND_OPINION, WRONG, WRONG_TIMES
from perflib.model.errors import UserError
from perflib.model.escape import from_csv_cell
from perflib.model.finding import Finding
from perflib.stats.decide import Decision, Reason
from perflib.store.files import json_of

_GIB = 2**30
_MACHINE = ("kernel", "microcode", "hypervisor", "system", "clocksource")
_LEVELS = ("node", "model", "cpu", "start", "experiment", "setting", "value", "run")


def farm_table(
    plan: Path | None = None, folder: Path | None = None
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Levels and nodes of all saved runs, or of those that were collected of a plan.

    Parameters
    ----------
    plan
        The folder of a plan: its runs, under its names of nodes, with the attributes of its
        ``nodes.csv``, which count before what was recorded.
    folder
        Of runs that are in no store.

    Returns
    -------
    ``levels`` (``node, model, cpu, start, experiment, setting, value, run, socket``) and ``nodes``
    (``node, model, rack`` where one is known, and all attributes as text). Attributes are those of
    a node's last run.

    Raises
    ------
    UserError
        There are no runs, the plan was not collected, or it is no plan.
    """
    from perflib.store.query import query

    runs = runs_of(plan, folder)
    sql = "SELECT run, experiment, start, cpu, setting, value FROM levels"
    levels = query(sql, folder=folder)
    nodes, sockets = _nodes(runs)
    if plan is not None:
        nodes = _given(nodes, plan)
    names = runs.set_index("run")["node"]
    models = nodes.set_index("node")["model"]
    levels = levels[levels["run"].isin(names.index)]
    node = levels["run"].map(names)
    levels = levels.assign(
        node=node,
        model=node.map(models),
        start=pd.to_datetime(levels["start"], utc=True).astype("datetime64[ns, UTC]"),
    )
    levels = levels[list(_LEVELS)].merge(sockets, how="left", on=["node", "cpu"])
    return levels.reset_index(drop=True), nodes


def wrong_results(plan: Path | None = None) -> list[Finding]:
    """What the farm's runs report of wrong results, by node and core; parameters as above."""
    from perflib.store.query import query

    found = query(
        f"SELECT * FROM findings WHERE claim IN {WRONG} AND verdict <> 'refuted' "
        f"OR claim = '{SECOND_OPINION}' AND verdict = 'supported'"
    )
    if found.empty:
        return []
    found["node"] = found["run"].map(runs_of(plan).set_index("run")["node"])
    found = found.dropna(subset="node").sort_values(["verdict", "start"])
    wrong = []
    for (node, core), mine in found.groupby(["node", "subject"]):
        sure = len(mine) >= WRONG_TIMES or mine["verdict"].iloc[-1] == "supported"
        why = Reason("runs", {"runs": list(mine["run"])})
        decision = Decision("supported" if sure else "inconclusive", (why,))
        facts, about = {"result": mine["plain"].iloc[-1]}, {"node": node, "core": core}
        wrong.append(NODE_WRONG.found(decision, about=about, facts=facts))
    return wrong


def runs_of(plan: Path | None, folder: Path | None = None) -> pd.DataFrame:
    """Runs of known nodes: of a plan those that were collected, by its names."""
    from perflib.store.query import query

    listed = _of_plan(plan) if plan is not None else None
    # Exercises disturb the machine on purpose.
    runs = query(
        "SELECT run, node, model, start, provenance FROM runs "
        "WHERE split_part(tag, ' ', 1) IS DISTINCT FROM 'exercise'",
        folder=folder,
    )
    if listed is not None:
        runs = runs[runs["run"].isin(list(listed))].assign(
            node=lambda rows: rows["run"].map(listed)
        )
    runs = runs.dropna(subset="node").assign(start=pd.to_datetime(runs["start"], utc=True))
    if runs.empty:
        msg = "no run is of a known node: measure, or collect a plan with 'perflib fleet collect'"
        raise UserError(msg)
    return runs


def _nodes(runs: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """One row a node, of its last run; and the socket of each cpu."""
    last = (
        runs.sort_values("start", kind="stable")
        .drop_duplicates("node", keep="last")
        .sort_values("node", kind="stable")
    )
    rows, sockets = [], []
    for node, model, provenance in zip(
        last["node"], last["model"], last["provenance"], strict=True
    ):
        machine = _machine(provenance)
        known = model if isinstance(model, str) and model else machine.get("processor")
        rows.append({"node": node, "model": known or "unknown model", **attributes_of(machine)})
        sockets += [(node, cpu, package) for cpu, package in _packages(machine)]
    return pd.DataFrame(rows), pd.DataFrame(sockets, columns=["node", "cpu", "socket"])


def _machine(provenance: object) -> Mapping[str, Any]:
    try:
        found = json_of(provenance) if isinstance(provenance, str) else provenance
    except ValueError:
        return {}
    machine = found.get("machine") if isinstance(found, Mapping) else None
    return machine if isinstance(machine, Mapping) else {}


def _packages(machine: Mapping[str, Any]) -> Iterator[tuple[int, int]]:
    for one in machine.get("cpus") or ():
        if isinstance(one, Mapping):
            cpu, package = one.get("cpu"), one.get("package")
            if isinstance(cpu, int) and isinstance(package, int):
                yield cpu, package


def attributes_of(machine: Mapping[str, Any]) -> dict[str, str]:
    """What a run's record says of a machine that may differ between nodes of a model, as text."""
    found = {name: machine.get(name) for name in _MACHINE}
    memory = machine.get("memory_bytes")
    if isinstance(memory, int):
        found["memory"] = f"{memory / _GIB:.0f} GiB"
    for part, head in (("firmware", ""), ("settings", ""), ("mitigations", "mitigation ")):
        values = machine.get(part)
        if isinstance(values, Mapping):
            found |= {f"{head}{name}": value for name, value in values.items()}
    return {name: str(value) for name, value in found.items() if isinstance(value, str | int)}


def _given(nodes: pd.DataFrame, plan: Path) -> pd.DataFrame:
    """With the attributes of the plan's ``nodes.csv``, which win."""
    from perflib.fleet.nodes import read

    given = pd.DataFrame(
        [{"node": one.name, **one.attributes} for one in read(plan / "nodes.csv")]
    ).drop_duplicates("node")
    given = given.set_index("node").replace("", None)
    known = nodes.set_index("node")
    both = given.reindex(known.index).combine_first(known)
    both["model"] = both["model"].fillna("unknown model")
    return both.reset_index()


def _of_plan(plan: Path) -> dict[str, str]:
    """The node of each run that was collected."""
    path = plan / "collected.csv"
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = [{k: from_csv_cell(v) for k, v in row.items()} for row in csv.DictReader(file)]
        return {row["run"]: row["node"] for row in rows if row["run"]}
    except FileNotFoundError:
        msg = f"nothing was collected of {plan}: 'perflib fleet collect {plan}' does it"
        raise UserError(msg) from None
    except (OSError, KeyError, TypeError, ValueError, csv.Error) as error:
        msg = f"{path} cannot be read ({error}): 'perflib fleet collect {plan}' writes it again"
        raise UserError(msg) from error
