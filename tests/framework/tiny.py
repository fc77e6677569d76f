"""The smallest experiment that measures in worker processes, to be interrupted in every way.

As a program it measures until it is killed: ``python -m tests.framework.tiny``.
"""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pandas as pd
import pytest

from perflib import kernels
from perflib.framework.experiment import Experiment, Session
from perflib.framework.levels import levels_table
from perflib.framework.params import Params as BaseParams
from perflib.framework.params import parameter
from perflib.framework.schema import Column
from perflib.measure.conditions import Conditions
from perflib.measure.schedule import Columns, take_rounds
from perflib.measure.workers import Workers
from perflib.model.errors import UserError
from perflib.model.finding import Finding
from perflib.model.run import Run
from perflib.store import paths

KERNELS = Path(__file__).parents[1] / "kernels_c"
ARMS = 3


class TinyParams(BaseParams):
    """How many rounds."""

    rounds: int = parameter(4, "rounds to take, if the budget lasts", ge=1, le=10**9)
    refused: bool = parameter(False, "whether the plan refuses it")


class Tiny(Experiment):
    """Adds two numbers on three workers, in rounds."""

    name = "tiny"
    title = "Tiny"
    question = "Is nothing lost?"
    notebook = "none"
    Params = TinyParams
    columns = (
        Column("round", "integer", "", "number of the round", required=True),
        Column("configuration", "integer", "", "which worker", required=True),
        Column("sum", "number", "", "what it answered", required=True),
        Column("token", "text", "", "no other sample has it"),
        Column("time_ns", "number", "ns", "not needed"),
    )
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"quick": {"rounds": 2, "budget_s": 5.0}}
    claims = ()
    tables: ClassVar[Mapping[str, str]] = {}
    plots: ClassVar[Mapping[str, str]] = {}
    before_trial: Callable[[int, int], None] | None = None  # a test's way in

    def plan(self, params: TinyParams) -> dict[str, Any]:
        """One number that must stay the same."""
        if params.refused:
            msg = "parameter 'refused': this machine cannot do that"
            raise UserError(msg)
        return {"offset": secrets.randbelow(1000)}

    def pilot(self, params: TinyParams, plan: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG002
        """Nothing to measure beforehand."""
        return {}

    def take(self, params: TinyParams, session: Session) -> str:
        """Ask the workers in trial."""
        offset = session.plan["offset"]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(paths, "kernels_dir", lambda: KERNELS)
            built = kernels.build("faulty")
        cpu = min(os.sched_getaffinity(0))
        with Workers(built, [Conditions(cpu=cpu)] * ARMS) as workers:
            session.provenance.update(workers.provenance())
            session.problems += workers.violated
            if __name__ == "__main__":
                print(*(workers[which].pid for which in range(ARMS)), flush=True)

            def trial(round_: int, which: int) -> Columns:
                if self.before_trial is not None:
                    self.before_trial(round_, which)
                total, _ = workers[which].call("faulty_add", offset, round_, timeout_s=30.0)
                return {"configuration": [which], "sum": [total], "token": [secrets.token_hex(8)]}

            return take_rounds(
                session.journal,
                3,
                trial,
                seed=params.seed,
                budget_s=params.budget_s,
                least_s=0.0,
                target=float(1 / params.rounds),
                half_width=lambda samples: float(1 / (samples["round"].max() + 1)),
                progress=session.progress,
                stop=session.stop,
            )

    def analyse(self, run: Run) -> list[Finding]:  # noqa: ARG002
        """Nothing to say."""
        return []

    def levels(self, run: Run) -> pd.DataFrame:  # noqa: ARG002
        """Nothing to compare machines by."""
        return levels_table([])


def tokens(samples: pd.DataFrame) -> list[str]:
    """The samples' own marks, in order."""
    return [str(token) for token in samples["token"]]


if __name__ == "__main__":
    Tiny().measure(TinyParams.make({"rounds": 10**9, "seed": int(sys.argv[1])}))
