"""A guest and its host, as a notebook and the command line ask for them."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from dataclasses import replace
from typing import Any

from perflib.lab.interface import Findings
from perflib.lab.notebook import given_names
from perflib.model.errors import UserError
from perflib.model.run import Run, recordings_of

_ASKED = ("host", "guest", "budget_s", "threshold_percent", "recorded")


def pair_question(namespace: MutableMapping[str, Any]) -> dict[str, Any]:
    """Validate the parameters cell of the notebook; call it with ``globals()`` right after.

    Raises
    ------
    UserError
        A name is no parameter (the nearest one is given), one of host and guest is missing, or a
        number is not positive.
    """
    given_names(namespace, _ASKED)
    asked = {name: namespace[name] for name in _ASKED if name in namespace}
    if bool(asked.get("host")) != bool(asked.get("guest")):
        msg = "give both host and guest, or neither: then this machine stands for both"
        raise UserError(msg)
    for name in ("budget_s", "threshold_percent"):
        value = asked.get(name, 1)
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            msg = f"parameter {name!r}: {value!r}: a number above 0"
            raise UserError(msg)
    return asked


def pair(
    host: str | Run | Sequence[Run],
    guest: str | Run | Sequence[Run],
    threshold_percent: float = 1.0,
) -> Findings:
    """What the same work takes longer in a virtual machine than on its host, part by part.

    Parameters
    ----------
    host, guest
        Runs of ``kv_per_core``: one each, or two each with ``huge_pages`` ``never`` and ``always``;
        or a machine's name, as of `runs_of_machine`.
    threshold_percent
        From what on a part counts.

    Raises
    ------
    UserError
        These runs make no pair: see `perflib.experiments.kv_per_core.pair`.
    """
    from perflib.experiments.kv_per_core.pair import pair as compared

    def runs_of(given: str | Run | Sequence[Run]) -> Sequence[Run]:
        if isinstance(given, str):
            return runs_of_machine(given)
        return [given] if isinstance(given, Run) else given

    both = [*runs_of(host), *runs_of(guest)]
    found = compared(runs_of(host), runs_of(guest), threshold_percent)
    return Findings(replace(one, recorded=recordings_of(both)) for one in found)


def runs_of_machine(name: str) -> list[Run]:
    """A run that is named; or the newest runs of ``kv_per_core`` on the machine of that name.

    Of those there is one for each value of ``huge_pages``.

    Raises
    ------
    UserError
        There is neither.
    """
    from perflib.store import run_files
    from perflib.store.query import query

    known = query(
        "SELECT run, node, json_extract_string(params, '$.huge_pages') AS pages FROM runs "
        "WHERE experiment = 'kv_per_core' "
        "AND split_part(tag, ' ', 1) IS DISTINCT FROM 'exercise' ORDER BY start"
    )
    here = known[known["node"] == name]
    if here.empty:
        try:
            return [run_files.load(name)]
        except UserError as error:
            machines = sorted(set(known["node"].dropna()))
            msg = f"{error}; nor is there a run of kv_per_core on a machine of that name"
            raise UserError(f"{msg}, but on {', '.join(machines)}" if machines else msg) from error
    return [run_files.load(run) for run in here.groupby("pages", dropna=False)["run"].last()]
