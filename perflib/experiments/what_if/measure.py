"""The job with each target faster, virtually and really, round by round."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from perflib.experiments.what_if import CANNOT_SEE, WhatIfParams, sizes_of
from perflib.experiments.what_if.table import GainTable
from perflib.framework.experiment import Session
from perflib.framework.jobs import Jobs
from perflib.framework.results import results
from perflib.instruments.joblog.jobrun import job_argv
from perflib.instruments.what_if.shared import NO_TARGET, AddressRange, VirtualSpeedup
from perflib.instruments.what_if.targets import costliest, functions, locks
from perflib.instruments.what_if.trial import run_trial
from perflib.kernels import build
from perflib.measure.jobs import event_loop
from perflib.measure.process import WorkerError
from perflib.measure.schedule import Columns
from perflib.model.errors import MeasurementError, UserError

_MIN_S = 8.0
_SIZE_OF = {  # of the event loop: the size that makes a target cheaper, and nothing else
    "formula_parse": "formula",
    "formula_construct": "formula",
    "formula_lock": "formula",
    "interface_call": "interface",
    "interface_lock": "interface",
    "item_evaluate": "queue",
    "output_pack": "output",
    "checksum_class": "checksum",
    "class_lock": "checksum",
    "merge": "merge",
}
_USUAL = {  # kernels_c/common/event_loop_main.h, without a size of the user's
    "formula": 750,
    "interface": 80,
    "queue": 4000,
    "output": 1800,
    "checksum": 1000,
    "merge": 20000,
}


def plan(params: WhatIfParams) -> dict[str, Any]:
    """The CPUs; the targets need a run of the job and come with the pilot."""
    _argv(params)  # a wrong command fails here
    return {"cpus": params.resolved_cores()}


def pilot(params: WhatIfParams, plan: Mapping[str, Any]) -> dict[str, Any]:
    """The targets, by a run that names the job's files and one under a profile."""
    how: dict[str, Any] = {
        "conditions": params.conditions(None),
        "cpus": plan["cpus"],
        "timeout_s": params.job_timeout_s,
    }
    argv = _argv(params)
    try:
        first = run_trial(argv, NO_TARGET, 0.0, **how)
    except WorkerError as error:
        raise MeasurementError(str(error)) from error
    targets: list[VirtualSpeedup] = []
    for expression in params.functions:
        targets += functions(expression, first.modules)
    targets += locks(params.locks, first.modules)
    if not targets:
        targets = costliest(
            argv,
            first.modules,
            most_functions=params.most_functions,
            most_locks=params.most_locks,
            **how,
        )
    if not targets:
        msg = (
            "no function of the job has a name: build it without stripping its symbols, or name a "
            "lock (locks)"
        )
        raise UserError(msg)
    targets = list({(one.kind, one.name): one for one in targets}.values())
    return {
        "targets": [asdict(one) for one in targets],
        "configurations": _configurations(params, targets),
    }


def _configurations(params: WhatIfParams, targets: list[VirtualSpeedup]) -> list[list[Any]]:
    """Which target, which way, and how much faster."""
    found: list[list[Any]] = [[0, "again", 0.0]]
    for which, target in enumerate(targets):
        found.append([which, "control", 0.0])
        found += [[which, "virtual", percent] for percent in params.speedups]
        if params.truth and params.job == "event_loop" and target.name in _SIZE_OF:
            found += [[which, "real", percent] for percent in params.speedups]
    return found


def take(params: WhatIfParams, session: Session) -> str:
    """Every target in every way once a round."""
    trials = _Trials(params, session.plan)
    stopped = session.rounds(
        params,
        len(session.plan["configurations"]),
        trials.take,
        lambda samples: GainTable(samples).half_width(),
        least_s=_MIN_S,
    )
    if params.job == "event_loop":
        session.provenance["program"] = build("event_loop", executable=True).provenance
    session.provenance["kernel"] = build("what_if").provenance
    session.note(trials)
    session.problems += [CANNOT_SEE, *trials.problems]
    return stopped


class _Trials(Jobs):
    """Starts the job for each trial."""

    def __init__(self, params: WhatIfParams, plan: Mapping[str, Any]) -> None:
        super().__init__(" ".join(_argv(params)), [params.conditions(None)])
        self._params, self._plan = params, plan
        self._any = False
        self._checksums: dict[tuple[str, float], str] = {}
        self._problems: dict[str, None] = {}
        self._targets = [
            VirtualSpeedup(
                one["kind"], one["name"], tuple(AddressRange(**each) for each in one["places"])
            )
            for one in plan["targets"]
        ]

    @property
    def problems(self) -> list[str]:
        """What was wrong with some trials."""
        return list(self._problems)

    def take(self, _round: int, place: int) -> Columns:
        """One trial: one row."""
        which, way, percent = self._plan["configurations"][place]
        target, start_ns = self._targets[which], time.monotonic_ns()
        try:
            done = run_trial(
                _argv(self._params, target.name if way == "real" else "", percent),
                target,
                percent if way == "virtual" else 0.0,
                conditions=self.conditions[0],
                cpus=self._plan["cpus"],
                period_us=self._params.sample_period_us,
                callers=self._params.callers,
                timeout_s=self._params.job_timeout_s,
                seen=lambda pid: self.read_back(0, pid),
            )
        except WorkerError as error:
            if not self._any:  # not even once: another trial would fail, too
                raise MeasurementError(str(error)) from error
            raise
        self._any = True
        if not done.found:
            self._problems[f"{target.name}: its file was not loaded in some trials"] = None
        wrong = self._wrong(target.name, way, percent, done.ran.output)
        row = {
            "target": target.name,
            "kind": target.kind,
            "way": way,
            "speedup_percent": percent,
            "cpus": len(self._plan["cpus"]),
            "start_ns": start_ns,
            "ok": done.found and not wrong,
        }
        names = ("job_s", "delay_s", "target_s", "cpu_s", "run_queue_s", "samples", "threads")
        row |= {name: getattr(done, name) for name in (*names, "target_samples", "sections")}
        row["ticks"] = done.ticks
        return {name: [value] for name, value in row.items()} | wrong

    def _wrong(self, name: str, way: str, percent: float, output: str) -> Columns:
        """The columns of a result that is not what the first trial of its kind computed."""
        if self._params.job != "event_loop":
            return {}
        key = (name, percent) if way == "real" else ("", 0.0)
        checksum = event_loop.Account.parse(output).checksum
        if found := results([self._checksums.setdefault(key, checksum)], [checksum]):
            self._problems["the job's result differs from trial to trial"] = None
        return found


def _argv(params: WhatIfParams, cheaper: str = "", percent: float = 0.0) -> list[str]:
    """The job's command; of the event loop with a target so many percent cheaper."""
    if params.job == "command":
        return job_argv(params.job_command, first=0, events=params.events, seed=params.seed)
    sizes = sizes_of(params.sizes)
    if cheaper:
        name = _SIZE_OF[cheaper]
        least = 1 if name == "merge" else 0
        usual = sizes.get(name, _USUAL[name])
        sizes[name] = max(least, round(usual * (1 - percent / 100)))
    threads = params.threads or len(params.resolved_cores())
    return event_loop.argv(threads, params.events, params.points, seed=params.seed, sizes=sizes)
