"""Run a program under a simulator, to its end or a time limit."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from perflib.machine.processes import signal_name
from perflib.measure.conditions import Conditions
from perflib.measure.job import Started
from perflib.model.errors import MeasurementError, UserError

_TAIL = 4000


class SimulatorError(MeasurementError):
    """The program or its simulator failed; ``tail`` is the end of their errors."""

    def __init__(self, message: str, tail: str) -> None:
        super().__init__(message)
        self.tail = tail

    def __reduce__(self) -> tuple[type[SimulatorError], tuple[str, str]]:
        """Let a worker process hand the error on."""
        return type(self), (str(self), self.tail)


def find_program(argv: Sequence[str], environment: Mapping[str, str] | None) -> Path:
    """The file that ``argv[0]`` names, on the PATH of the program's own environment."""
    if not argv:
        msg = "there is no program to simulate: its command line is empty"
        raise UserError(msg)
    path = (os.environ if environment is None else environment).get("PATH", os.defpath)
    found = shutil.which(argv[0], path=path)
    if found is None:
        msg = f"no program {argv[0]!r}: is its name right, may it be executed, is it on PATH?"
        raise UserError(msg)
    return Path(found)


def find_tool(tool: str, install: str) -> tuple[str, str]:
    """The path of a simulator, and its name with its version: ``"qemu-x86_64 7.2.22"``.

    Raises
    ------
    UserError
        The tool is not on PATH; ``install`` says how to get it.
    """
    path = shutil.which(tool)
    if path is None:
        msg = f"{tool} is not on PATH. Install it: {install}"
        raise UserError(msg)
    answer = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    version = re.search(r"\d+(\.\d+)+", answer.stdout.removeprefix(tool))
    return path, f"{tool} {version[0] if version else 'of unknown version'}"


def run_under(
    simulator: Sequence[str],
    argv: Sequence[str],
    *,
    environment: Mapping[str, str] | None,
    timeout_s: float,
) -> int:
    """Run a simulator that runs ``argv`` to its end; its process id.

    The program reads nothing and its output is thrown away. What it leaves is killed when it has
    ended, at the time limit, and when this call is interrupted.

    Raises
    ------
    SimulatorError
        It could not be started, ended with a status other than 0, or not in time.
    """
    if not timeout_s > 0:
        msg = f"timeout_s must be more than 0 s, not {timeout_s!r}"
        raise UserError(msg)
    job = Started(simulator, Conditions(), (), timeout_s, environment=environment, stdout=False)
    name = f"{shlex.join(argv)} under {Path(simulator[0]).name}"
    try:
        with job:
            _no_core_files(job.pid)
            job.wait()
            ran = job.ran()
    except MeasurementError as error:
        raise SimulatorError(str(error), "") from error
    tail = ran.output[-_TAIL:].strip()
    if ran.problem.startswith("did not end"):
        msg = f"{name} {ran.problem}"
        raise SimulatorError(msg, tail)
    if ran.returncode:
        number = ran.returncode
        how = (
            f"died of {signal_name(-number)}" if number < 0 else f"ended with exit status {number}"
        )
        last = "\n".join(f"  {line}" for line in tail.splitlines()[-15:]) or "  (nothing)"
        msg = f"{name} {how}: nothing is counted. The last lines of its errors:\n{last}"
        raise SimulatorError(msg, tail)
    return job.pid


def _no_core_files(pid: int) -> None:
    """QEMU writes core files of its own into the current folder."""
    import resource

    with contextlib.suppress(OSError):  # it has ended already
        _, hard = resource.prlimit(pid, resource.RLIMIT_CORE)
        resource.prlimit(pid, resource.RLIMIT_CORE, (0, hard))
