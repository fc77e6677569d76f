"""Every core, in every state, once a round: one worker a core computes, and compares."""

from __future__ import annotations

import math
import os
import random
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from perflib.experiments.correctness import CLASSES, CorrectnessParams
from perflib.experiments.correctness.opinion import ask
from perflib.framework.experiment import Session
from perflib.kernels import build, record
from perflib.measure.process import Out
from perflib.measure.schedule import Columns
from perflib.measure.workers import Workers
from perflib.model.errors import MeasurementError, UserError

_RESULT = record("correctness", "correctness_result")
_NUMBERS = {name: number for number, name in enumerate(CLASSES)}
TABLED = 8  # blocks whose checksums are known
_ROUNDS = 8  # that fit into the budget
_WORKING = 0.7  # of the time
_MIN_NS, _IDLE_NS = 50_000, 1_000_000
_BURST_NS, _PAUSE_NS = 50_000, 100_000
_TOGETHER_NS = 20_000_000  # until all cores know what to compute
_CALL_S, _GRACE = 30.0, 20.0
_ALONE, _WITH_VECTORS, _ALL = 0, 1, 2  # the kernel's loads


def plan(params: CorrectnessParams) -> dict[str, Any]:
    """The cores."""
    build("correctness")  # what cannot be compiled fails here
    return {"cores": params.resolved_cores()}


def pilot(params: CorrectnessParams, plan: Mapping[str, Any]) -> dict[str, Any]:
    """Which classes the processor has, and how long each is tested in a trial.

    Raises
    ------
    UserError
        It has none of those that were requested.
    """
    with Workers(build("correctness"), [params.conditions(plan["cores"][0])]) as workers:
        have = {
            name: workers[0].call("correctness_available", _NUMBERS[name], timeout_s=_CALL_S)[0]
            for name in params.tested_classes
        }
    classes = [name for name, found in have.items() if found]
    absent = {name: f"this processor has no {CLASSES[name]}" for name in have if not have[name]}
    if not classes:
        reasons = "; ".join(f"{name}: {why}" for name, why in absent.items())
        raise UserError(reasons)
    trials = len(_configurations(params, len(plan["cores"])))
    wanted_ns = 1e9 * _WORKING * params.budget_s / (_ROUNDS * trials * len(classes))
    class_ns = int(min(1e6 * params.class_ms, max(wanted_ns, _MIN_NS)))
    return {"classes": classes, "absent": absent, "class_ns": class_ns}


def _configurations(params: CorrectnessParams, cores: int) -> list[tuple[str, list[int]]]:
    """Each a state, and the places of the cores that compute at once."""
    return [
        (state, places)
        for state in params.tested_states
        for places in ([list(range(cores))] if state == "together" else [[n] for n in range(cores)])
    ]


def block_of(seed: int, round_: int) -> int:
    """Which inputs a round has: every second one those that have a table, else new ones."""
    if round_ % 2 == 0:
        return round_ // 2 % TABLED
    return TABLED + random.Random(f"{seed}/{round_}").getrandbits(31)


class Trials(Workers):
    """One worker a core."""

    def __init__(self, params: CorrectnessParams, plan: Mapping[str, Any]) -> None:
        self._cores = plan["cores"]
        super().__init__(build("correctness"), [params.conditions(cpu) for cpu in self._cores])
        self._seed, self._names, self._class_ns = params.seed, plan["classes"], plan["class_ns"]
        self._configurations = _configurations(params, len(self._cores))

    def take(self, round_: int, configuration: int) -> Columns:
        """One row a class and core.

        Raises
        ------
        WorkerError
            A worker died, or took too long.
        """
        state, places = self._configurations[configuration]
        order = random.Random(f"{self._seed}/{round_}/{configuration}").sample(
            self._names, len(self._names)
        )
        numbers = np.array([_NUMBERS[name] for name in order], np.int64)
        block = block_of(self._seed, round_)
        together = state == "together"
        begin_ns = time.monotonic_ns() + _TOGETHER_NS if together else 0
        idle_ns = _IDLE_NS if state == "cold" else 0
        burst_ns, pause_ns = (_BURST_NS, _PAUSE_NS) if state == "changing" else (0, 0)
        load = {"together": _ALL, "changing": _WITH_VECTORS}.get(state, _ALONE)
        expected_s = len(order) * (self._class_ns + idle_ns + pause_ns) / 1e9
        parts: list[pd.DataFrame] = []
        try:
            for place in places:
                self[place].begin(
                    "correctness_run", numbers, len(order), block, begin_ns, self._class_ns,
                    idle_ns, burst_ns, pause_ns, load, Out(_RESULT, len(order)),
                )  # fmt: skip
            for place in places:
                answer, (results,) = self[place].end(timeout_s=_CALL_S + _GRACE * expected_s)
                if answer:
                    msg = f"correctness refused: {os.strerror(answer)}"
                    raise MeasurementError(msg)
                parts.append(self._rows(self._cores[place], order, results))
        except BaseException:
            for place in places:  # what was begun is not waited for
                self[place].kill()
            raise
        frame = pd.concat(parts).assign(state=state, block=block)
        return {str(name): values.tolist() for name, values in frame.items()}

    def _rows(self, cpu: int, order: list[str], results: Any) -> pd.DataFrame:
        wrong = results["wrong"] > 0
        texts = {
            name: [f"{value:016x}" for value in results[name].tolist()]
            for name in ("expected", "found", "checksum")
        }
        for place in np.flatnonzero(wrong):
            self.problems[f"cpu{cpu} computed wrong results of the class {order[place]}"] = None
        return pd.DataFrame(
            {
                "cpu": cpu,
                "class": order,
                **{name: results[name] for name in ("operations", "wrong", "first_index")},
                "expected": np.where(wrong, texts["expected"], ""),
                "found": np.where(wrong, texts["found"], ""),
                "checksum": texts["checksum"],
                "time_ns": results["time_ns"].astype(np.float64),
                "start_ns": results["start_ns"],
                "ok": results["cpu"] == cpu,
            }
        )


def take(params: CorrectnessParams, session: Session) -> str:
    """Every core in every state, once a round."""
    with Trials(params, session.plan) as trials:
        configurations = len(_configurations(params, len(session.plan["cores"])))
        stopped = session.rounds(params, configurations, trials.take, lambda _: math.inf)
        session.note(trials)
    if params.opinion_s:
        said, problem = ask(session.plan["cores"], params.opinion_s)
        if said:
            session.provenance["opendcdiag"] = said
        session.problems += filter(None, [problem])
    return stopped
