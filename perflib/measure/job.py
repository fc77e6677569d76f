"""A job that runs to its end, or to its time limit; the end of what it writes is kept."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from perflib.machine.processes import signal_name
from perflib.measure.conditions import Conditions, check
from perflib.measure.supervised import Supervised

_OUTPUT_BYTES = 1 << 20
_POLL_S = 0.05
_SETTLED_S = 0.1
_READS = 64  # of output between two readings of the clock: a job may write for ever


@dataclass(frozen=True)
class Ran:
    """What a job did.

    Parameters
    ----------
    returncode
        Its exit status; negative: the signal that ended it; None: it runs on.
    output
        The last mebibyte of its standard output and error.
    wall_s
        From its start to its end; of a job that ran already: how long it was recorded.
    problem
        How it ended, if not well: ``died of SIGSEGV (Segmentation fault)``.
    """

    returncode: int | None
    output: str
    wall_s: float
    problem: str


def run_alone(
    argv: Sequence[str],
    conditions: Conditions | None = None,
    *,
    cpus: Sequence[int] = (),
    timeout_s: float = 600.0,
    seen: Callable[[int], None] | None = None,
) -> Ran:
    """Run a job to its end without recording it.

    Parameters
    ----------
    argv
        The job.
    conditions
        What its process is to have.
    cpus
        The CPUs that it may use; empty: those of this process.
    timeout_s
        When it is killed; ``problem`` reports it.
    seen
        Called once with the job's process id a tenth of a second after its start, if it still runs.

    Raises
    ------
    MeasurementError
        It cannot be started.
    UserError
        The conditions are not available.
    """
    with Started(argv, conditions or Conditions(), cpus, timeout_s, seen) as job:
        job.wait()
        return job.ran()


class Started:
    """A job from its start to its end; leaving kills what is left of it.

    Parameters
    ----------
    argv, conditions, cpus, timeout_s, seen
        As of `run_alone`.
    environment
        The whole environment; by default that of the conditions.
    stdout
        False: only its standard error is kept.
    held
        It waits before its first instruction until `release`.
    """

    def __init__(
        self,
        argv: Sequence[str],
        conditions: Conditions,
        cpus: Sequence[int],
        timeout_s: float,
        seen: Callable[[int], None] | None = None,
        *,
        environment: Mapping[str, str] | None = None,
        stdout: bool = True,
        held: bool = False,
    ) -> None:
        check(conditions)
        self._pipe, self._theirs = -1, -1
        self._cpus = cpus
        self._timeout_s = timeout_s
        self._seen = seen
        self._stdout, self._held = stdout, held
        self._argv, self._conditions, self._environment = list(argv), conditions, environment
        self._output = bytearray()
        self._problem = ""
        self._end: float | None = None

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as started:
            self._pipe, theirs = os.pipe()
            started.callback(os.close, self._pipe)
            os.set_blocking(self._pipe, False)
            self._poller = select.poll()
            try:
                with on_cpus(self._cpus):
                    self._begun = time.monotonic()
                    self._job = started.enter_context(
                        Supervised(
                            self._argv,
                            self._conditions,
                            stdout=theirs if self._stdout else subprocess.DEVNULL,
                            stderr=theirs,
                            environment=self._environment,
                            held=self._held,
                        )
                    )
            finally:
                os.close(theirs)
            self._poller.register(self._pipe, select.POLLIN)
            self._poller.register(self._job.report, select.POLLIN)
            self.pid = self._job.pid
            self._open = True
            self._ending = started.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.close()

    def release(self) -> None:
        """Let a held job begin."""
        self._begun = time.monotonic()
        self._job.release()

    def become(self) -> None:
        """Wait until the process has become the job: it begins as a Python that starts it."""
        self._job.become(self._timeout_s)

    @property
    def elapsed_s(self) -> float:
        """Since its start."""
        return time.monotonic() - self._begun

    def wait(self, until_s: float | None = None) -> bool:
        """Wait for the end, or until so long after the start; whether it has ended."""
        limit = self._begun + self._timeout_s
        until = limit if until_s is None else min(limit, self._begun + until_s)
        while self._end is None:
            now = time.monotonic()
            if self._seen is not None and now >= self._begun + _SETTLED_S:
                seen, self._seen = self._seen, None
                seen(self.pid)
            if now >= limit:
                self._problem = f"did not end within {self._timeout_s:g} s and was killed"
                self._job.kill()
            elif now >= until:
                return False
            else:
                self._poller.poll(1000 * min(_POLL_S, until - now))
            ended = self._job.ended()  # and then nobody writes any more
            self._read()
            if ended:
                self._end = time.monotonic()
        return True

    def ran(self) -> Ran:
        """What it did, after its end.

        Raises
        ------
        MeasurementError
            It could not be started.
        """
        assert self._end is not None
        self._job.kill()
        self._job.check_started()
        code = self._job.returncode
        problem = self._problem
        output = self._output.decode(errors="replace")
        if not problem and code < 0:
            problem = f"died of {signal_name(-code)}"
        elif not problem and code:
            last = output.strip().splitlines()[-1:] or ["(nothing)"]
            problem = f"ended with status {code}; its last line: {last[0]}"
        problem = "; ".join(filter(None, (problem, self._job.problem)))
        return Ran(code, output, self._end - self._begun, problem)

    def _read(self) -> None:
        """Read what it wrote, or a part."""
        for _ in range(_READS if self._open else 0):
            try:
                chunk = os.read(self._pipe, 1 << 16)
            except BlockingIOError:
                return
            if not chunk:
                self._poller.unregister(self._pipe)
                self._open = False
                return
            self._output += chunk
            del self._output[:-_OUTPUT_BYTES]


@contextlib.contextmanager
def on_cpus(cpus: Sequence[int]) -> Iterator[None]:
    """What is started meanwhile may use these CPUs only."""
    before = os.sched_getaffinity(0)
    try:
        if cpus:
            os.sched_setaffinity(0, cpus)
        yield
    finally:
        os.sched_setaffinity(0, before)
