"""Code to mend in a process of its own, under a supervisor: it may crash, hang, fork or exit."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perflib.kernels import Build
from perflib.machine.scratch import scratch
from perflib.measure.supervised import Supervised
from perflib.model.escape import shortened

PATIENCE_S = 30.0  # without an answer: far longer than anything takes on a busy machine
_POLL_S = 0.05
_MOST_SAID = 300
_SIGNALS = {  # by name: not every system has them
    "SIGSEGV": "it reads or writes outside of its arrays, or follows a pointer to nowhere",
    "SIGBUS": "it reads or writes where no memory is",
    "SIGFPE": "it divides by zero",
    "SIGILL": "it reached a place that no code should reach",
    "SIGABRT": "it, or the C library for it, gave up",
    "SIGKILL": "the system killed it: did it take too much memory?",
}


@dataclass(frozen=True)
class Examined:
    """What the process answered, in order, and in a sentence why there is no more; or empty."""

    answers: list[dict[str, Any]]
    fault: str

    @property
    def threads_left(self) -> int:
        """How many threads it had in the end that it did not have in the beginning."""
        counts = [answer["threads"] for answer in self.answers if "threads" in answer]
        return int(counts[-1] - counts[0]) if len(counts) > 1 else 0

    @property
    def left(self) -> str:
        """What it left running, in a sentence; or empty."""
        count = self.threads_left
        many = "s" if count > 1 else ""
        return f"leaves {count} thread{many} running: end what you start" if count > 0 else ""


def examine(
    builds: Sequence[Build], request: dict[str, Any], *, patience_s: float = PATIENCE_S
) -> Examined:
    """Run what `perflib.course.fix.child` is asked for; nothing of it is left afterwards.

    Parameters
    ----------
    builds
        What is called.
    request
        The child's, without the libraries.
    patience_s
        How long the process may be silent before it is killed.

    Raises
    ------
    MeasurementError
        The process cannot be started.
    """
    with scratch() as folder:
        asked, answers, said = (folder / name for name in ("request", "answers", "said"))
        libraries = [[str(build.library), str(build.module)] for build in builds]
        asked.write_text(json.dumps({**request, "libraries": libraries}))
        answers.touch(mode=0o600)
        argv = [sys.executable, "-P", "-m", "perflib.course.fix.child", str(asked), str(answers)]
        with said.open("wb") as output:
            there = output.fileno()
            with Supervised(argv, stdout=there, stderr=there) as job:
                silent = _wait(job, answers, patience_s)
        fault = (
            f"does not end: no answer within {patience_s:g} s. Is there a loop without an end?"
            if silent
            else _death(job.returncode, said)
        )
        found = _read(answers)
    ended = bool(found) and "end" in found[-1]
    errors = [answer["error"] for answer in found if "error" in answer]
    if ended:
        fault = errors[0] if errors else ""
    return Examined([answer for answer in found if "error" not in answer], fault)


def _wait(job: Supervised, answers: Path, patience_s: float) -> bool:
    """Until the process ends, or says nothing for too long; whether it was silent."""
    size, since = -1, time.monotonic()
    while not job.ended(_POLL_S):
        now = answers.stat().st_size
        if now != size:
            size, since = now, time.monotonic()
        elif time.monotonic() - since > patience_s:
            return True
    return False


def _read(answers: Path) -> list[dict[str, Any]]:
    """All whole lines; the last one may be cut off."""
    lines = answers.read_bytes().split(b"\n")[:-1]
    try:
        found = [json.loads(line) for line in lines]
    except ValueError:  # the code wrote to the file of answers
        return []
    return [answer for answer in found if isinstance(answer, dict)]


def _death(returncode: int, said: Path) -> str:
    words = said.read_bytes()[-4 * _MOST_SAID :].decode(errors="replace").strip()
    spoke = f" It said: {shortened(words, _MOST_SAID)}" if words else ""
    if returncode >= 0:
        how = f"ends the process (exit status {returncode})"
        return f"{how}: code to mend returns to its caller.{spoke}"
    number = -returncode
    names = {one.value: one.name for one in signal.Signals}
    known = names.get(number, f"signal {number}")
    why = f": {_SIGNALS[known]}" if known in _SIGNALS else ""
    return f"crashes ({known}){why}.{spoke}"
