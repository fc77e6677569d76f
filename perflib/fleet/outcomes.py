"""What became of each row of a plan: its state, and why, from nothing but the plan's files.

==============  =================================================================================
``done``        its result is there and whole
``running``     a job has begun and may still be at work
``waiting``     no job has begun
``failed``      the measurement failed, or its job; the reason says at what
``too slow``    it ran into its time limit
``cancelled``   somebody, or the scheduler, ended it by a signal
``wrong node``  the job found itself on another machine than the manifest names
``refused``     this node's perflib, kernels or clock are not what the plan wants
``unreachable`` no job could begin there: the scheduler does not know it, or it is down
``lost``        a job began and never ended: killed, or its node is lost
==============  =================================================================================
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perflib.fleet import attempts, results
from perflib.fleet.attempts import Attempt
from perflib.fleet.complaints import Complaint, complaints
from perflib.fleet.driver import is_driven
from perflib.fleet.manifest import Row
from perflib.fleet.plan import Plan
from perflib.machine.processes import is_gone

if TYPE_CHECKING:
    import pandas as pd

STATES = (
    "done", "running", "waiting", "failed", "too slow", "cancelled", "wrong node", "refused",
    "unreachable", "lost",
)  # fmt: skip
_FACTS = ("run", "seconds", "alone", "engine_cpu_s", "others_cpu_s")  # of an attempt's end
_ENDING_S = 120.0  # after its limit, before a job is given up: it ends, and copies


@dataclass(frozen=True)
class Outcome:
    """What became of a row; ``None`` where it is not known.

    ``alone``: the other processes of that machine used less than a tenth of a core meanwhile.
    ``second`` names second results of the same key, in ``second/``.
    """

    key: str
    node: str
    experiment: str
    state: str
    reason: str = ""
    run: str | None = None
    started: str | None = None
    seconds: float | None = None
    attempts: int = 0
    alone: bool | None = None
    engine_cpu_s: float | None = None
    others_cpu_s: float | None = None
    second: tuple[str, ...] = field(default=())


def outcomes(plan: Plan) -> list[Outcome]:
    """The outcome of each row, in the manifest's order."""
    tried = attempts.latest(plan)
    said = complaints(plan)
    second = results.second_results(plan)
    driven = is_driven(plan)
    return [
        _outcome(plan, row, tried.get(row.key, []), said, driven, second.get(row.key, []))
        for row in plan.rows.values()
    ]


def _outcome(
    plan: Plan,
    row: Row,
    mine: list[Attempt],
    said: Mapping[str, Complaint],
    driven: bool,
    second: list[Path],
) -> Outcome:
    state, reason = _state(plan, row, mine, said, driven)
    made = [one for one in mine if one.end.get("state") == "done" and "second" not in one.end]
    start, end = dict[str, Any](), dict[str, Any]()
    if mine:
        shown = made[-1] if made and state == "done" else mine[-1]
        start, end = shown.start, shown.end
    if second:
        reason = "; ".join(filter(None, [reason, f"{len(second)} more in second/"]))
    facts: dict[str, Any] = {name: end.get(name) for name in _FACTS}
    names = tuple(path.name for path in second)
    place = (row.key, row.node, row.experiment)
    return Outcome(
        *place, state, reason, started=start.get("start"), attempts=len(mine), second=names, **facts
    )


def table(plan: Plan) -> pd.DataFrame:
    """The outcomes, a row each: key, node, experiment, state, reason, run, started, seconds ..."""
    import pandas as pd

    return pd.DataFrame([asdict(one) for one in outcomes(plan)])


def _state(
    plan: Plan, row: Row, mine: list[Attempt], said: Mapping[str, Complaint], driven: bool
) -> tuple[str, str]:
    """A row's state, and why it is not done."""
    if results.is_done(plan, row.key):
        return "done", ""
    complaint = said.get(row.key)
    last = mine[-1] if mine else None
    if last is not None and last.end:
        if last.end["state"] == "done":
            return "failed", f"its result is damaged or gone (run {last.end.get('run')})"
        return str(last.end["state"]), str(last.end["reason"])
    if last is not None:
        if complaint is not None:
            state = "lost" if complaint.state in ("failed", "unreachable") else complaint.state
            return state, complaint.reason
        host = last.start.get("host", "an unknown host")
        return ("running", f"on {host}") if _may_run(row, last) else ("lost", _lost(last))
    if complaint is not None:
        return complaint.state, complaint.reason
    return "waiting", "" if driven else f"'perflib fleet run {plan.folder.name}' continues"


def _may_run(row: Row, attempt: Attempt) -> bool:
    if attempt.start.get("host") == os.uname().nodename and is_gone(int(attempt.start["pid"])):
        return False
    with contextlib.suppress(OSError):
        began = attempt.path.stat().st_mtime
        return datetime.now(UTC).timestamp() < began + row.limit_s + _ENDING_S
    return False


def _lost(attempt: Attempt) -> str:
    where, began = attempt.start.get("host"), str(attempt.start.get("start"))[:19]
    return f"begun on {where} at {began}, and never ended: killed, or the node is lost"
