"""Which job an experiment times or profiles: parameters and command lines that several share."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from perflib.errors import UserError
from perflib.experiments.params import parameter
from perflib.kernels import load
from perflib.profiling.logformat import FORMATS, LogFormat

__all__ = [
    "JOB_BEGIN",
    "JOB_COMMAND",
    "JOB_END",
    "JOB_TIMEOUT_S",
    "copies_for",
    "job_template",
    "log_format",
]

JOB_COMMAND = parameter(
    "", "command line of job=command; {first}, {events} and {seed} are filled in"
)
JOB_BEGIN = parameter(
    FORMATS["kv"].begin, "regular expression of an event's first line, group 'event'"
)
JOB_END = parameter(
    FORMATS["kv"].end, "regular expression of an event's last line, groups 'event', 'seconds'"
)
JOB_TIMEOUT_S = parameter(600.0, "the longest that one start of a job may take", "s", gt=0, le=1e6)

_EVENTS = " --events {{events}} --first {{first}} --seed {{seed}}"
_JOBS = {"program": "{program}" + _EVENTS, "pythia": "{python} -m perflib.jobs.pythia" + _EVENTS}


def log_format(begin: str, end: str) -> LogFormat:
    """The two expressions of a ``Params``, checked (pydantic wants a ValueError)."""
    try:
        return LogFormat(begin, end)
    except UserError as error:
        msg = f"job_begin, job_end: {error}"
        raise ValueError(msg) from None


def copies_for(code_kib: int) -> int:
    """How often KV's step code is repeated to have about this size."""
    one = int(load("kv").lib.kv_code_bytes())
    return max(1, round(code_kib * 1024 / one))


def job_template(job: str, program: Path | None) -> str:
    """The command line of ``program`` or ``pythia``, its placeholders still open."""
    return _JOBS[job].format(
        python=shlex.quote(sys.executable), program=shlex.quote(str(program)) if program else ""
    )
