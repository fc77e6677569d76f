"""The workers of one measurement: one for each set of conditions, and what they have."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Self

from perflib.kernels import Build
from perflib.measure.conditions import Conditions
from perflib.measure.process import Worker

_DESCRIPTORS_EACH, _DESCRIPTORS_ELSEWHERE = 3, 512


def _allow_descriptors(wanted: int) -> None:
    """Raise this process's own soft limit of open files, which hundreds of workers reach."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + _DESCRIPTORS_ELSEWHERE
    if needed > soft != resource.RLIM_INFINITY:
        most = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))


def refused(kernel: str, answer: int, threads: int) -> str:
    """Why a kernel with threads on cores of their own did nothing; empty: it did.

    ``threads``: the first of three stages of its answer: no core, no thread, a thread too late.
    """
    stage, number = divmod(answer, 1 << 16)
    if stage == threads:
        return "a core cannot be used: it is offline, or this process may not run there (any more)"
    if stage == threads + 1:
        return f"a thread cannot be started: {os.strerror(number)}"
    if stage == threads + 2:
        return "a thread did not get its core within half a second: another program keeps it"
    return f"{kernel} refused: {os.strerror(number)} (stage {stage})" if answer else ""


class Workers:
    """A worker of each kernel under each of several conditions; started at once, ended together.

    What takes an experiment's trials derives from it, or has one.

    Parameters
    ----------
    builds
        The kernel, or several: the worker of kernel ``k`` under conditions ``c`` has the number
        ``k * len(conditions) + c``.
    conditions
        What the workers are to have.

    Attributes
    ----------
    problems
        Sentences on what else was wrong, each once; they are part of ``violated``.
    """

    def __init__(self, builds: Build | Sequence[Build], conditions: Sequence[Conditions]) -> None:
        self._builds = [builds] if isinstance(builds, Build) else list(builds)
        self._workers = [Worker(build, wanted) for build in self._builds for wanted in conditions]
        self.problems: dict[str, None] = {}

    def __getitem__(self, number: int) -> Worker:
        return self._workers[number]

    def __enter__(self) -> Self:
        _allow_descriptors(_DESCRIPTORS_EACH * len(self._workers))
        try:
            for worker in self._workers:
                worker.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            worker.kill()

    def provenance(self) -> dict[str, Any]:
        """The kernels (``kernel``: the first), and the conditions requested and observed."""
        kernels = [build.provenance for build in self._builds]
        return {
            "kernel": kernels[0],
            **({"kernels": kernels} if len(kernels) > 1 else {}),
            "conditions": [
                {
                    "requested": asdict(worker.conditions),
                    "obtained": worker.obtained,
                    "violated": worker.violated,
                }
                for worker in self._workers
            ],
        }

    @property
    def violated(self) -> list[str]:
        """A sentence for each condition that is not in force, and each problem, once."""
        lacking = [text for worker in self._workers for text in worker.violated]
        return list(dict.fromkeys([*lacking, *self.problems]))
