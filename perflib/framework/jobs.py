"""Which job an experiment times or profiles: parameters and command lines that several share."""

from __future__ import annotations

import contextlib
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Self

from pydantic import model_validator

from perflib.framework.params import Params, parameter
from perflib.instruments.joblog.logformat import FORMATS, LogFormat
from perflib.kernels import Kernel, build, load
from perflib.measure.conditions import Conditions, check, observe, violated
from perflib.model.errors import MeasurementError, UserError

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
FREQUENCY_HZ = parameter(
    4000, "functions: samples a second of each thread that runs", "Hz", ge=10, le=50_000
)

_EVENTS = " --events {events} --first {first} --seed {seed}"


class JobParams(Params):
    """Parameters of experiments that start a job which writes a log; ``job`` says which job."""

    job: str = "program"
    job_command: str = JOB_COMMAND
    job_begin: str = JOB_BEGIN
    job_end: str = JOB_END
    job_timeout_s: float = JOB_TIMEOUT_S

    @model_validator(mode="after")
    def _job_is_whole(self) -> Self:
        check_command(self.job, self.job_command)
        log_format(self.job_begin, self.job_end)
        return self


def log_format(begin: str, end: str) -> LogFormat:
    """The two expressions of a ``Params``, checked (pydantic wants a ValueError)."""
    try:
        return LogFormat(begin, end)
    except UserError as error:
        msg = f"job_begin, job_end: {error}"
        raise ValueError(msg) from None


def copies_for(code_kib: int, kernel: Kernel | None = None) -> int:
    """How often KV's step code is repeated to have about this size (``kernel``: in that build)."""
    one = int((kernel or load("kv")).lib.kv_code_bytes())
    return max(1, round(code_kib * 1024 / one))


def check_command(job: str, command: str) -> None:
    """A command line goes with job=command and with nothing else (pydantic wants a ValueError)."""
    if (job == "command") != bool(command):
        msg = "job=command and job_command=... go together"
        raise ValueError(msg)


def command_template(argv: Sequence[str]) -> str:
    """A command's words as a ``job_command`` that `job_argv` turns into the same words again.

    >>> command_template(["awk", "{print}", "a b"])
    "awk '{{print}}' 'a b'"
    """
    return shlex.join(re.sub(r"\{(\w+)\}", r"{{\1}}", word) for word in argv)


def job_template(
    job: str, command: str = "", *, copies: int | None = None, variant: str | None = None
) -> str:
    """The command line of a job, its placeholders still open; our ``program`` is compiled."""
    if job == "program":
        program = build("kv", variant=variant, copies=copies, executable=True).library
        return shlex.quote(str(program)) + _EVENTS
    if job == "pythia":
        return f"{shlex.quote(sys.executable)} -m perflib.measure.jobs.pythia{_EVENTS}"
    return command


class Jobs:
    """Jobs started again and again under each of several conditions, and what they obtained."""

    def __init__(self, template: str, conditions: Sequence[Conditions]) -> None:
        self.template = template
        self.conditions = conditions
        self._obtained: dict[int, dict[str, Any]] = {}
        for wanted in conditions:
            check(wanted)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def read_back(self, which: int, pid: int) -> None:
        """Read once, at an event of the first trial, what the process really has."""
        if which not in self._obtained:
            with contextlib.suppress(MeasurementError):  # it has ended: the next one reports it
                self._obtained[which] = observe(pid, self.conditions[which].environment)

    def _violated(self, which: int) -> list[str]:
        return (
            violated(self.conditions[which], self._obtained[which])
            if which in self._obtained
            else []
        )

    @property
    def violated(self) -> list[str]:
        """Conditions that are not in force, as far as a job could be read."""
        return list(
            dict.fromkeys(text for which in self._obtained for text in self._violated(which))
        )

    def provenance(self) -> dict[str, Any]:
        """The job, the conditions requested and those obtained (empty: it ended too soon)."""
        return {
            "job": self.template,
            "conditions": [
                {
                    "requested": asdict(wanted),
                    "obtained": self._obtained.get(which, {}),
                    "violated": self._violated(which),
                }
                for which, wanted in enumerate(self.conditions)
            ],
        }
