"""The job: what runs on a node for one row of a plan.

It waits for its turn on this node, checks whether its result is there, and whether it runs where it
should, measures into a folder of this node, publishes one file, and records what became of it.
Exactly once is its own doing: engines start jobs again after a crash.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perflib.fleet import attempts, results
from perflib.fleet.attempts import Attempt
from perflib.fleet.cpu_use import CpuUse
from perflib.fleet.manifest import Row
from perflib.fleet.plan import Plan
from perflib.kernels.bundle import open_bundle, perflib_version
from perflib.kernels.private import private_cache
from perflib.machine.processes import signal_name
from perflib.machine.scratch import scratch
from perflib.measure.conditions import Conditions
from perflib.measure.launch import command
from perflib.model.errors import PerflibError

_CLOCK_S = 60.0  # a clock may be wrong by this: node and file server differ
_GRACE_S = 20.0  # to put settings back
_MAX_OTHERS_CPU = 0.1  # CPU seconds a second of all others: a tenth of a core
_MAX_REASON_CHARS = 500
_BY_SIGNAL = "its job was ended by a signal: cancelled, or at the scheduler's time limit"

# All that a measured process is given: the same on each node, whatever started it. Snakemake
# limits threads by variables, Slurm adds two dozen; the size of an environment moves the stack.
_PASSED = (
    "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "LOGNAME", "PATH", "PERFLIB_CACHE", "PERFLIB_CC",
    "PYTHONPATH", "SHELL", "TMPDIR", "TZ", "USER",
)  # fmt: skip


@dataclass
class JobOutcome:
    """What became of a job: a state, why, and facts for its record."""

    state: str
    reason: str = ""
    facts: dict[str, Any] = field(default_factory=dict)


class _NotMeasuredError(Exception):
    """It cannot be measured here, or was not: a state and a reason."""

    def __init__(self, reason: str, state: str) -> None:
        super().__init__(reason)
        self.state = state


def perform(plan: Plan, row: Row, *, transferred: bool = False) -> JobOutcome:
    """Do a job, unless its result is there.

    Parameters
    ----------
    plan, row
        What is to be measured.
    transferred
        The scheduler carries files: what is made goes to ``incoming/``, and nothing else is seen.

    Returns
    -------
    JobOutcome
        ``done``, or why not; the same is in the attempt's record.

    Raises
    ------
    OSError
        The plan's folder cannot be written.
    """
    with _turn():
        if not transferred and results.is_done(plan, row.key):
            return JobOutcome("done", "it was done before")
        folder = plan.folder / ("incoming" if transferred else "attempts")
        attempt = attempts.begin(
            folder, row.key, host=_host(), slurm_node=os.environ.get("SLURMD_NODENAME"),
            slurm_job=os.environ.get("SLURM_JOB_ID"), perflib=perflib_version(),
        )  # fmt: skip
        began = time.monotonic()
        facts: dict[str, Any] = {}
        try:
            outcome = JobOutcome("done", facts=facts)
            _measure(plan, row, attempt, facts, transferred)
        except _NotMeasuredError as error:
            outcome = JobOutcome(error.state, str(error), facts)
        except KeyboardInterrupt:
            outcome = JobOutcome("cancelled", _BY_SIGNAL, facts)
        except (PerflibError, OSError) as error:
            outcome = JobOutcome("failed", _short(str(error)), facts)
        facts["seconds"] = round(time.monotonic() - began, 1)
        attempt.ended(outcome.state, outcome.reason, **facts)
        return outcome


@contextlib.contextmanager
def _turn() -> Iterator[None]:
    """One job after the other on a node, whatever started them; who waits sleeps."""
    name = f"fleet-{os.environ.get('SLURMD_NODENAME') or _host()}.lock"
    try:
        place = private_cache() / name
    except PerflibError:
        place = Path(tempfile.gettempdir()) / f"perflib-{os.geteuid()}-{name}"
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    lock = os.open(place, flags, 0o600)
    try:
        with contextlib.suppress(OSError):  # a file system without locks: the allocation is ours
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _measure(
    plan: Plan, row: Row, attempt: Attempt, facts: dict[str, Any], transferred: bool
) -> None:
    _check_place(row)
    _check_clock(plan, attempt, facts)
    kernels = _check_code(plan, transferred)
    facts["slurm_jobs_beside"] = _other_jobs()
    facts["cpus"] = {"allowed": len(os.sched_getaffinity(0)), "online": os.cpu_count()}
    with scratch() as folder:
        environment = {name: os.environ[name] for name in _PASSED if name in os.environ}
        environment |= {"PERFLIB_HOME": str(folder / "data"), "PERFLIB_CONFIG": "none"}
        environment |= {"PERFLIB_PROGRESS": "none"}
        if kernels is not None:
            environment["PERFLIB_KERNELS"] = str(kernels)
        cpu_use, began = CpuUse(), time.monotonic()
        answer = _answer(row, environment, folder, attempt)
        spent = time.monotonic() - began
        facts |= cpu_use.report()
        quiet = facts["others_cpu_s"] < _MAX_OTHERS_CPU * spent
        facts["alone"] = quiet and not facts["slurm_jobs_beside"]
        facts["run"], made = answer["run"], Path(answer["file"])
        facts["sha256"] = results.sha256_of(made)
        try:
            if transferred:
                shutil.copyfile(made, attempt.path.with_suffix(".parquet"))
                return
            place = results.publish(plan, row.key, made, attempt.name)
        except OSError as error:
            msg = f"its result cannot be written to the plan: {error.strerror or error}"
            raise _NotMeasuredError(msg, "failed") from error
        if place.parent.name == "second":
            facts["second"] = place.name


# --- is it the right place? ----------------------------------------------------------------------


def _host() -> str:
    return os.uname().nodename


def _check_place(row: Row) -> None:
    """The node that the manifest names, by the scheduler's name and by the kernel's."""
    scheduled = os.environ.get("SLURMD_NODENAME")
    if scheduled and scheduled != row.node:
        msg = f"it belongs on {row.node}, and Slurm started it on {scheduled}"
        raise _NotMeasuredError(msg, "wrong node")
    if not same_host(row.hostname, _host()):
        msg = f"{row.node} should be the host {row.hostname}, and this one is called {_host()}"
        raise _NotMeasuredError(msg, "wrong node")


def same_host(one: str, other: str) -> bool:
    """Whether two names are of one host: the domain counts where both have one.

    >>> same_host("n1.farm.org", "N1"), same_host("n1.farm.org", "n1.other.org")
    (True, False)
    """
    names = [name.lower().rstrip(".") for name in (one, other)]
    if not all("." in name for name in names):
        names = [name.partition(".")[0] for name in names]
    return names[0] == names[1]


def _check_clock(plan: Plan, attempt: Attempt, facts: dict[str, Any]) -> None:
    """Compare this node's clock with the file system's, and with when the plan was started."""
    off = time.time() - attempt.path.stat().st_mtime
    with contextlib.suppress(OSError, ValueError):
        started = float((plan.folder / "driver.txt").read_text())
        if time.time() < started - _CLOCK_S:  # nothing begins before it was started
            off = min(off, time.time() - started)
    facts["clock_off_s"] = round(off, 1)
    if abs(off) > _CLOCK_S:
        how = f"{abs(off):.0f} s {'ahead' if off > 0 else 'behind'}"
        msg = f"its clock is {how}: set it, and run again"
        raise _NotMeasuredError(msg, "refused")


def _check_code(plan: Plan, transferred: bool) -> Path | None:
    """The perflib and the kernels that the plan names; where the kernels are."""
    if (here := perflib_version()) != plan.perflib:
        msg = f"the plan was made by perflib {plan.perflib}, and this node has {here}"
        raise _NotMeasuredError(msg, "refused")
    if not plan.bundle:
        return None
    named = Path(plan.bundle_folder)
    folder = plan.folder / (named.name if transferred else named)
    try:
        found = open_bundle(folder).sha256
    except PerflibError as error:
        raise _NotMeasuredError(str(error).replace("PERFLIB_KERNELS=", ""), "refused") from error
    if found != plan.bundle:
        msg = f"the bundle {folder} is not the one that the plan was made with: plan again"
        raise _NotMeasuredError(msg, "refused")
    return folder


def _other_jobs() -> int | None:
    """How many other jobs Slurm runs on this node; ``None`` where it does not answer."""
    node, job = os.environ.get("SLURMD_NODENAME"), os.environ.get("SLURM_JOB_ID")
    if not node or not job:
        return None
    words = ["squeue", "--noheader", f"--nodelist={node}", "--states=RUNNING", "--format=%A"]
    try:
        answer = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return len(set(answer.stdout.split()) - {job}) if answer.returncode == 0 else None


# --- the measured process ------------------------------------------------------------------------


def _answer(
    row: Row, environment: dict[str, str], folder: Path, attempt: Attempt
) -> dict[str, Any]:
    """Measure; what the process reports at its end. It dies with this one."""
    words = [sys.executable, "-P", "-m", "perflib.fleet.measured"]
    argv, _ = command(Conditions(aslr=True), words)
    wanted = {"experiment": row.experiment, "params": dict(row.params), "tag": row.key}
    with (
        (folder / "stderr").open("w+b") as complaints,
        subprocess.Popen(
            argv, env=environment, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=complaints,
        ) as process,
    ):  # fmt: skip
        try:
            output, _ = process.communicate(json.dumps(wanted).encode(), timeout=row.limit_s)
        except subprocess.TimeoutExpired:
            _end(process)
            msg = f"not done within its {row.limit_s} s (limit_s in the manifest)"
            raise _NotMeasuredError(msg, "too slow") from None
        except KeyboardInterrupt:
            attempt.ended("cancelled", _BY_SIGNAL)  # at once: a scheduler may soon kill
            _end(process)
            raise
        except BaseException:
            _end(process)
            raise
        complaints.seek(0)
        words = complaints.read().decode(errors="replace").strip().splitlines()
    if process.returncode:
        how = f"ended with status {process.returncode}"
        if process.returncode < 0:
            how = f"was ended by {signal_name(-process.returncode)}"
        last = f"; its last message: {words[-1]}" if words else ""
        raise _NotMeasuredError(_short(f"the measured process {how}{last}"), "failed")
    answer: dict[str, Any] = json.loads(output)
    if "error" in answer:
        raise _NotMeasuredError(_short(answer["error"]), "failed")
    if answer["stopped"] == "interrupted":
        raise _NotMeasuredError(_BY_SIGNAL, "cancelled")
    return answer


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ask it to put back what it set, and end; then end it. What it started may hold its pipe."""
    process.terminate()
    try:
        process.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _short(words: str) -> str:
    words = " ".join(words.split())
    return words if len(words) <= _MAX_REASON_CHARS else words[: _MAX_REASON_CHARS - 1] + "…"
