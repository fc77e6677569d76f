"""The job next to each dose, round by round."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from perflib.experiments.sensitivity import CANNOT_SEE, OWN_JOBS, SensitivityParams
from perflib.experiments.sensitivity.doses import (
    ARENA,
    MIB,
    Dose,
    Trials,
    argv_of,
    own_argv,
    sampling_of,
)
from perflib.experiments.sensitivity.functions import open_percent
from perflib.experiments.sensitivity.table import WITNESSES, DoseTable
from perflib.framework.experiment import Session
from perflib.framework.starts import Start, check_sampled, check_sampling
from perflib.kernels import build
from perflib.machine.hardware.caches import caches
from perflib.machine.hardware.memory import free_bytes
from perflib.machine.hardware.topology import topology
from perflib.measure.pages import of_programs
from perflib.measure.process import WorkerError
from perflib.measure.schedule import Status, frame_of
from perflib.measure.streams import CACHE_CHUNKS, CHUNK_BYTES, calibrate_delays
from perflib.model.errors import MeasurementError, UserError

_MIN_S = 8.0
_ROUNDS = 8  # that an interval takes
_ARRAYS = 3  # that a competitor's arena has
_LEAST_BYTES = 64 * MIB  # of memory that no cache holds
_PART_OF_FREE = 4
_UNKNOWN_BYTES = 1 << 40  # of free memory, where the kernel does not say
_CHASED = 0.75  # of the last-level cache
_CHASED_BYTES = 8 * MIB  # where its size is not known
_WALKED_BYTES = 24 * MIB  # 6144 pages: more than a TLB holds, with their lines in 384 KiB
_OCCUPYING_PERCENT = 50.0  # of the rate of reads from memory: enough to keep what is occupied
_MIN_CPU_S, _SHORT_CPU_S = 0.005, 0.1
_LIMIT_TIMES, _LIMIT_MORE_S = 10.0, 30.0  # the competitor ends by itself after that


def plan(params: SensitivityParams) -> dict[str, Any]:
    """The job's cores and the competitor's, the sizes, and which doses there cannot be.

    Raises
    ------
    UserError
        The command cannot be run, or no core is left for the job.
    """
    argv_of(params)  # a wrong command fails here
    if sampling := sampling_of(params):
        check_sampling(sampling)
    cores, places = params.resolved_cores(), topology()
    if params.job_cpus > len(cores):
        msg = f"job_cpus: the job cannot have {params.job_cpus} of {len(cores)} cores (cores)"
        raise UserError(msg)
    job_cpus = cores[: params.job_cpus]
    same_core = {one for cpu in job_cpus for one in places.cpu(cpu).siblings} - set(job_cpus)
    others = [cpu for cpu in cores[params.job_cpus :] if cpu not in same_core]
    near = [cpu for cpu in others if places.cpu(cpu).node == places.cpu(job_cpus[0]).node]
    named = cores if isinstance(params.cores, list) else places.allowed_cpus()
    cpus = near or others
    cache_bytes = _cache_bytes(params, job_cpus[0])
    free = (free_bytes() or _UNKNOWN_BYTES) // _PART_OF_FREE
    size = max(2 * cache_bytes, _LEAST_BYTES) // MIB * MIB
    absent = {}
    if not cpus:
        why = "there is no second core that may compete (cores): with one CPU nobody can"
        absent = dict.fromkeys(("traffic", "occupied", "alone"), f"Nothing competes: {why}.")
    elif _ARRAYS * size > free:
        msg = (
            f"the competitor takes {_ARRAYS * size // MIB} MiB, more than a quarter of the free "
            f"memory ({free // MIB} MiB): give less cache_mib"
        )
        raise UserError(msg)
    elif not cache_bytes:
        absent["occupied"] = "The machine does not report a last-level cache: give cache_mib."
    pages, why = of_programs.levels()
    if params.huge_pages != "default":
        pages, why = [], "the parameter huge_pages fixes them"
    if not pages:
        absent["small_pages"] = f"Pages are not varied: {why}."
    build("bound_job", executable=True)  # what cannot be compiled fails here
    build("memory_load")
    return {
        "job_cpus": job_cpus,
        "cpus": cpus,
        "siblings": sorted(same_core & set(named)),
        "cache_bytes": cache_bytes,
        "array_bytes": size,
        "most_pages": pages[-1] if pages else "default",
        "absent": absent,
        "bytes": {
            "compute": 0,
            "chase": int(_CHASED * cache_bytes) or _CHASED_BYTES,
            "triad": min(size, free),
            "walk": _WALKED_BYTES,
        },
    }


def _cache_bytes(params: SensitivityParams, cpu: int) -> int:
    """Of the job's last-level cache; 0: not known."""
    if params.cache_mib is not None:
        return int(params.cache_mib * MIB)
    mine = [one for one in caches() if one.kind == "unified" and cpu in one.shared_cpus]
    return max(mine, key=lambda one: one.level).size_bytes if mine else 0


def pilot(params: SensitivityParams, plan: Mapping[str, Any]) -> dict[str, Any]:
    """Whether the job runs and writes the same twice, how long it takes, and the doses."""
    absent, notes = dict(plan["absent"]), [CANNOT_SEE]
    passes: dict[str, int] = {}
    with Trials(params, {**plan, "passes": passes}) as trials:
        for one in OWN_JOBS:
            passes[one] = _passes(trials, plan, one, params.trial_s)
        first, again = _tried(trials), _tried(trials, read_all=True)
        notes += _job_notes(params, first, again)
        if "small_pages" not in absent and (why := _pages_fail(trials, plan, again)):
            absent["small_pages"] = f"Pages are not varied: {why}"
        doses = _doses(params, {**plan, "absent": absent}, trials)
    own_s = params.trial_s + 0.1
    round_s = sum(again.wall_s + own_s * (len(one.programs) - 1) for one in doses)
    if params.budget_s < _ROUNDS * round_s:
        notes.append(
            f"a round takes about {round_s:.0f} s, and an interval {_ROUNDS} rounds: "
            f"budget_s={math.ceil(_ROUNDS * round_s)} or a shorter job would decide more"
        )
    return {
        "absent": absent,
        "notes": notes,
        "passes": passes,
        "doses": [one._asdict() for one in doses],
        "output": again.output if again.output == first.output else None,
        "limit_s": _LIMIT_TIMES * (again.wall_s + 4 * own_s) + _LIMIT_MORE_S,
    }


def _passes(trials: Trials, plan: Mapping[str, Any], job: str, wanted_s: float) -> int:
    """How often one of our jobs goes through its data in that CPU time, its beginning apart."""

    def cpu_s(passes: int) -> float:
        return trials.start(own_argv(job, plan["bytes"][job], passes)).cpu_s

    first_s, passes = cpu_s(1), 4
    while (more_s := cpu_s(passes) - first_s) < wanted_s / 4:
        passes *= 4
    return max(1, round(passes * wanted_s / more_s))


def _tried(trials: Trials, *, read_all: bool = False) -> Start:
    """A start of the pilot: what fails ends the run here, before minutes are spent."""
    program = trials.argv("job")[0]
    try:
        made = trials.job(read_all=read_all)
    except WorkerError as error:
        msg = f"{program}: {error}. It reads no input, and has no terminal but for its log"
        raise MeasurementError(msg) from error
    if made.cpu_s < _MIN_CPU_S:
        msg = f"{program} takes {1e3 * made.cpu_s:.2g} ms of CPU time, too little to compare: "
        msg += "give it more to do"
        raise MeasurementError(msg)
    check_sampled(made, program)
    return made


def _job_notes(params: SensitivityParams, first: Start, again: Start) -> list[str]:
    if params.response == "event":
        return ["the job's output is its log, which is not compared", *again.violated]
    found = []
    if first.output != again.output:
        found.append("the job writes something else at each start: its output is not compared")
    elif not again.output:
        found.append("the job writes nothing to its standard output: no result is compared")
    if again.cpu_s < _SHORT_CPU_S:
        found.append(
            f"the job takes {1e3 * again.cpu_s:.0f} ms of CPU time: its start is a large part of it"
        )
    return [*found, *again.violated]


def _pages_fail(trials: Trials, plan: Mapping[str, Any], usual: Start) -> str:
    """Why the job does not run with another page size, or writes something else; or empty."""
    levels: tuple[of_programs.Level, ...] = ("never", plan["most_pages"])
    try:
        made = [trials.job(level, read_all=True) for level in levels]
    except WorkerError as error:
        return str(error)
    wrong = [text for one in made for text in one.violated if text not in usual.violated]
    return wrong[0] if wrong else ""


def _doses(params: SensitivityParams, plan: Mapping[str, Any], trials: Trials) -> list[Dose]:
    """Every dose that there can be, the waits of the competitor measured."""
    cpus, absent = tuple(plan["cpus"]), plan["absent"]
    found = [Dose("alone")]
    if (cpus or plan["siblings"]) and (why := trials.place()):
        msg = f"the competitor has no memory: {why}"
        raise MeasurementError(msg)
    if cpus:
        found.append(Dose("control", chunks=CACHE_CHUNKS, cpus=cpus))
        kind = params.traffic_kind
        delays = _delays(trials, cpus, kind, params.traffic)
        found += [
            Dose("traffic", level, kind, delay, cpus=cpus)
            for level, delay in zip(params.traffic, delays, strict=True)
        ]
        if "occupied" not in absent:
            (delay,) = _delays(trials, cpus, "read", [_OCCUPYING_PERCENT])
            for level in params.occupied:
                bytes_ = plan["cache_bytes"] * level / 100
                chunks = max(1, round(bytes_ / CHUNK_BYTES / len(cpus)))
                found.append(Dose("occupied", level, "read", delay, chunks, cpus))
    if plan["siblings"]:
        found.append(Dose("sibling", chunks=CACHE_CHUNKS, cpus=tuple(plan["siblings"])))
    if "small_pages" not in absent:
        found += [Dose("small_pages"), Dose("huge_pages")]
    most = {
        one.name: max(found, key=lambda each: (each.name == one.name, each.level)) for one in found
    }
    witnessed = {**WITNESSES, "huge_pages": WITNESSES["small_pages"]}
    return [
        one._replace(witness=witnessed.get(one.name, "") if one == most[one.name] else "")
        for one in found
    ]


def _delays(trials: Trials, cpus: tuple[int, ...], kind: str, rates: list[float]) -> list[int]:
    """The waits; none at 100 % of the rate."""
    found = calibrate_delays(trials.streams, ARENA, cpus, kind, rates)
    return [0 if rate >= 100 else delay for rate, delay in zip(rates, found, strict=True)]


def take(params: SensitivityParams, session: Session) -> str:
    """Every dose once a round, in random order."""
    plan = session.plan
    doses = [Dose(**{**one, "cpus": tuple(one["cpus"])}) for one in plan["doses"]]
    if session.progress is not None:
        taken, note = session.journal.trials, ". ".join(plan["notes"])
        session.progress(Status(0.0, params.budget_s, 0, None, lambda: frame_of(taken), note))

    def half_width(samples: pd.DataFrame) -> float:
        if not samples["ok"].any() or samples["round"].max() < 1:
            return math.inf
        width = DoseTable(samples, params.response).half_width()
        return max(width, open_percent(samples)) if params.functions else width

    with Trials(params, plan, doses) as trials:
        stopped = session.rounds(params, len(doses), trials.take, half_width, least_s=_MIN_S)
        job = argv_of(params) or trials.argv("job")
        if plan["cpus"]:
            session.note(trials.streams)
    session.provenance |= {
        "job": " ".join(job),
        "absent": plan["absent"],
        "program": build("bound_job", executable=True).provenance,
        "conditions": [*session.provenance.get("conditions", []), *trials.conditions],
    }
    session.problems += [*plan["notes"], *plan["absent"].values(), *trials.problems]
    return stopped
