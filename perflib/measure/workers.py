"""The workers of one measurement: one for each set of conditions, and what they got."""

from __future__ import annotations

import resource
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Self

from perflib.kernels import Build
from perflib.measure.conditions import Conditions
from perflib.measure.process import Worker

__all__ = ["Workers"]


_DESCRIPTORS_EACH, _DESCRIPTORS_ELSEWHERE = 3, 512


def _allow_descriptors(wanted: int) -> None:
    """Raise this process's own soft limit of open files, which hundreds of workers reach."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + _DESCRIPTORS_ELSEWHERE
    if needed > soft != resource.RLIM_INFINITY:
        most = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))


class Workers:
    """A kernel's worker under each of several conditions; started at once, ended together."""

    def __init__(self, build: Build, conditions: Sequence[Conditions]) -> None:
        self._build = build
        self._workers = [Worker(build, wanted) for wanted in conditions]

    def __getitem__(self, arm: int) -> Worker:
        return self._workers[arm]

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
            worker.close()

    def provenance(self) -> dict[str, Any]:
        """The kernel, and the conditions asked for and got, for a run's provenance."""
        return {
            "kernel": self._build.provenance,
            "conditions": [
                {"asked": asdict(worker.conditions), "got": worker.got, "unmet": worker.unmet}
                for worker in self._workers
            ],
        }

    @property
    def unmet(self) -> list[str]:
        """A sentence for each condition that is not in force, each once."""
        return list(dict.fromkeys(text for worker in self._workers for text in worker.unmet))
