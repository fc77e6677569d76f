"""Recording threads without any privilege: by a library in the job, or by reading /proc.

`Preloaded` is for a job that we start: the library tools/thread_waits.c stamps every wait, and
`preload.sampler` shows how the time between is shared. `States` is for a job that runs
already: all is sampled. Only a process's owner may read it.
"""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Self

import numpy as np

from perflib import kernels
from perflib.instruments.threads.preload import sampler as states
from perflib.instruments.threads.preload.files import MAGIC, SHARED, read_processes
from perflib.instruments.threads.preload.recording import Parts, write
from perflib.instruments.threads.preload.sampler import Sampled, Sampler
from perflib.instruments.threads.recording import Recording
from perflib.instruments.threads.settings import Settings
from perflib.model.errors import MeasurementError, UserError

_VARIABLE = "PERFLIB_THREAD_WAITS"
_FOREVER_NS = (1 << 63) - 1
_MB = 1_000_000
_READINGS_SHARE = 8  # readings may take this part of the data


def unavailable() -> str:
    """Why waits cannot be stamped by a preloaded library; empty where they can."""
    if platform.libc_ver()[0] != "glibc":
        return "the library that stamps waits knows the GNU C library only, and this is another"
    return kernels.unavailable("thread_waits") or states.unavailable()


class States:
    """States sampled from /proc, of a job that runs already.

    Parameters
    ----------
    folder
        Where data are written while the job runs.
    settings
        ``skip_s`` and ``duration_s`` are kept by whoever calls ``enable`` and ``disable``.
    """

    name = "states"

    def __init__(self, folder: Path, settings: Settings) -> None:
        self.folder = folder
        self.settings = settings
        self._sampler: Sampler | None = None
        self._cpus = 1
        self._from_ns = 0
        self._until_ns = _FOREVER_NS

    unavailable = staticmethod(states.unavailable)

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(self, *_: object) -> None:
        if self._sampler is not None:
            self._sampler.stop()

    def environment(self) -> dict[str, str]:
        """Variables that a job which we start must have: none."""
        return {}

    def started(self, pid: int) -> None:
        """The process to be recorded is there: its threads are sampled from now on.

        Raises
        ------
        MeasurementError
            There is no such process.
        """
        self._cpus = _cpus_of(pid)
        settings = self.settings
        one = Sampler(
            pid,
            self.folder / "readings",
            period_s=max(0.01, settings.sample_period_us * 1e-6),
            follow=settings.follow,
            ignore=settings.ignore,
            most_bytes=settings.max_data_mb * _MB // _READINGS_SHARE,
        )
        self._sampler = one.__enter__()

    def enable(self) -> None:
        """Record from now on."""
        self._from_ns = time.monotonic_ns()

    def disable(self) -> None:
        """Record no more."""
        self._until_ns = time.monotonic_ns()

    def recording(self, pid: int, out: Path) -> Recording:
        """What was recorded of a process and what it started, written to a folder.

        Raises
        ------
        MeasurementError
            Nothing was recorded.
        """
        return write(self._parts(pid), out)

    def _sampled(self) -> Sampled:
        if self._sampler is None:
            return Sampled([], np.empty(0, states.READING), {}, {}, [])
        self._sampler.stop()
        return self._sampler.sampled()

    def _parts(self, pid: int) -> Parts:
        return Parts(
            backend=self.name,
            pid=pid,
            processes=[],
            sampled=self._sampled(),
            from_ns=self._from_ns,
            until_ns=self._until_ns,
            cpus=self._cpus,
            settings=self.settings,
        )


class Preloaded(States):
    """Waits stamped by a library in the job, and sampled states between them.

    The library is named in the job's LD_PRELOAD. What ignores that is not stamped, and a remark
    reports it: programs linked statically, for another architecture, or with privileges (setuid).

    Raises
    ------
    UserError
        The library cannot be named in LD_PRELOAD: its path has a space or a colon.
    """

    name = "preload"

    unavailable = staticmethod(unavailable)

    def __enter__(self) -> Self:
        built = kernels.build("thread_waits").library
        self.folder = self.folder.resolve()
        super().__enter__()
        # A copy next to the data: the cache is closed to the other user that a job may become.
        self._library = self.folder / built.name
        shutil.copy(built, self._library)
        self._library.chmod(0o755)
        if any(letter in str(self._library) for letter in " :"):
            self._library = built
        if any(letter in str(self._library) for letter in " :"):
            msg = (
                f"{self._library} cannot be preloaded: LD_PRELOAD takes no path with a space or a "
                "colon. Record into another folder, or set PERFLIB_CACHE to one."
            )
            raise UserError(msg)
        self._write_shared()
        self._entered_ns = time.monotonic_ns()
        return self

    def environment(self) -> dict[str, str]:
        """Variables that the job must have; an LD_PRELOAD of its own goes before ours."""
        return {"LD_PRELOAD": str(self._library), _VARIABLE: str(self.folder)}

    def started(self, pid: int) -> None:
        """The process to be recorded is there; or was, if it was a short one."""
        with contextlib.suppress(MeasurementError):
            super().started(pid)

    def enable(self) -> None:
        """Record from now on; the library itself knows ``skip_s``, counted from the job's start."""

    def disable(self) -> None:
        """Record no more; the library itself knows ``duration_s``."""
        if self.settings.duration_s is None:
            shared = np.memmap(self.folder / "shared", SHARED, mode="r+")
            shared["until_ns"] = np.minimum(shared["until_ns"], np.uint64(time.monotonic_ns()))
            shared.flush()

    def _write_shared(self) -> None:
        settings = self.settings
        shared = np.zeros(1, SHARED)
        patterns = b"".join(os.fsencode(one) + b"\0" for one in settings.ignore if one)
        if len(patterns) >= SHARED["patterns"].itemsize:
            msg = (
                f"ignore: {len(settings.ignore)} patterns are too long for the library (4095 bytes)"
            )
            raise UserError(msg)
        shared["magic"] = MAGIC
        shared["skip_ns"] = int(settings.skip_s * 1e9)
        shared["duration_ns"] = int((settings.duration_s or 0) * 1e9)
        shared["period_ns"] = int(settings.sample_period_us * 1e3)
        shared["most_bytes"] = settings.max_data_mb * _MB * (_READINGS_SHARE - 1) // _READINGS_SHARE
        shared["follow"] = settings.follow
        shared["callers"] = {"none": 0, "fp": 1}.get(settings.call_graph, 2)  # tw_callers
        shared["until_ns"] = _FOREVER_NS
        shared["patterns"] = patterns
        path = self.folder / "shared"
        for old in [path, *self.folder.glob("waits.*"), *self.folder.glob("maps.*")]:
            old.unlink(missing_ok=True)
        path.write_bytes(shared.tobytes())
        if os.geteuid() == 0:  # a job that root starts may continue as another user
            path.chmod(0o666)
            self.folder.chmod(0o1777)

    def _parts(self, pid: int) -> Parts:
        shared = np.fromfile(self.folder / "shared", SHARED)[0]
        processes = read_processes(self.folder)
        if not any(process.pid == pid for process in processes):
            program = self._sampled().programs.get(pid, "")
            msg = (
                f"the job{f' ({program})' if program else ''} did not load the library that stamps "
                "waits: it is linked statically, for another architecture, runs with privileges of "
                "its own (setuid), cleared its environment, is among those that 'ignore' names, or "
                "could not write to the folder of the data. Record it with backend=perf, or start "
                "it and attach to it with backend=states"
            )
            raise MeasurementError(msg)
        if not self._entered_ns <= int(shared["start_ns"]) <= time.monotonic_ns():
            msg = (
                "the job's clock is not ours: it runs in a time namespace of its own, so that its "
                "waits and the states sampled from outside cannot be put together"
            )
            raise MeasurementError(msg)
        most_bytes = int(shared["most_bytes"])
        return replace(
            super()._parts(pid),
            processes=processes,
            from_ns=int(shared["from_ns"]),
            until_ns=int(shared["until_ns"]),
            full=int(shared["used_bytes"]) + _READINGS_SHARE * 32768 > most_bytes,
        )


def _cpus_of(pid: int) -> int:
    try:
        return len(os.sched_getaffinity(pid))
    except OSError:
        return os.cpu_count() or 1
