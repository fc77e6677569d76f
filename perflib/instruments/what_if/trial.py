"""One run of a program with a target made faster virtually."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from perflib import kernels
from perflib.instruments.what_if.shared import VirtualSpeedup, read, written
from perflib.machine.processes import is_gone
from perflib.measure.conditions import Conditions, inherited_preload
from perflib.measure.job import Ran, run_alone
from perflib.measure.process import WorkerError

_VARIABLE = "PERFLIB_WHAT_IF"
_TICKS, _NO_SAMPLES, _SIGNAL_TAKEN, _ENDED = 1, 2, 4, 8
_FOLDERS = "perflib-what-if-"
_ARCHITECTURES = ("x86_64", "aarch64")


def unavailable() -> str:
    """Why nothing can be made faster virtually here; empty where it can."""
    if platform.libc_ver()[0] != "glibc":
        return "the library that delays threads knows the GNU C library only, and this is another"
    if platform.machine() not in _ARCHITECTURES:
        return (
            f"the library that delays threads knows {' and '.join(_ARCHITECTURES)}, and this is "
            f"{platform.machine()}"
        )
    return kernels.unavailable("what_if")


@dataclass(frozen=True)
class Trial:
    """What one run did.

    Parameters
    ----------
    ran
        How the job ended, and what it printed.
    job_s
        From the load of the library to the end of the program.
    delay_s
        Delays inserted: what every thread stood still, or was credited with.
    target_s
        CPU time in the target, of all threads; of a function by samples.
    cpu_s
        CPU time of all threads, without that of the delays.
    run_queue_s
        How long threads were ready and waiting for a core.
    samples, target_samples, sections
        Samples of all threads, those in the target, and how often its lock was held.
    threads
        The most that there were at once.
    ticks
        Samples came at the kernel's ticks only: some milliseconds apart.
    found
        Whether every file that the target is in was loaded.
    modules
        Files that were mapped, of a run without target.
    """

    ran: Ran
    job_s: float
    delay_s: float
    target_s: float
    cpu_s: float
    run_queue_s: float
    samples: int
    target_samples: int
    sections: int
    threads: int
    ticks: bool
    found: bool
    modules: tuple[str, ...]


def run_trial(
    argv: Sequence[str],
    target: VirtualSpeedup,
    speedup_percent: float,
    *,
    conditions: Conditions | None = None,
    cpus: Sequence[int] = (),
    period_us: float = 1000.0,
    callers: str = "dwarf",
    timeout_s: float = 600.0,
    seen: Callable[[int], None] | None = None,
) -> Trial:
    """Run a program to its end, the target so many percent faster.

    Parameters
    ----------
    argv
        The program itself, not a script that starts it: only the first process is watched.
    target
        `NO_TARGET`: nothing is delayed, and ``modules`` names the program's files.
    speedup_percent
        0: the control, measured alike; 100: as if the target took no time.
    period_us
        CPU time between two samples of a thread.
    callers
        How a sample in what the target calls is recognised: ``fp`` (frame pointers), ``dwarf``
        (unwind tables), ``none`` (it is not: the function's own time alone).
    conditions, cpus, timeout_s, seen
        As of `perflib.measure.job.run_alone`.

    Raises
    ------
    UserError
        The target is in too many places, or the conditions are not available.
    MeasurementError
        The program cannot be started.
    WorkerError
        It did not come to its end, or the library was not loaded.
    """
    _remove_left()
    with tempfile.TemporaryDirectory(prefix=f"{_FOLDERS}{os.getpid()}-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        library = Path(shutil.copy(kernels.build("what_if").library, folder / "what_if.so"))
        library.chmod(0o755)
        shared = folder / "shared"
        written(shared, target, speedup_percent, period_us, callers)
        wanted = conditions or Conditions()
        wanted = replace(
            wanted,
            preload=(*(wanted.preload or inherited_preload()), str(library)),
            environment={**wanted.environment, _VARIABLE: str(shared)},
        )
        ran = run_alone(argv, wanted, cpus=cpus, timeout_s=timeout_s, seen=seen)
        numbers = read(shared)
        modules = _names(folder / "shared.modules")
    _check(ran, numbers)
    return Trial(
        ran=ran,
        job_s=(numbers["end_ns"] - numbers["start_ns"]) / 1e9,
        delay_s=numbers["global_ns"] / 1e9,
        target_s=numbers["target_ns"] / 1e9,
        cpu_s=(numbers["cpu_ns"] - numbers["paid_cpu_ns"]) / 1e9,
        run_queue_s=numbers["run_queue_ns"] / 1e9,
        samples=numbers["samples"],
        target_samples=numbers["target_samples"],
        sections=numbers["sections"],
        threads=numbers["most_live"],
        ticks=bool(numbers["flags"] & _TICKS),
        found=numbers["modules_found"] == (1 << numbers["modules"]) - 1,
        modules=modules,
    )


def _remove_left() -> None:
    """Remove the folders of processes that were killed before they could."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_FOLDERS}[0-9]*-*"):
        pid = folder.name.removeprefix(_FOLDERS).partition("-")[0]
        with contextlib.suppress(OSError):  # one of another user's
            if pid.isdecimal() and is_gone(int(pid)) and folder.lstat().st_uid == os.getuid():
                shutil.rmtree(folder, ignore_errors=True)


def _check(ran: Ran, numbers: dict[str, int]) -> None:
    flags = numbers["flags"]
    if ran.problem:
        msg = f"the job {ran.problem}"
    elif numbers["root"] == 0:
        msg = (
            "the library was not loaded into the job: a program that is linked statically, has "
            "privileges (setuid) or is built for another architecture cannot be delayed"
        )
    elif flags & _SIGNAL_TAKEN:
        msg = "the job handles the signal of the samples itself (SIGRTMAX or the one below)"
    elif flags & _NO_SAMPLES:
        msg = "no clock of CPU time could be started in the job: is its RLIMIT_SIGPENDING 0?"
    elif not flags & _ENDED:
        msg = (
            "the job ended without telling the library: by another way than return, exit() and "
            "_exit(), or it became another program"
        )
    else:
        return
    raise WorkerError(msg)


def _names(path: Path) -> tuple[str, ...]:
    """The real paths of mapped files, the program first; without what is no file, and ours."""
    if not path.is_file():
        return ()
    words = [os.fsdecode(word) for word in path.read_bytes().split(b"\0") if word[:1] == b"/"]
    real = dict.fromkeys(os.path.realpath(word) for word in words)
    return tuple(one for one in real if Path(one).is_file() and _FOLDERS not in one)
