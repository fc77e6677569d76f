"""Pieces of any program, timed by the program itself between probes.

A program of C or C++ includes ``perflib_bracket.h`` (``perflib header``) and marks its pieces; a
Python process has `perflib.sample` and `perflib.bench`. Each sample knows whether its core was
alone, so pieces are compared by those that had it, in turns, process by process.
"""

from __future__ import annotations

from typing import Literal, Self

from pydantic import model_validator

from perflib.experiments.bracketed.claims import CLAIMS
from perflib.framework.brackets import PROBE_COLUMNS
from perflib.framework.experiment import Experiment
from perflib.framework.jobs import JOB_COMMAND, JOB_TIMEOUT_S, check_command
from perflib.framework.params import Params, budget, limit, parameter, precision
from perflib.framework.schema import START, Column, key, ok
from perflib.framework.steps import Drawing, Steps

__all__ = ["Bracketed", "BracketedParams", "experiment"]


class BracketedParams(Params):
    """Which program takes samples, and what its pieces are compared with."""

    budget_s: float = budget(60.0)
    precision_percent: float = precision(0.5, "the half-widths of all comparisons are below this")
    job: Literal["example", "command", "here"] = parameter(
        "example",
        "who takes the samples: our 'example', any 'command' with job_command that includes "
        "perflib_bracket.h, or the Python process 'here' (pl.bench, pl.sample)",
    )
    against: str = parameter("", "the piece that others are compared with; empty: the first")
    threshold_percent: float = limit(1.0, "a piece counts as slower from this on", le=100)
    job_command: str = JOB_COMMAND
    job_timeout_s: float = JOB_TIMEOUT_S

    @model_validator(mode="after")
    def _job_is_whole(self) -> Self:
        check_command(self.job, self.job_command)
        return self


class Bracketed(Experiment, about=__file__):
    """Pieces of a program in turns, each sample between probes."""

    name = "bracketed"
    notebook = "20_bracketed"
    Params = BracketedParams
    live_rounds = 1
    claims = CLAIMS
    columns = (
        Column("round", "integer", "", "number of the program's start, or of the round here"),
        Column("position", "integer", "", "place in the round"),
        Column("process", "integer", "", "the process that took it: processes are compared"),
        Column(
            "turn",
            "integer",
            "",
            "its process's turn; without: it ends where another piece comes again",
        ),
        key("name", "text", "the piece of the program"),
        Column("calls", "integer", "", "how often the piece ran in it; without: once", least=1),
        Column("cpu", "integer", "", "where it ended; without it all are of one core"),
        START,
        Column("time_ns", "number", "ns", "wall time", True, "measured"),
        *PROBE_COLUMNS,
        ok("it is not to be used"),
    )

    def _steps(self) -> Steps[BracketedParams]:
        from perflib.experiments.bracketed import analyse, measure

        return Steps(measure, analyse, pilot=measure.pilot, levels=analyse.levels)

    def _figures(self) -> Drawing:
        from perflib.experiments.bracketed import figures

        return figures


experiment = Bracketed()
