"""Starts in random layouts, round by round, each layout again in a later round."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from perflib.experiments.layout import CANNOT_SEE, MIN_LAYOUTS, LayoutParams
from perflib.experiments.layout.factors import base_environment_bytes, conditions, draw, levels
from perflib.experiments.layout.functions import BuildProfiles
from perflib.experiments.layout.programs import (
    Programs,
    argv_of,
    builds_of,
    counters_of,
    sampling_of,
)
from perflib.experiments.layout.relink import check_link_line
from perflib.experiments.layout.simulated import simulated_counts, simulated_instructions
from perflib.experiments.layout.table import LayoutTable
from perflib.framework.experiment import Session
from perflib.framework.starts import Start, check_sampled, check_sampling
from perflib.instruments.counters.groups import countable
from perflib.instruments.profile.builds import facts_of, same_code
from perflib.instruments.profile.objects import build_id
from perflib.machine.scratch import scratch
from perflib.measure.process import WorkerError
from perflib.measure.schedule import Columns, Status, frame_of
from perflib.model.errors import MeasurementError, PerflibError
from perflib.stats.layouts import needed_pairs

_MIN_S = 16.0
_APART_S = 16.0  # between the two starts of a layout: longer than most disturbances
_ROUNDS = 32  # wanted within the budget; a round of a fast program has more layouts instead
_MAX_LAYOUTS = 8  # fresh layouts in a round
_PILOT_SHARE = 0.3  # of the budget, for trying each level once
_PAIRS = 6  # layouts in which both builds are started to foretell how many it takes
_AGAIN = 10**9  # numbers of layouts that are started once, because no earlier round has one


def plan(params: LayoutParams) -> dict[str, Any]:
    """The factors with their levels here, and what cannot be varied."""
    for build in builds_of(params):
        argv_of(params, build)  # a wrong command fails here
    if params.relink:
        check_link_line(params.relink)
    if sampling := sampling_of(params):
        check_sampling(sampling)
    counted, uncounted = countable(counters_of(params))
    factors, absent = levels(params)
    base = base_environment_bytes(params, factors)
    for name, found in factors.items():
        for level in found:
            conditions(params, {name: level}, base).process_environment()
    return {
        "cpus": params.resolved_cores(),
        "factors": factors,
        "absent": absent,
        "environment_bytes": base,
        "counted": counted,
        "uncounted": [
            f"the counters {name!r} count nothing: {why}" for name, why in uncounted.items()
        ],
    }


def pilot(params: LayoutParams, plan: Mapping[str, Any]) -> dict[str, Any]:
    """How long the program takes; which levels it runs with; how many pairs of builds it takes."""
    factors: dict[str, list[Any]] = {name: list(found) for name, found in plan["factors"].items()}
    absent, notes = dict(plan["absent"]), []
    builds = builds_of(params)
    with scratch() as folder:
        programs = Programs(params, plan, folder)
        earlier = [_tried(programs, build) for build in builds]  # files are in memory after that
        begin = time.monotonic()
        first = [_tried(programs, build, read_all=True) for build in builds]
        start_s = time.monotonic() - begin
        if len(builds) == 2:
            notes += _builds_notes(programs, earlier, first)
        if "cpu" in factors and params.factors == ["all"] and _parallel(first):
            absent["cpu"] = "cpu is not varied: the program uses several cores at once"
            del factors["cpu"]
        count = sum(map(len, factors.values()))
        tried = count * start_s < _PILOT_SHARE * params.budget_s
        if tried:
            for name in list(factors):
                _try(programs, builds, name, factors, absent)
        if not factors:
            msg = f"no factor can be varied: {'; '.join(absent.values())}"
            raise MeasurementError(msg)
        if not first[0].obtained:
            notes.append("the program ends too soon for all its conditions to be read back")
        foretold = {}
        if params.other_command and _PAIRS * start_s < _PILOT_SHARE * params.budget_s:
            foretold = _foretell(params, programs, factors, start_s)
    layout_s = 2 * start_s
    suited = round(params.budget_s / _ROUNDS / layout_s)
    fresh = params.layouts or min(max(suited, MIN_LAYOUTS), _MAX_LAYOUTS)
    most_rounds = max(1, math.floor(params.budget_s / (layout_s * fresh)))
    apart = max(1, min(math.ceil(_APART_S / (layout_s * fresh)), most_rounds // 4))
    return {
        "factors": factors,
        "absent": absent,
        "notes": notes,
        "builds": builds,
        "fresh": fresh,
        "apart": apart,
        "tried": tried,
        "foretold": foretold,
    }


def _tried(programs: Programs, build: str, **options: bool) -> Start:
    """A start of the pilot: what fails, or is too short for perf, ends the run here."""
    try:
        made = programs.start(build, {}, **options)
    except WorkerError as error:
        msg = f"{programs.named(build)}: {error}"
        raise MeasurementError(msg) from error
    check_sampled(made, programs.named(build))
    return made


def _builds_notes(programs: Programs, earlier: list[Start], first: list[Start]) -> list[str]:
    """What two starts of each build say of their outputs, and whether they are one build."""
    a, b = ({one.output, again.output} for one, again in zip(earlier, first, strict=True))
    ids = [build_id(path) or path for path in programs.files().values()]
    notes = []
    if ids[0] == ids[1]:
        notes.append("A and B are the same build: any difference is chance, or of the arguments")
    if max(len(a), len(b)) > 1:
        notes.append("a build writes something else at each start: outputs are not compared")
    elif a != b:
        notes.append("B does not write what A writes: they may not compute the same")
    elif a == {""}:
        notes.append("neither build writes to its standard output: outputs are not compared")
    return notes


def _parallel(first: list[Start]) -> bool:
    return any((one.threads or 1) > 1 or one.cpu_s > 1.05 * one.wall_s for one in first)


def _try(
    programs: Programs,
    builds: list[str],
    name: str,
    factors: dict[str, list[Any]],
    absent: dict[str, str],
) -> None:
    """Start the program once with each level of a factor; those it does not run with go."""
    usable, refused = [], []
    for level in factors[name]:
        try:
            made = [programs.start(build, {name: level}, read_all=True) for build in builds]
            why = next((text for one in made for text in one.violated), "")
        except WorkerError as error:
            why = str(error)
        if why:
            shown = level["name"] if isinstance(level, dict) else level
            refused.append(f"{name}={shown} is left out: {why}")
        else:
            usable.append(level)
    if refused:
        absent[name] = "; ".join(refused)
    factors[name] = usable
    if len(usable) < 2:
        del factors[name]


def _foretell(
    params: LayoutParams, programs: Programs, factors: Mapping[str, list[Any]], start_s: float
) -> dict[str, Any]:
    """How many pairs of starts the wanted precision takes, by a few pairs; with what scatters."""
    differences = []
    for number in range(_PAIRS):
        layout = draw(factors, params.seed, 2 * _AGAIN + number)
        try:
            a, b = (programs.start(build, layout) for build in ("A", "B"))
        except WorkerError:
            continue
        one, other = (getattr(each, f"{params.response}_s") for each in (a, b))
        differences.append(math.log(other / one))
    needed = needed_pairs(np.array(differences), params.precision_percent)
    seconds = needed[0] * start_s if needed else math.nan
    return {"pairs": list(needed), "seconds": seconds, "tried": len(differences)}


def _foretold(params: LayoutParams, plan: Mapping[str, Any]) -> list[str]:
    found = plan["foretold"]
    if not found or not found["pairs"]:
        return []
    likely, least, most = found["pairs"]
    said = (
        f"for ± {params.precision_percent:g} points some {likely} pairs of starts are needed "
        f"(by {found['tried']} pairs: {least} to {most}), about {found['seconds']:.0f} s; the "
        f"budget is {params.budget_s:g} s"
    )
    if params.fail_above_percent is not None and found["seconds"] > params.budget_s:
        said += (
            f"; whether B is slower by more than {params.fail_above_percent:g} % may stay open: "
            f"budget_s={math.ceil(found['seconds'])} is likely to decide it"
        )
    return [said]


def _simulated(
    params: LayoutParams, session: Session, programs: Programs, folder: Path
) -> dict[str, Any]:
    """Counts of the layouts that had starts without ASLR; by the factors, or by the parameter."""
    factors, rows = session.plan["factors"], frame_of(session.journal.trials)
    if "aslr" not in rows and params.aslr:
        msg = "every start had random addresses (ASLR), and an emulator has none"
        raise MeasurementError(msg)
    if "aslr" in rows:
        rows = rows[rows["aslr"] == "off"]
    starts = zip(rows["build"], rows["layout"], strict=True)
    layouts = [(build, draw(factors, params.seed, int(number))) for build, number in starts]
    return simulated_counts(params, programs, folder, session.plan["environment_bytes"], layouts)


def _code(session: Session, programs: Programs) -> dict[str, Any]:
    """What the builds' files say of their code, and of functions that were sampled."""
    rows, files = frame_of(session.journal.trials), programs.files()
    if "symbol" in rows:
        rows = rows[rows["symbol"].notna()]
        of_build = {build: rows[rows["build"] == build] for build in files}
        if not any(table.empty for table in of_build.values()):
            return facts_of(of_build, files)
    same = same_code(*map(Path, files.values()))
    return {"programs": files, "same_code": same}


def layout_number(fresh: int, apart: int, round_: int, slot: int) -> int:
    """Which layout a place of a round starts: fresh ones, then those of an earlier round again.

    >>> [layout_number(2, 3, 5, slot) for slot in range(4)]
    [10, 11, 4, 5]
    """
    if slot < fresh:
        return round_ * fresh + slot
    if round_ >= apart:
        return (round_ - apart) * fresh + slot - fresh
    return _AGAIN + round_ * fresh + slot - fresh


def take(params: LayoutParams, session: Session) -> str:
    """Start the program in random layouts until it is enough."""
    plan = session.plan
    fresh, apart, builds = plan["fresh"], plan["apart"], plan["builds"]
    problems: dict[str, None] = {}
    with ExitStack() as opened:
        folder: Path = opened.enter_context(scratch())
        programs = Programs(params, plan, folder)
        said = [CANNOT_SEE, *plan["absent"].values(), *plan["uncounted"], *plan["notes"]]
        said += _foretold(params, plan)
        if session.progress is not None:
            taken = session.journal.trials
            note = ". ".join(said)
            session.progress(Status(0.0, params.budget_s, 0, None, lambda: frame_of(taken), note))

        def trial(round_: int, which: int) -> Columns:
            slot, build = divmod(which, len(builds))
            number = layout_number(fresh, apart, round_, slot)
            layout = draw(plan["factors"], params.seed, number)
            made = programs.start(builds[build], layout, read_all=not plan["tried"], round_=round_)
            problems.update(dict.fromkeys(made.violated))
            return programs.rows(builds[build], layout, made, number)

        def half_width(samples: pd.DataFrame) -> float:
            width = LayoutTable(samples, params.response).half_width()
            if "symbol" not in samples:
                return width
            return max(width, BuildProfiles(samples, {}).open_percent())

        count = 2 * fresh * len(builds)
        stopped = session.rounds(params, count, trial, half_width, least_s=_MIN_S)
        session.provenance |= programs.provenance()
        if len(builds) == 2:
            session.provenance["code"] = code = _code(session, programs)
            said += code.pop("remarks", []) + list(programs.remarks)
        if params.simulating_s and stopped != "interrupted":
            try:
                if params.functions:
                    code["instructions"] = simulated_instructions(
                        params, programs, plan["environment_bytes"], builds
                    )
                else:
                    session.provenance["simulated"] = _simulated(params, session, programs, folder)
            except PerflibError as error:
                said.append(f"nothing is simulated: {error}")
    session.problems += [*said, *problems]
    return stopped
